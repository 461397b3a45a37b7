"""A user service: its description, and the port to a service manager (systemd, launchd)."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol

from msgspec import Struct

from codebutler.domain.errors import CodeButlerError

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
