"""The port to a service manager, and how its programs are run."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from codebutler.domain.errors import CodeButlerError

NO_SESSION = (
    "your service manager cannot be reached: log in as this user (not through su or sudo), "
    "or run `loginctl enable-linger` once and log in again"
)
RUN_S = 60.0
State = Literal["absent", "starting", "running", "stopped", "failed"]


@dataclass(frozen=True, slots=True)
class Report:
    """``pid`` is 0 while there is no process; ``text``: what it says of itself, or why it failed."""

    state: State
    pid: int = 0
    text: str = ""


@dataclass(frozen=True, slots=True)
class Ran:
    """What became of a program."""

    code: int
    out: str = ""
    err: str = ""


Run = Callable[[Sequence[str]], Ran]


class Manager(Protocol):
    """``file`` is what describes the service. All raise CodeButlerError with a line that says what to do."""

    file: Path

    def install(self) -> None:
        """Write ``file``, switch the service on and begin to start it; what was installed is replaced."""

    def uninstall(self) -> bool:
        """Stop the service and take it away; False if there was none."""

    def report(self) -> Report:
        """How the service is now."""

    def advice(self) -> str:
        """What is left to do so that it runs without anybody being logged in; "" if nothing."""


def run(argv: Sequence[str]) -> Ran:
    """Run a program to its end. Raises CodeButlerError if it is absent or takes too long."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=RUN_S, stdin=subprocess.DEVNULL)
    except FileNotFoundError:
        raise CodeButlerError(
            f"{argv[0]} is not installed: keep `codebutler supervise` running by other means"
        ) from None
    except subprocess.TimeoutExpired:
        raise CodeButlerError(f"`{' '.join(argv)}` took longer than {RUN_S:g} s") from None
    return Ran(done.returncode, done.stdout.strip(), done.stderr.strip())
