"""Processes: what /proc tells of others (Linux; elsewhere nothing is found), and settings of our own."""

from __future__ import annotations

import resource
import sys
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
HANDOVER_S = 0.0005
LARGE_BYTES = 2**18
ALLOCATOR_VARIABLES = (("MALLOC_MMAP_THRESHOLD_", str(LARGE_BYTES)),)
"""Left to itself glibc raises the size from which freed memory goes back to the system to 32 MB with the first large
file that passes through, and from then on each thread that handles another one keeps its memory (mallopt(3),
M_MMAP_THRESHOLD). These are for a process that is yet to start. Other C libraries have neither the habit nor the
setting."""
_M_MMAP_THRESHOLD = -3


class ProcessEntry(NamedTuple):
    """A process: its parent's pid, and when it began, in ticks since boot, which tells a reused pid."""

    parent: int
    started: str


def pids() -> list[int]:
    """Every process there is at the moment."""
    return [int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit()]


def seen(pid: int) -> ProcessEntry | None:
    """The process (proc_pid_stat(5), fields 4 and 22); None if there is none, or only its remains."""
    with suppress(OSError):
        fields = (PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
        return None if fields[0] == "Z" else ProcessEntry(int(fields[1]), fields[19])
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
    with suppress(OSError):
        files = list((PROC / str(pid) / "task").glob("*/children"))
        return [int(child) for file in files for child in file.read_text().split()]
    return []


def variable_of(pid: int, name: str) -> str:
    """The variable in the environment with which the process began; "" without it, or if we may not look."""
    wanted = f"{name}=".encode()
    with suppress(OSError):
        for variable in (PROC / str(pid) / "environ").read_bytes().split(b"\0"):
            if variable.startswith(wanted):
                return variable.removeprefix(wanted).decode(errors="replace")
    return ""


def pid_namespace() -> int:
    """Which processes our pids name: a pid out of a container means another process outside of it."""
    space = PROC / "self" / "ns" / "pid"
    return space.stat().st_ino if space.exists() else 0


def disable_core_dumps() -> None:
    """For this process and all that it starts: no core dump, whatever the session's limits are (core(5))."""
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def shorten_switch_interval() -> None:
    """Let a thread that waits for the interpreter have it after HANDOVER_S, for the whole process.

    Python's own 5 ms are made for throughput. Here each step of a message goes from the loop to the thread of a
    store and back, and waited them out while the loop was at something else.
    """
    sys.setswitchinterval(HANDOVER_S)


def return_large_blocks() -> None:
    """What ``ALLOCATOR_VARIABLES`` do, for the process that runs."""
    import ctypes

    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)
