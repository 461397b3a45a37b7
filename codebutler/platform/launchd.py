"""A LaunchAgent: its property list, and its installation.

Sources: launchd.plist(5), launchctl(1). The tests check the text and the calls, but never run it on macOS.
"""

from __future__ import annotations

import os
import plistlib
import re
from collections.abc import Mapping
from pathlib import Path

from codebutler.domain.errors import CodeButlerError
from codebutler.platform.service import Report, Run, ServiceSpec

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
