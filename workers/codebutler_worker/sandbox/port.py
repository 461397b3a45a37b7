"""Sandbox: how to start a program so that it touches only what its policy names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from codebutler_worker.sandbox.pins import PinHold


@dataclass(frozen=True, slots=True)
class ProxySocket:
    """The only way out of a namespace without network. ``path`` is a Unix socket: the program's launcher sends the
    listening sockets it created inside over it, one on 127.0.0.1:``port``, which is the proxy that decides about each
    host, and one for each of ``others``, which are ports on this machine's own loopback. Those that cannot be bound
    inside are left out."""

    path: Path
    port: int
    others: tuple[int, ...] = ()

    @property
    def ports(self) -> str:
        """All ports, for a command line."""
        return ",".join(map(str, (self.port, *self.others)))


Network = Literal["none", "open"] | ProxySocket
"""What a program reaches: nothing, what a proxy allows, or the whole network of this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxPolicy:
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


def environment(policy: SandboxPolicy) -> dict[str, str]:
    """The program's whole environment: the policy's, its HOME, and PWD, which bubblewrap sets too."""
    return {**policy.env, "HOME": str(policy.home), "PWD": str(policy.workdir)}


class Enclosure(Protocol):
    """The limits around one program, from before its start until after its end."""

    @property
    def container(self) -> str:
        """The name of the container that the program runs in, "" if none."""

    def enter(self, argv: tuple[str, ...]) -> tuple[str, ...]:
        """The command that enters the enclosure and becomes ``argv``."""

    def struck(self) -> str:
        """One line for people about the limit that was reached, empty if none was."""

    async def burst(self) -> None:
        """Kill everything inside now, if killing the first program does not."""

    async def close(self) -> None:
        """Kill everything left inside and remove the enclosure."""


@dataclass(frozen=True, slots=True)
class Launch:
    """What to execute: the wrapped argv, and the (scrubbed) environment for the wrapper itself.

    ``enclose`` sets the limits around the program; it raises SandboxUnavailableError if it cannot (then nothing may
    start). ``guard`` starts to watch the paths that protect others from it. None: nothing to do. ``ends_whole``: once
    its first process has ended, the kernel ends all that this started.
    """

    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: Path
    enclose: Callable[[], Awaitable[Enclosure]] | None = None
    guard: Callable[[], PinHold] | None = None
    ends_whole: bool = False


class Sandbox(ABC):
    """One way to sandbox programs. One that outlives them (a container per conversation) has limits of its own."""

    name: str

    @property
    def told(self) -> str:
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
