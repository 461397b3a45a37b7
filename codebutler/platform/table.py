"""What /proc tells of processes, for telling whose they are. Linux; elsewhere nothing is found."""

from __future__ import annotations

import contextlib
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


def below(root: int) -> int:
    """How many processes ``root`` has begun, and those have begun in their turn (proc_pid_task(5), children)."""
    count, ahead = 0, [root]
    while ahead:
        found = [pid for pid in _children(ahead.pop()) if seen(pid)]
        count += len(found)
        ahead += found
    return count


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        files = list((PROC / str(pid) / "task").glob("*/children"))
        return [int(child) for file in files for child in file.read_text().split()]
    return []


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
