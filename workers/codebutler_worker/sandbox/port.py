"""Sandbox: how to start a program so that it touches only what its policy names.

With the names of what a sandbox makes, which say whose it is, and the shell that tests it before anything else starts
in it.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from msgspec import Struct, field

from codebutler.config.git_repo import ORDINARY_ID, RUN_AS_USER
from codebutler.domain.errors import SandboxUnavailableError
from codebutler.platform.system import this_system

if TYPE_CHECKING:
    from codebutler_worker.sandbox.pins import PinHold

PREFIX = "codebutler-"
"""Of a group, container or program: the rest of its name says which worker made it, so we can tell if that is gone."""
TRIAL_S = 20.0
OPEN = "/tmp"  # noqa: S108 - a private directory is made in it
ALONE = (
    "CodeButler runs as root where there is no other user (a container without user ids of its own?), "
    f"and agents do not run as root: {RUN_AS_USER}"
)
PASSED = "written"
"""All that the shell prints if the sandbox works."""


class ProxySocket(Struct, frozen=True):
    """The only way out of a namespace without network. ``path`` is a Unix socket: the program's launcher sends the
    listening sockets it created inside over it, one on 127.0.0.1:``port``, which is the proxy that decides about each
    host, and one for each of ``others``, which are ports on this machine's own loopback. Those that cannot be bound
    inside are left out."""

    path: Path
    port: int
    others: tuple[int, ...] = ()


Network = Literal["none", "open"] | ProxySocket
"""What a program reaches: nothing, what a proxy allows, or the whole network of this machine."""


class SandboxPolicy(Struct, frozen=True, kw_only=True):
    """What a program may see and change. Everything not named is read-only or hidden.

    ``home`` is the HOME the program gets; ``home_paths`` are the paths below it (a CLI's login and sessions) that stay
    visible and writable. ``env`` is the whole environment: nothing is inherited. ``own_terminal``: it starts on a
    terminal made only for it, and may control it. ``conversation``: the one it runs for, "" = none; a sandbox that
    outlives a program belongs to one conversation. ``scratch_bytes``: the size of each private directory, which is in
    memory (0 = the kernel's limit). ``filling``: our own git fills an empty ``workdir``, including paths that git's
    configuration names and that are not pinned yet.
    """

    workdir: Path
    home: Path
    home_paths: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    network: Network = "open"
    own_terminal: bool = False
    conversation: str = ""
    scratch_bytes: int = 0
    filling: bool = False


class Enclosure(Protocol):
    """The limits around one program, from before its start until after its end."""

    @property
    def container(self) -> str:
        """The name of the container that the program runs in, "" if none."""

    def limit_reached(self) -> str:
        """One line for people about the limit that was reached, empty if none was."""

    async def kill_all(self) -> None:
        """Kill everything inside now, if killing the first program does not."""

    async def close(self) -> None:
        """Kill everything left inside and remove the enclosure."""


Enclose = Callable[[tuple[str, ...]], Awaitable[tuple[Enclosure, tuple[str, ...]]]]


class Launch(Struct, frozen=True):
    """What to execute: the wrapped argv, and the (scrubbed) environment for the wrapper itself.

    ``enclose`` sets the limits around the program, and returns them with the command that enters them and becomes the
    given one; it raises SandboxUnavailableError if it cannot (then nothing may start). ``guard`` starts to watch the
    paths that protect others from it. None: nothing to do. ``ends_whole``: once its first process has ended, the kernel
    ends all that this started.
    """

    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: Path
    enclose: Enclose | None = None
    guard: Callable[[], PinHold] | None = None
    ends_whole: bool = False


class Sandbox(ABC):
    """One way to sandbox programs. One that outlives them (a container per conversation) has limits of its own."""

    name: str

    @property
    def own_limits(self) -> str:
        """Its own limits, in one line; "" if it has none."""
        return ""

    @abstractmethod
    def wrap(self, argv: tuple[str, ...], policy: SandboxPolicy) -> Launch:
        """Raises SandboxUnavailableError if the policy cannot be enforced (then nothing may start)."""

    @abstractmethod
    async def self_test(self) -> None:
        """Really start a program. Raises SandboxUnavailableError with what to do."""

    async def release(self, conversation: str) -> None:  # noqa: B027 - most keep nothing
        """The conversation is over: remove what was kept for it."""

    async def sweep(self) -> int:
        """Remove what workers that no longer run left behind; returns how much."""
        return 0

    async def close(self) -> None:  # noqa: B027 - most keep nothing
        """Remove everything that this worker has created."""


def owned_name() -> str:
    """``codebutler-<pid namespace>-<our pid>-<our start time>-<random>``, so that the owner can be checked later."""
    return f"{_owner(os.getpid())}-{secrets.token_hex(8)}"


@cache
def _owner(pid: int) -> str:
    """What the names that a process makes begin with."""
    return f"{PREFIX}{this_system().pid_namespace()}-{pid}-{_start_time(pid)}"


def ownerless(name: str) -> bool:
    """True if owned_name made ``name`` in a process of our pid namespace that no longer exists."""
    parts = name.removeprefix(PREFIX).split("-")
    if not name.startswith(PREFIX) or len(parts) != 4:
        return False
    space, pid, started, _ = parts
    return (
        space == str(this_system().pid_namespace()) and pid.isdecimal() and _start_time(int(pid)) != started
    )


def _start_time(pid: int) -> str:
    """Clock ticks since boot, "" if there is no such process."""
    found = this_system().seen([pid]).get(pid)
    return found.started if found else ""


class TrialDirectories(Struct, frozen=True):
    """The shell's working directory, a file outside that it must not reach, and a home that does not exist."""

    workdir: Path
    outside: Path
    home: Path


@contextmanager
def trial_directories() -> Iterator[TrialDirectories]:
    """Such directories for this block; if we are root, owned by an ordinary user: the kernel may let only root build
    the sandbox."""
    root = os.geteuid() == 0
    # Root's own directory for temporary files may be out of reach for other users.
    with tempfile.TemporaryDirectory(prefix="codebutler-self-test-", dir=OPEN if root else None) as directory:
        base = Path(directory).resolve()
        found = TrialDirectories(base / "work", base / "outside", base / "home")
        found.workdir.mkdir()
        if root:
            base.chmod(0o711)
            _give_away(found.workdir)
        found.outside.write_text("outside\n", encoding="utf-8")
        yield found


def _give_away(workdir: Path) -> None:
    try:
        os.chown(workdir, ORDINARY_ID, ORDINARY_ID)
    except OSError as error:  # EINVAL: a user namespace that maps no other user
        raise SandboxUnavailableError(ALONE) from error


async def trial_failure(launch: Launch) -> str:
    """Why the shell failed, in one line; "" if it passed."""
    code, output = await _run(launch)
    said = output.strip()
    if code == 0 and said == PASSED:
        return ""
    return said.splitlines()[-1] if said else f"exit code {code}"


async def _run(launch: Launch) -> tuple[int, str]:
    try:
        process = await asyncio.create_subprocess_exec(
            *launch.argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd=launch.cwd,
            env=launch.env,
        )
    except OSError as error:
        return 126, str(error)
    try:
        async with asyncio.timeout(TRIAL_S):
            output, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return 124, f"no answer within {TRIAL_S:g} s"
    return process.returncode or 0, output.decode(errors="replace")
