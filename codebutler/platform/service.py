"""A user service: its description, and the port to a service manager (systemd, launchd).

A LaunchAgent: its property list, and its installation.

Sources: launchd.plist(5), launchctl(1). The tests check the text and the calls, but never run it on macOS.

A systemd user unit: its text, and its installation.

Sources: systemd.service(5), systemd.exec(5), systemd.syntax(7) for the quoting. systemd's own sandboxing
(PrivateTmp, ProtectSystem, ProtectHome) is left out: user units ignore it silently, and the agents have their
sandbox.
"""

from __future__ import annotations

import os
import plistlib
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol

from msgspec import Struct

from codebutler.domain.errors import EXIT_CONFIGURATION, CodeButlerError

NO_SESSION = (
    "your service manager cannot be reached: log in as this user (not through su or sudo), "
    "or run `loginctl enable-linger` once and log in again"
)
RUN_S = 60.0
State = Literal["absent", "starting", "running", "stopped", "failed"]


class Report(Struct, frozen=True):
    """The state of the service. ``pid`` is 0 without a process; ``text``: its own status, or why it failed."""

    state: State
    pid: int = 0
    text: str = ""


class ProgramResult(Struct, frozen=True):
    """A program's result."""

    code: int
    out: str = ""
    err: str = ""


Run = Callable[[Sequence[str]], ProgramResult]


class Manager(Protocol):
    """A service manager. ``file`` describes the service. All methods raise CodeButlerError with a line that says what
    to do."""

    file: Path

    def install(self) -> None:
        """Write ``file``, enable the service and start it; replaces an installed one."""

    def uninstall(self) -> bool:
        """Stop and remove the service; False if there was none."""

    def report(self) -> Report:
        """The service's current state."""

    def advice(self) -> str:
        """What is left to do so that it runs without a login; "" if nothing."""


def run(argv: Sequence[str]) -> ProgramResult:
    """Run a program to its end. Raises CodeButlerError if it is missing or takes too long."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=RUN_S, stdin=subprocess.DEVNULL)
    except FileNotFoundError:
        raise CodeButlerError(
            f"{argv[0]} is not installed: keep `codebutler supervise` running by other means"
        ) from None
    except subprocess.TimeoutExpired:
        raise CodeButlerError(f"`{' '.join(argv)}` took longer than {RUN_S:g} s") from None
    return ProgramResult(done.returncode, done.stdout.strip(), done.stderr.strip())


class ServiceSpec(Struct, frozen=True, kw_only=True):
    """The service to install. ``name`` is the same for the same home. ``argv`` starts the supervisor; ``environment``
    is all it gets of the installing shell. ``stop_s``: how long an orderly stop may take."""

    name: str
    argv: tuple[str, ...]
    home: Path
    environment: Mapping[str, str]
    locked_privileges: bool = True
    stop_s: int = 45


THROTTLE_S = 10
_PID = re.compile(r"^\s*pid = (\d+)$", re.MULTILINE)
_STATE = re.compile(r"^\s*state = (.+)$", re.MULTILINE)
_EXIT = re.compile(r"^\s*last exit code = (.+)$", re.MULTILINE)


def label(service: ServiceSpec) -> str:
    """The agent's name."""
    return f"com.{service.name.replace('codebutler-', 'codebutler.')}"


def agent_plist(service: ServiceSpec) -> bytes:
    """The property list. Restarted unless it exited successfully."""
    log = str(service.home / "logs" / "service.log")
    return plistlib.dumps(
        {
            "Label": label(service),
            "ProgramArguments": list(service.argv),
            "WorkingDirectory": str(service.home),
            "EnvironmentVariables": dict(service.environment),
            "RunAtLoad": True,
            "KeepAlive": {"SuccessfulExit": False},
            "ThrottleInterval": THROTTLE_S,
            "ExitTimeOut": service.stop_s,
            "ProcessType": "Interactive",
            "Umask": 0o077,
            # launchd's own soft limit of 256 open files is low for workers and agents, too.
            "SoftResourceLimits": {"NumberOfFiles": 1024},
            "StandardOutPath": log,
            "StandardErrorPath": log,
        }
    )


class Launchd:
    """The user's launchd. A second install replaces the agent and restarts it."""

    def __init__(self, service: ServiceSpec, env: Mapping[str, str], run: Run) -> None:
        self._service = service
        self._run = run
        self._domain = f"gui/{os.getuid()}"
        self._target = f"{self._domain}/{label(service)}"
        home = Path(env.get("HOME") or Path.home())
        self.file = home / "Library" / "LaunchAgents" / f"{label(service)}.plist"

    def install(self) -> None:
        """Write, load and start it; does not wait for the start. Raises CodeButlerError."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_bytes(agent_plist(self._service))
        self._launchctl("bootout", self._target, may_fail=True)
        self._launchctl("enable", self._target)
        self._launchctl("bootstrap", self._domain, str(self.file))

    def uninstall(self) -> bool:
        """Stop and remove it; False if it was not installed. Raises CodeButlerError."""
        if not self.file.exists():
            return False
        self._launchctl("bootout", self._target, may_fail=True)
        self.file.unlink(missing_ok=True)
        return True

    def report(self) -> Report:
        """Its current state. Raises CodeButlerError."""
        if not self.file.exists():
            return Report("absent")
        done = self._run(("launchctl", "print", self._target))
        if done.code:
            return Report("stopped", 0, "not loaded")
        pid, state, code = (pattern.search(done.out) for pattern in (_PID, _STATE, _EXIT))
        if pid is not None:
            return Report("running", int(pid[1]))
        if code is not None and code[1] not in ("0", "(never exited)"):
            return Report("failed", 0, f"exit code {code[1]}")
        return Report("starting" if state is not None and "spawn" in state[1] else "stopped")

    def advice(self) -> str:
        """A LaunchAgent runs while its user is logged in; programs that need a keychain have no alternative."""
        return "It starts when you log in."

    def _launchctl(self, *arguments: str, may_fail: bool = False) -> str:
        done = self._run(("launchctl", *arguments))
        if done.code and not may_fail:
            raise CodeButlerError(f"`launchctl {' '.join(arguments)}` failed: {done.err or done.out}")
        return done.out


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
