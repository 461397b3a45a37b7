"""The processes of a supervisor that is no more. A worker ends when its pipe does, unless it hangs or is stopped:
then it would keep its repository's lock for ever, and nobody could work there.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

MARK = "CODEBUTLER_SUPERVISOR_ID"
"""In the environment of the fork server and of all that it starts; agents never see it."""

GONE_S = 2.0


def own_mark() -> str:
    """Names this process: its pid, its start time (a pid is used again), its pid namespace."""
    return f"{os.getpid()}-{_started(os.getpid())}-{_namespace()}"


def kill_orphans() -> int:
    """Kill what dead supervisors left and see it gone; returns how many processes that were. Blocks shortly.

    Only where /proc shows environments (Linux).
    """
    if sys.platform != "linux":
        return 0
    found = {pid: _started(pid) for pid in _pids() if _ownerless(_mark_of(pid))}
    deadline_s = time.monotonic() + GONE_S
    while remaining := [pid for pid, started in found.items() if started and _started(pid) == started]:
        for pid in remaining:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() >= deadline_s:
            break
        time.sleep(0.01)
    return len(found)


def _ownerless(mark: str) -> bool:
    """The mark names a process of our namespace that is no more."""
    owner, _, rest = mark.partition("-")
    started, _, namespace = rest.partition("-")
    return owner.isdigit() and namespace == _namespace() and started != _started(int(owner))


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _mark_of(pid: int) -> str:
    wanted = f"{MARK}=".encode()
    with contextlib.suppress(OSError):
        for variable in Path("/proc", str(pid), "environ").read_bytes().split(b"\0"):
            if variable.startswith(wanted):
                return variable.removeprefix(wanted).decode(errors="replace")
    return ""


def _started(pid: int) -> str:
    """When the process began (proc_pid_stat(5), field 22); "" if there is none, or only its remains."""
    with contextlib.suppress(OSError):
        fields = Path("/proc", str(pid), "stat").read_text(errors="replace").rpartition(")")[2].split()
        return "" if fields[0] == "Z" else fields[19]
    return ""


def _namespace() -> str:
    space = Path("/proc/self/ns/pid")
    return str(space.stat().st_ino) if space.exists() else ""
