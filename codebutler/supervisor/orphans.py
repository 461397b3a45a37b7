"""The processes of a supervisor that is no more. A worker ends when its pipe does, unless it hangs or is stopped:
then it would keep its repository's lock for ever, and nobody could work there.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

from codebutler.process.table import pid_namespace, pids, seen, variable_of

MARK = "CODEBUTLER_SUPERVISOR_ID"
"""In the environment of the fork server and of all that it starts; agents never see it."""

GONE_S = 2.0


def own_mark() -> str:
    """Names this process: its pid, its start time (a pid is used again), its pid namespace."""
    return f"{os.getpid()}-{_started(os.getpid())}-{pid_namespace()}"


def kill_orphans() -> int:
    """Kill what dead supervisors left and see it gone; returns how many processes that were. Blocks shortly.

    Only where /proc shows environments (Linux).
    """
    if sys.platform != "linux":
        return 0
    found = {pid: _started(pid) for pid in pids() if _ownerless(variable_of(pid, MARK))}
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
    return owner.isdigit() and namespace == str(pid_namespace()) and started != _started(int(owner))


def _started(pid: int) -> str:
    """When the process began; "" if there is none."""
    found = seen(pid)
    return found.started if found else ""
