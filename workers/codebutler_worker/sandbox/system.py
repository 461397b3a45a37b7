"""The layout of this machine, looked up once: the directories that hold programs, and what to mask in them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

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
