"""View: what shows of the machine behind the walls, whatever is worked on: what a policy names, looked up on disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from codebutler.domain.errors import SandboxUnavailableError
from codebutler_worker.sandbox.checkout import Checkout
from codebutler_worker.sandbox.destinations import UnsafePathError, status_beneath
from codebutler_worker.sandbox.port import Network, SandboxPolicy

# The paths that a policy names, looked up on disk.


def home_paths(policy: SandboxPolicy) -> tuple[Path, ...]:
    """Those that exist, where they really are. Raises SandboxUnavailableError for a link or one outside the home."""
    home = policy.home.resolve()
    kept = []
    for path in policy.home_paths:
        if not path.is_relative_to(policy.home) or path == policy.home:
            raise SandboxUnavailableError(f"{path} is not below the home directory {policy.home}")
        if path.exists():
            kept.append(home / path.relative_to(policy.home))
            _refuse_links(home, kept[-1])
    return tuple(kept)


def toolchains(named: Sequence[str], home: Path, hidden: Sequence[Path]) -> tuple[Path, ...]:
    """The directories of ``sandbox.readable``; one that is not there may come later.

    Raises SandboxUnavailableError for one that is more than a toolchain: it holds the home, or what no agent may see.
    """
    found = tuple(home / name[2:] if name.startswith("~/") else Path(name) for name in named)
    for name, path in zip(named, found, strict=True):
        real = path.resolve()
        for kept in (home.resolve(), *(each.resolve() for each in hidden)):
            if kept.is_relative_to(real):
                raise SandboxUnavailableError(
                    f"sandbox.readable: {name} holds {kept}, which is not for agents: name a directory below it"
                )
        if any(real.is_relative_to(each.resolve()) for each in hidden):
            raise SandboxUnavailableError(f"sandbox.readable: {name} is CodeButler's own: take it out")
    return found


def readable(argv: tuple[str, ...], policy: SandboxPolicy, more: tuple[Path, ...] = ()) -> list[Path]:
    """What is named, by the policy or by ``more``, and exists; the program itself need not be named.

    Not what lies where the agent writes: it shows anyway, and a link planted there would show its target.
    """
    program = (Path(argv[0]),) if Path(argv[0]).is_absolute() else ()
    written = (policy.workdir, *policy.home_paths)
    return [
        path.absolute()
        for path in (*policy.readable, *more, *program)
        if path.exists() and not any(path.absolute().is_relative_to(place) for place in written)
    ]


def _refuse_links(root: Path, path: Path) -> None:
    """Raises SandboxUnavailableError if ``path`` is gone or goes through a symbolic link below ``root``."""
    try:
        if status_beneath(root, str(path.relative_to(root))) is None:
            raise SandboxUnavailableError(f"{path} is gone: look where it was moved, and put it back")
    except UnsafePathError as error:
        raise SandboxUnavailableError(
            f"{path} goes through a symbolic link: name its target instead"
        ) from error


# View: what shows of the machine behind the walls, whatever is worked on.


@dataclass(frozen=True, slots=True, kw_only=True)
class Inside:
    """A SandboxPolicy looked up on disk: every path exists.

    ``readable`` pairs a path with what it resolves to; ``hidden`` are directories to empty wherever they would
    show; ``env`` is only what must not reach the wrapper itself; ``scratch_bytes``: how much fits into each private
    directory (0 = no limit of ours); ``filter_fd``: where the filter of system calls is read from.
    """

    home: Path
    home_paths: tuple[Path, ...] = ()
    readable: tuple[tuple[Path, Path], ...] = ()
    hidden: tuple[Path, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    network: Network = "open"
    own_terminal: bool = False
    scratch_bytes: int = 0
    filter_fd: int | None = None

    @property
    def named(self) -> tuple[Path, ...]:
        """What is shown of this machine because the policy names it."""
        return (*self.home_paths, *(real for _, real in self.readable))


@dataclass(frozen=True, slots=True)
class View:
    """``hidden`` are directories no agent may see wherever they lie: the supervisor's home above all; ``readable``
    those outside the repository that each may read."""

    hidden: tuple[Path, ...]
    readable: tuple[Path, ...]

    @classmethod
    def of(cls, hidden: tuple[Path, ...], readable: tuple[Path, ...]) -> Self:
        """With those to hide that are there."""
        return cls(tuple(path.resolve() for path in hidden if path.is_dir()), readable)

    def inside(self, argv: tuple[str, ...], policy: SandboxPolicy, checkout: Checkout) -> Inside:
        """``policy`` looked up on disk; what does not exist is left out. Raises SandboxUnavailableError for a
        symbolic link."""
        for path in (path for path in self.hidden if path.is_relative_to(checkout.root)):
            _refuse_links(checkout.root, path)
        return Inside(
            home=policy.home.resolve(),
            home_paths=home_paths(policy),
            readable=tuple((path, path.resolve()) for path in readable(argv, policy, self.readable)),
            hidden=self.hidden,
            network=policy.network,
            own_terminal=policy.own_terminal,
            scratch_bytes=policy.scratch_bytes,
        )
