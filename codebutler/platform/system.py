"""OperatingSystem: everything that differs between the systems we run on, and the port to its service manager (systemd,
launchd). No other code asks which one this is."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from msgspec import Struct

from codebutler.domain.errors import CodeButlerError

if TYPE_CHECKING:
    from codebutler.platform.linux import NameWatch

SandboxName = Literal["bwrap", "docker", "seatbelt"]
RUN_S = 60.0
ServiceState = Literal["absent", "starting", "running", "stopped", "failed"]


class NameEvent(NamedTuple):
    """A change. ``gone``: the name, or the whole directory, no longer exists. ``unsure``: anything may have happened,
    in any directory. ``whole``: the directory itself is no longer watched."""

    directory: Path | None
    name: str
    gone: bool = False
    whole: bool = False
    unsure: bool = False


class ProcessEntry(NamedTuple):
    """A process: its parent's pid, and when it started, which identifies a reused pid: letters and digits only."""

    parent: int
    started: str


class ProcessUse(NamedTuple):
    """The resources of a process: its memory (None: unknown), and how many processes it and its descendants have
    started."""

    memory_bytes: int | None
    programs: int


class Untried(NamedTuple):
    """A part that has never run on this system, and how it is checked instead."""

    part: str
    checked: str


class ServiceReport(Struct, frozen=True):
    """The state of the service. ``pid`` is 0 without a process; ``text``: its own status, or why it failed."""

    state: ServiceState
    pid: int = 0
    text: str = ""


class ProgramResult(Struct, frozen=True):
    """A program's result."""

    code: int
    out: str = ""
    err: str = ""


Run = Callable[[Sequence[str]], ProgramResult]


class ServiceManager(Protocol):
    """A service manager. ``file`` describes the service. All methods raise CodeButlerError with a line that says what
    to do."""

    file: Path

    def install(self) -> None:
        """Write ``file``, enable the service and start it; replaces an installed one."""

    def uninstall(self) -> bool:
        """Stop and remove the service; False if there was none."""

    def report(self) -> ServiceReport:
        """The service's current state."""

    def advice(self) -> str:
        """What is left to do so that it runs without a login; "" if nothing."""


def run_program(argv: Sequence[str]) -> ProgramResult:
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


class OperatingSystem(Protocol):
    """The operating system. ``socket_path_bytes``: how long the path of a Unix socket may be. ``sandboxes``: those that
    ``sandbox.mode`` auto tries, in this order; there are no others here. ``native_containers``: containers run on our
    kernel. ``opens_pages``: there is a browser, whatever the environment says. ``restores_signals``: a command that
    runs its arguments with the default handling of a terminal's signals. ``untried``: parts that never ran here. All of
    it blocks.
    """

    name: str
    socket_path_bytes: int
    sandboxes: tuple[SandboxName, ...]
    native_containers: bool
    opens_pages: bool
    restores_signals: tuple[str, ...]
    untried: tuple[Untried, ...]

    # Processes

    def seen(self, pids: Collection[int] | None = None) -> dict[int, ProcessEntry]:
        """Those of ``pids`` that exist, by pid, except zombies; None: every process."""

    def children(self, pid: int) -> list[int]:
        """The processes that it has started itself."""

    def use_of(self, pids: Collection[int]) -> dict[int, ProcessUse]:
        """The resources of those ``pids`` that exist."""

    def carrying(self, variable: str) -> dict[int, tuple[str, str]]:
        """pid -> (when it started, value) of each process that began with this variable in its environment; empty if
        the system does not show environments."""

    def at_terminal(self, program: str) -> list[Path]:
        """The working directories of the processes of this name that have a terminal."""

    def pid_namespace(self) -> int:
        """The namespace that our pids belong to: a pid from a container is a different process outside."""

    def handle(self, pid: int) -> int | None:
        """A descriptor that stays valid if the pid is reused and is readable once the process has ended; None if there
        is no such thing, or no such process."""

    def send(self, handle: int, number: int) -> None:
        """Send a signal to the process of a handle. Raises OSError."""

    # Files and sockets

    def sync(self, descriptor: int) -> None:
        """Return once the file or directory is on disk, not only in the drive's cache. Raises OSError."""

    def has_access_list(self, directory: Path) -> bool:
        """Whether an access control list, and not the mode alone, decides who may enter."""

    def name_watch(self) -> NameWatch:
        """Tells when names in directories change. Raises OSError if that is not possible now, or never here."""

    def open_beneath(self, directory: int, relative: str, flags: int) -> int:
        """A descriptor for a path below an open directory, without a link on the way. Raises NotImplementedError if the
        kernel cannot do it in one call, and OSError."""

    def unwritable(self, content: bytes, owner: object) -> str:
        """A path at which ``content`` can be read but not changed, as long as ``owner`` lives."""

    def peer_uid(self, sock: socket.socket) -> int:
        """The user on the other side of a Unix socket. Raises OSError."""

    # The user's session

    def manager(self, service: ServiceSpec, env: Mapping[str, str], run: Run) -> tuple[ServiceManager, str]:
        """The service manager, and the text that describes the service to it. Raises CodeButlerError if there is
        none."""

    def keychain_has(self, service: str) -> bool:
        """Whether the user's keychain holds a password for it, which is not read."""


@cache
def this_system() -> OperatingSystem:
    """The system that this process runs on."""
    if sys.platform == "darwin":
        from codebutler.platform.macos import MacOS

        return MacOS()
    from codebutler.platform.linux import Linux

    return Linux()
