"""What a program started and left: found by family and by mark, told from strangers, and killed.

Agents run their tools in sessions of their own, so killing the agent's group does not reach them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import subprocess
import sys

from codebutler.platform.processes import pid_namespace, pids, seen, variable_of

MARK = "CODEBUTLER_AGENT_ID"
"""Set to a different value for each program, so that whatever it leaves behind can be told."""


def new_mark() -> str:
    """A mark that also says whose programs they are: ``<our pid>-<our pid namespace>-<random>``."""
    return f"{os.getpid()}-{pid_namespace()}-{secrets.token_hex(16)}"


def alive(pid: int) -> bool:
    """Some process has this pid."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


async def descendants(pid: int) -> dict[int, str]:
    """Every process below ``pid`` with its start time, which tells a reused pid from the same process."""
    table = await processes()
    found: dict[int, str] = {}
    level = {pid}
    while level:
        level = {child for child, (parent, _) in table.items() if parent in level and child not in found}
        found |= {child: table[child][1] for child in level}
    return found


async def kill_leftovers(leftovers: dict[int, str], within_s: float = 0.5) -> None:
    """SIGKILL those of ``leftovers`` that are still the same process, and see them gone."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            while remaining := await still(leftovers):
                for pid in remaining:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, signal.SIGKILL)
                await asyncio.sleep(0.01)


async def still(expected: dict[int, str]) -> list[int]:
    """Those of ``expected`` (pid -> start time) that live."""
    if not expected:
        return []
    table = await processes()
    return [pid for pid, started in expected.items() if pid in table and table[pid][1] == started]


async def processes() -> dict[int, tuple[int, str]]:
    """pid -> (parent, start time) of every process that is no zombie."""
    return await asyncio.to_thread(process_table if sys.platform == "linux" else process_table_ps)


async def marked(mark: str) -> dict[int, str]:
    """Every process that inherited ``mark``, with its start time: what left the family tree before we looked."""
    return {pid: started for pid, (started, found) in (await marks()).items() if found == mark}


async def kill_orphans() -> int:
    """Kill the programs of workers that are no more; returns how many there were.

    A killed worker takes sandboxed agents with it; this is for those that run without walls.
    """
    orphans = {pid: started for pid, (started, mark) in (await marks()).items() if ownerless(mark)}
    await kill_leftovers(orphans)
    return len(orphans)


def ownerless(mark: str) -> bool:
    """The mark names a process of our namespace that is no more."""
    owner, space, _ = (*mark.split("-"), "", "")[:3]
    return owner.isdigit() and space == str(pid_namespace()) and not alive(int(owner))


async def marks() -> dict[int, tuple[str, str]]:
    """pid -> (start time, mark) of every marked process we may look into.

    Only where /proc shows environments (Linux); elsewhere, and for what cleared its own, the sandbox must do.
    """
    if sys.platform != "linux":
        return {}
    told = ((pid, started, variable_of(pid, MARK)) for pid, (_, started) in (await processes()).items())
    return {pid: (started, mark) for pid, started, mark in told if mark}


def process_table() -> dict[int, tuple[int, str]]:
    """From /proc."""
    return {pid: found for pid in pids() if (found := seen(pid)) is not None}


def process_table_ps() -> dict[int, tuple[int, str]]:
    """From ps(1), where there is no /proc."""
    listing = subprocess.run(
        ["ps", "-axo", "pid=,ppid=,lstart="], capture_output=True, text=True, timeout=5, check=False
    ).stdout
    rows = (line.split(None, 2) for line in listing.splitlines())
    return {int(row[0]): (int(row[1]), row[2]) for row in rows if len(row) == 3}
