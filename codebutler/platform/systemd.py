"""A systemd user unit: its text, and its installation.

Sources: systemd.service(5), systemd.exec(5), systemd.syntax(7) for the quoting. systemd's own sandboxing
(PrivateTmp, ProtectSystem, ProtectHome) is left out: user units ignore it silently, and the agents have their
sandbox.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from codebutler.domain.errors import EXIT_CONFIGURATION, CodeButlerError
from codebutler.platform.service import NO_SESSION, Report, Run, ServiceSpec

WATCHDOG_S = 60
RESTART_S = 2
# After this many starts within this time systemd gives up: a restart does not help.
BURST, BURST_S = 10, 300


def unit_text(service: ServiceSpec) -> str:
    """The unit file."""
    environment = "".join(
        f"Environment={quoted(f'{name}={value}')}\n" for name, value in service.environment.items()
    )
    privileges = "NoNewPrivileges=yes\nRestrictRealtime=yes\n" if service.locked_privileges else ""
    return f"""\
# Written by `codebutler install`, removed by `codebutler uninstall`.
[Unit]
Description=CodeButler: coding agents in your chats
StartLimitIntervalSec={BURST_S}
StartLimitBurst={BURST}

[Service]
Type=notify
NotifyAccess=main
ExecStart={" ".join(quoted(word, command=True) for word in service.argv)}
WorkingDirectory={_escaped(str(service.home))}
{environment}Restart=on-failure
RestartSec={RESTART_S}
RestartPreventExitStatus={EXIT_CONFIGURATION}
WatchdogSec={WATCHDOG_S}
TimeoutStopSec={service.stop_s}
# The supervisor ends its workers in order; what is left then is killed.
KillMode=mixed
# An agent that eats the memory is killed alone, and its turn says so.
OOMPolicy=continue
# The supervisor makes a control group for each agent.
Delegate=yes
UMask=0077
# The supervisor raises its own soft limit; workers and agents keep the usual one.
LimitNOFILE=1024:524288
LimitCORE=0
{privileges}
[Install]
WantedBy=default.target
"""


def quoted(text: str, *, command: bool = False) -> str:
    """A word as systemd reads it back, with specifiers, variables and escapes quoted."""
    text = _escaped(text.replace("\\", "\\\\").replace('"', '\\"'))
    return f'"{text.replace("$", "$$") if command else text}"'


def _escaped(text: str) -> str:
    return text.replace("%", "%%").replace("\n", " ")


def read_report(fields: Mapping[str, str]) -> Report:
    """The meaning of the unit's properties. A waiting job is a start: no other is ever left waiting."""
    pid = int(fields.get("MainPID") or 0)
    active = fields.get("ActiveState", "")
    if active == "failed":
        return Report(
            "failed", pid, f"{fields.get('Result', '')}, exit code {fields.get('ExecMainStatus', '')}"
        )
    if fields.get("Job", "0") not in ("", "0") or active == "activating":
        return Report("starting", pid, fields.get("StatusText", ""))
    return Report("running" if active == "active" else "stopped", pid, fields.get("StatusText", ""))


class Systemd:
    """The user's systemd. A second install replaces the unit and restarts it."""

    def __init__(self, service: ServiceSpec, env: Mapping[str, str], run: Run) -> None:
        self._service = service
        self._run = run
        self._user = env.get("USER") or str(os.getuid())
        base = env.get("XDG_CONFIG_HOME") or f"{env.get('HOME') or Path.home()}/.config"
        self.file = Path(base) / "systemd" / "user" / f"{service.name}.service"

    def install(self) -> None:
        """Write, enable and start it; does not wait for the start. Raises CodeButlerError."""
        # Before anything is written: without a manager the file would do nothing.
        self._systemctl("show-environment")
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(unit_text(self._service), encoding="utf-8")
        self._systemctl("daemon-reload")
        self._systemctl("enable", self.file.name)
        self._systemctl("reset-failed", self.file.name, may_fail=True)
        self._systemctl("restart", "--no-block", self.file.name)

    def uninstall(self) -> bool:
        """Stop and remove it; False if it was not installed. Raises CodeButlerError."""
        if not self.file.exists():
            return False
        self._systemctl("disable", "--now", self.file.name)
        self.file.unlink(missing_ok=True)
        self._systemctl("daemon-reload")
        return True

    def report(self) -> Report:
        """Its current state. Raises CodeButlerError."""
        if not self.file.exists():
            return Report("absent")
        names = "ActiveState,MainPID,StatusText,Result,ExecMainStatus,Job"
        shown = self._systemctl("show", self.file.name, "-p", names)
        return read_report(dict(line.partition("=")[::2] for line in shown.splitlines()))

    def advice(self) -> str:
        """What the user has to do for it to run without a login; "" if nothing."""
        lingering = Path("/var/lib/systemd/linger") / self._user
        if lingering.exists():
            return ""
        return "It starts when you log in; to start it at boot: `loginctl enable-linger`"

    def _systemctl(self, *arguments: str, may_fail: bool = False) -> str:
        done = self._run(("systemctl", "--user", *arguments))
        if done.code and not may_fail:
            if "bus" in done.err or "XDG_RUNTIME_DIR" in done.err:
                raise CodeButlerError(NO_SESSION)
            raise CodeButlerError(f"`systemctl --user {' '.join(arguments)}` failed: {done.err or done.out}")
        return done.out
