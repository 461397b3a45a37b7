"""What /proc tells of processes, for telling whose they are. Linux; elsewhere nothing is found."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")


class Seen(NamedTuple):
    """A process: its parent's pid, and when it began, in ticks since boot, which tells a reused pid."""

    parent: int
    started: str


def pids() -> list[int]:
    """Every process there is at the moment."""
    return [int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit()]


def seen(pid: int) -> Seen | None:
    """The process (proc_pid_stat(5), fields 4 and 22); None if there is none, or only its remains."""
    with contextlib.suppress(OSError):
        fields = (PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
        return None if fields[0] == "Z" else Seen(int(fields[1]), fields[19])
    return None


def below(roots: Collection[int]) -> dict[int, int]:
    """How many processes each of ``roots`` has begun, and those have begun in their turn; in one look."""
    parents = {pid: found.parent for pid in pids() if (found := seen(pid))} if PROC.is_dir() else {}
    counts = dict.fromkeys(roots, 0)
    for pid in parents:
        above, known = parents.get(pid), {pid}
        while above in parents and above not in known and above not in counts:
            known.add(above)
            above = parents[above]
        if above in counts:
            counts[above] += 1
    return counts


def variable_of(pid: int, name: str) -> str:
    """The variable in the environment with which the process began; "" without it, or if we may not look."""
    wanted = f"{name}=".encode()
    with contextlib.suppress(OSError):
        for variable in (PROC / str(pid) / "environ").read_bytes().split(b"\0"):
            if variable.startswith(wanted):
                return variable.removeprefix(wanted).decode(errors="replace")
    return ""


def pid_namespace() -> int:
    """Which processes our pids name: a pid out of a container means another process outside of it."""
    space = PROC / "self" / "ns" / "pid"
    return space.stat().st_ino if space.exists() else 0
