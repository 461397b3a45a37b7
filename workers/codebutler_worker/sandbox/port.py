"""Sandbox: how a program is started so that it touches only what its policy names."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

from codebutler_worker.sandbox.pins import PinHold


@dataclass(frozen=True, slots=True)
class ProxySocket:
    """The only way out of a namespace without network: ``path`` is a Unix socket over which what starts the program
    hands out the listening sockets it made inside: on 127.0.0.1:``port``, where who answers decides about each host,
    and on ``others``, which are ports of this machine's own loopback. One of these that cannot be had inside is left
    out.
    """

    path: Path
    port: int
    others: tuple[int, ...] = ()

    @property
    def ports(self) -> str:
        """All of them, for a command line."""
        return ",".join(map(str, (self.port, *self.others)))


Network = Literal["none", "open"] | ProxySocket
"""What a program reaches: nothing, what a proxy lets through, or whatever this machine reaches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxPolicy:
    """What a program may see and change. Everything not named is read-only or hidden.

    ``home`` is the HOME the program gets; ``home_paths`` are the paths below it (a CLI's login and sessions)
    that stay visible and writable. ``env`` is the whole environment: nothing is inherited. ``own_terminal``: it
    is started on a terminal made for it alone, and may control that one. ``conversation``: whose turn it belongs to, ""
    = none; walls that last longer than a program are one conversation's. ``scratch_bytes``: how much fits into each
    directory that is made for it alone, which lies in memory (0 = as much as the kernel lets). ``filling``: it is git
    of ours that fills an empty ``workdir``, also with what git's configuration names there, which is not pinned yet.
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
    """The program's whole environment: what the policy gives, its HOME, and PWD, which bubblewrap sets too."""
    return {**policy.env, "HOME": str(policy.home), "PWD": str(policy.workdir)}


class Enclosure(Protocol):
    """The limits around one program, from before its start to after its end."""

    @property
    def container(self) -> str:
        """The name of the container that the program is in, "" if it is in none."""

    def enter(self, argv: tuple[str, ...]) -> tuple[str, ...]:
        """The command that goes inside and becomes ``argv``."""

    def struck(self) -> str:
        """One line for people about the limit that was reached, empty if none was."""

    async def burst(self) -> None:
        """Kill what is inside now, where killing its first program does not."""

    async def close(self) -> None:
        """Kill whatever is left inside and remove the enclosure."""


@dataclass(frozen=True, slots=True)
class Launch:
    """What to execute: the wrapped argv, and the environment for the wrapper itself (scrubbed).

    ``enclose`` makes the limits around the program; it raises SandboxUnavailableError if they cannot be set (then
    nothing may be started). ``guard`` begins to look after what protects others from it. None: there is nothing to do.
    """

    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: Path
    enclose: Callable[[], Awaitable[Enclosure]] | None = None
    guard: Callable[[], PinHold] | None = None


class Sandbox(Protocol):
    """One way to build walls."""

    name: str

    def wrap(self, argv: tuple[str, ...], policy: SandboxPolicy) -> Launch:
        """Raises SandboxUnavailableError if the policy cannot be kept (then nothing may be started)."""

    async def self_test(self) -> None:
        """Start something really. Raises SandboxUnavailableError with what to do."""


@runtime_checkable
class Lasting(Sandbox, Protocol):
    """Walls that stand between programs, too, and have limits of their own: a container for each conversation."""

    @property
    def told(self) -> str:
        """Those limits, in one line."""

    async def release(self, conversation: str) -> None:
        """The conversation is over: what was kept for it goes."""

    async def sweep(self) -> int:
        """Remove what workers that are no more left; how much that was."""

    async def close(self) -> None:
        """Remove everything of this worker."""
