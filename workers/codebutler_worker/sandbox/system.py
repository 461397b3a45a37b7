"""What of this machine a program in a sandbox may see: the system's layout, looked up once, and a policy resolved on
disk.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

from msgspec import Struct, field

from codebutler.domain.errors import SandboxUnavailableError
from codebutler_worker.sandbox.destinations import UnsafePathError, area_of, status_beneath
from codebutler_worker.sandbox.port import Network, SandboxPolicy

if TYPE_CHECKING:
    from codebutler_worker.sandbox.checkout import Checkout

# Everything else (homes, /srv, /var, /mnt, …) does not exist inside.
SYSTEM_ROOTS = tuple(
    map(
        Path,
        [
            "/usr",
            "/bin",
            "/sbin",
            "/lib",
            "/lib32",
            "/lib64",
            "/libx32",
            "/etc",
            "/opt",
            "/nix",
            "/gnu",
            "/snap",
        ],
    )
)
# Never from PATH: an agent can put a `bwrap` into a repository, and that may be in a shell's PATH.
PROGRAM_DIRECTORIES = tuple(
    map(Path, ["/usr/bin", "/bin", "/usr/local/bin", "/run/wrappers/bin", "/run/current-system/sw/bin"])
)

# About the whole machine, not only the sandbox: keys, timers, kernel addresses. Most are readable by root only, and no
# agent is root. Docker hides them in its containers too.
TELLING = (
    "kcore", "keys", "key-users", "timer_list", "sched_debug", "latency_stats", "slabinfo", "vmallocinfo", "kpagecount",
    "kpageflags", "kpagecgroup", "kmsg", "iomem", "ioports", "mtrr",
)  # fmt: skip


class SystemLayout(Struct, frozen=True, kw_only=True):
    """What to show and to hide of the system. ``roots``: directories to show read-only; ``links``: (path, target) of
    those that are symbolic links; ``masked``: files and directories in them that not everybody may read; ``telling``:
    files in which the kernel reveals facts about the whole machine; ``resolver``: the target of /etc/resolv.conf, if
    that is elsewhere."""

    uid: int
    gid: int
    bwrap: Path
    setpriv: Path | None = None
    perl: Path | None = None
    python: Path | None = None
    roots: tuple[Path, ...] = ()
    links: tuple[tuple[Path, str], ...] = ()
    masked_files: tuple[Path, ...] = ()
    masked_directories: tuple[Path, ...] = ()
    telling: tuple[Path, ...] = ()
    resolver: Path | None = None


def find_program(name: str) -> Path | None:
    """The absolute path of an installed system program."""
    return next((d / name for d in PROGRAM_DIRECTORIES if os.access(d / name, os.X_OK)), None)


def find_setpriv() -> Path | None:
    """util-linux's setpriv: BusyBox has a different program of that name."""
    found = find_program("setpriv")
    return found if found is not None and found.resolve().name == "setpriv" else None


def inspect_system(bwrap: Path) -> SystemLayout:
    """Inspect the machine. Walks /etc once."""
    links = tuple((root, str(root.readlink())) for root in SYSTEM_ROOTS if root.is_symlink())
    roots = tuple(root for root in SYSTEM_ROOTS if root.is_dir() and not root.is_symlink())
    masked = list(_unreadable(Path("/etc")))
    resolver = Path("/etc/resolv.conf").resolve()
    return SystemLayout(
        uid=os.getuid(),
        gid=os.getgid(),
        bwrap=bwrap,
        setpriv=find_setpriv(),
        perl=perl.resolve() if (perl := find_program("perl")) else None,
        python=python.resolve() if (python := find_program("python3")) else None,
        roots=roots,
        links=links,
        masked_files=tuple(path for path in masked if not path.is_dir()),
        masked_directories=tuple(path for path in masked if path.is_dir()),
        telling=tuple(path for name in TELLING if (path := Path("/proc") / name).is_file()),
        resolver=resolver if resolver.is_file() and not _below(resolver, roots) else None,
    )


def _unreadable(directory: Path) -> Iterator[Path]:
    """What we may read but not everybody may. In a user namespace files keep their owner and group."""
    try:
        entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        mode = entry.stat(follow_symlinks=False).st_mode
        if entry.is_dir(follow_symlinks=False):
            if mode & stat.S_IXOTH and mode & stat.S_IROTH:
                yield from _unreadable(Path(entry.path))
            elif os.access(entry.path, os.R_OK) or os.access(entry.path, os.X_OK):
                yield Path(entry.path)
        elif stat.S_ISREG(mode) and not mode & stat.S_IROTH and os.access(entry.path, os.R_OK):
            yield Path(entry.path)


def _below(path: Path, roots: tuple[Path, ...]) -> bool:
    return any(path.is_relative_to(root) for root in roots)


def status_without_links(root: Path, path: Path) -> os.stat_result:
    """Raises SandboxUnavailableError if ``path`` is missing or goes through a symbolic link below ``root``."""
    try:
        found = status_beneath(root, str(path.relative_to(root)))
    except UnsafePathError as error:
        raise SandboxUnavailableError(
            f"{path} goes through a symbolic link: name its target instead"
        ) from error
    if found is None:
        raise SandboxUnavailableError(f"{path} is gone: find where it was moved, and put it back")
    return found


class Inside(Struct, frozen=True, kw_only=True):
    """A SandboxPolicy resolved on disk: every path exists.

    ``readable`` pairs a path with its target; ``hidden`` are directories to show empty wherever they appear; ``env`` is
    the program's whole environment: the policy's, its HOME, and PWD, which bubblewrap sets too. ``inner_env`` are
    those variables that must not reach the wrapper itself. ``scratch_bytes``: the size of each private directory
    (0 = no limit of ours); ``filter_fd``: the descriptor of the system call filter.
    """

    home: Path
    home_paths: tuple[Path, ...] = ()
    readable: tuple[tuple[Path, Path], ...] = ()
    hidden: tuple[Path, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    inner_env: Mapping[str, str] = field(default_factory=dict)
    network: Network = "open"
    own_terminal: bool = False
    scratch_bytes: int = 0
    filter_fd: int | None = None


class MachineView(Struct, frozen=True):
    """Which parts of this machine agents may see. ``hidden`` are directories that no agent may see, wherever they are:
    above all the supervisor's home. ``readable`` are directories outside the repository that every agent may read."""

    hidden: tuple[Path, ...]
    readable: tuple[Path, ...]

    @classmethod
    def of(cls, hidden: tuple[Path, ...], readable: tuple[Path, ...]) -> Self:
        """A view with the ``hidden`` directories that exist."""
        return cls(tuple(path.resolve() for path in hidden if path.is_dir()), readable)

    def inside(self, argv: tuple[str, ...], policy: SandboxPolicy, checkout: Checkout) -> Inside:
        """``policy`` resolved on disk; skips what does not exist. The program itself need not be named in it.

        Raises SandboxUnavailableError for a symbolic link, or a path outside the home.
        """
        for path in (path for path in self.hidden if path.is_relative_to(checkout.root)):
            status_without_links(checkout.root, path)
        home = policy.home.resolve()
        home_paths = []
        for path in policy.home_paths:
            if not path.is_relative_to(policy.home) or path == policy.home:
                raise SandboxUnavailableError(f"{path} is not below the home directory {policy.home}")
            if path.exists():
                home_paths.append(home / path.relative_to(policy.home))
                status_without_links(home, home_paths[-1])
        program = (Path(argv[0]),) if Path(argv[0]).is_absolute() else ()
        named = [path.absolute() for path in (*policy.readable, *self.readable, *program) if path.exists()]
        # Paths in the agent's own directories are visible anyway, and a planted link would expose its target.
        written = (policy.workdir, *policy.home_paths)
        return Inside(
            home=home,
            home_paths=tuple(home_paths),
            readable=tuple((path, path.resolve()) for path in named if not area_of(path, written)),
            hidden=self.hidden,
            env={**policy.env, "HOME": str(policy.home), "PWD": str(policy.workdir)},
            network=policy.network,
            own_terminal=policy.own_terminal,
            scratch_bytes=policy.scratch_bytes,
        )


def refuse_too_wide(inside: Inside, checkout: Checkout, roots: Sequence[Path]) -> None:
    """Raises SandboxUnavailableError for a repository that contains the home or one of the system's ``roots``, or that
    is inside the agent's own directories."""
    for path in (inside.home, *roots):
        if path.is_relative_to(checkout.root):
            raise SandboxUnavailableError(
                f"{checkout.root} contains {path}: register a directory below it instead"
            )
    for path in inside.home_paths:
        if checkout.root.is_relative_to(path):
            raise SandboxUnavailableError(
                f"{checkout.root} is inside the agent's own {path}: move it elsewhere"
            )
