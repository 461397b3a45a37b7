"""Program: what all foreign programs have in common, however they are talked to: how they begin, and how they end.

Each is the leader of its own session. It bears a mark that whatever it starts inherits, and may run in an enclosure
that limits it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from codebutler.domain.errors import AgentUnavailableError, SandboxUnavailableError
from codebutler.platform.processes import pids, seen, variable_of
from codebutler_worker.sandbox.cgroups import owned_name, ownerless
from codebutler_worker.sandbox.pins import PinHold
from codebutler_worker.sandbox.port import Enclosure, Launch

# Nobody can turn a pager's pages, write in git's editor or answer its question for a password.
UNATTENDED = {
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_EDITOR": "true",
    "MANPAGER": "cat",
    "SYSTEMD_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "DEBIAN_FRONTEND": "noninteractive",
}


@dataclass(frozen=True, slots=True)
class Birth:
    """How a launch is really executed, and what it is known by ever after."""

    argv: tuple[str, ...]
    env: dict[str, str]
    mark: str
    enclosure: Enclosure | None
    held: PinHold | None = None


def program_root(binary: Path, home: Path) -> Path:
    """What must be readable to run the program: its directory, unless that would open the user's home."""
    return binary if home.is_relative_to(binary.parent) else binary.parent


class Program(ABC):
    """A running program. Leaving its block ends it and everything it started that can still be found."""

    def __init__(self, process: Process, birth: Birth) -> None:
        self._process = process
        self._birth = birth
        self._limit_hit = ""
        self._stopping = asyncio.Lock()
        self._stopped = False
        self._burst: asyncio.Task[None] | None = None
        if birth.held is not None:
            birth.held.listen(self._unprotected)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def pid(self) -> int:
        """Of what was started outside; behind walls the program itself has another."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit code (negative: the signal), None while it runs."""
        return self._process.returncode

    @property
    def container(self) -> str:
        """The name of the container that it is in, "" if it is in none."""
        return "" if self._birth.enclosure is None else self._birth.enclosure.container

    @property
    def limit_hit(self) -> str:
        """One line about the limit that the program or what it started ran into so far, empty if none."""
        if self._stopped or self._limit_hit or self._birth.enclosure is None:
            return self._limit_hit
        return self._birth.enclosure.struck()

    def _unprotected(self, told: str) -> None:
        """What protects others from it is gone: it ends now, and whoever asks is ``told``."""
        self._limit_hit = told
        self._signal(signal.SIGKILL)
        if self._birth.enclosure is not None:
            self._burst = asyncio.create_task(self._birth.enclosure.burst(), name=f"burst:{self.pid}")

    async def stop(self, eof_s: float = 1.0, term_s: float = 1.0) -> None:
        """End the program, within 5 s: give it ``eof_s`` to end at the end of its input, and ``term_s`` when it is
        told to; SIGKILL what is left of it and of all it started."""
        await asyncio.shield(asyncio.ensure_future(self._stop(eof_s, term_s)))

    async def _stop(self, eof_s: float, term_s: float) -> None:
        async with self._stopping:
            if self._stopped:
                return
            self._limit_hit = self.limit_hit
            self._stopped = True
            family = await self._family()
            family |= await self._ask_to_end(eof_s, term_s)
            await self._bury(family | await self._family())
            await self._close()

    @abstractmethod
    async def _ask_to_end(self, eof_s: float, term_s: float) -> dict[int, str]:
        """Give it the chance to end by itself; returns whom it has started meanwhile."""

    @abstractmethod
    async def _close(self) -> None:
        """It has ended: let go of how it was talked to."""

    async def _family(self) -> dict[int, str]:
        return await descendants(self.pid) if self.returncode is None else {}

    async def _bury(self, family: dict[int, str]) -> None:
        """SIGKILL whatever is left of it, and open its enclosure."""
        self._signal(signal.SIGKILL)
        await kill_leftovers(family | await marked(self._birth.mark))
        await self._ended_within(1.0)
        if self._burst is not None:
            await asyncio.wait({self._burst})
        if self._birth.enclosure is not None:
            self._limit_hit = self._limit_hit or self._birth.enclosure.struck()
            await self._birth.enclosure.close()
        if self._birth.held is not None:
            self._birth.held.release()

    async def _ended_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._process.wait()
        return self.returncode is not None

    def _signal(self, number: signal.Signals) -> None:
        # The group's id stays reserved while it has members; a pid that lives after its exit is another's.
        if self.returncode is not None and alive(self.pid):
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


P = TypeVar("P", bound=Program)


async def begun(start: Coroutine[Any, Any, P], name: str) -> P:
    """The program that ``start`` starts. Raises what it does.

    From the main thread only: a parent-death signal is tied to the thread that started it.
    """
    if threading.current_thread() is not threading.main_thread():
        start.close()
        raise RuntimeError("agents are started from the main thread only")
    starting = asyncio.create_task(start, name=f"start:{name}")
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        # A start cannot be taken back half-way: its pipes would be nobody's. Complete it, then end it.
        async with await starting:
            raise


@asynccontextmanager
async def birth_of(launch: Launch) -> AsyncIterator[Birth]:
    """What to execute for ``launch``, inside this block.

    Raises AgentUnavailableError if that cannot be executed, and SandboxUnavailableError if its limits cannot be set.
    """
    # First: what is replaced while the walls are put up has lost its protection as well.
    held = None if launch.guard is None else launch.guard()
    enclosure: Enclosure | None = None
    argv, mark = launch.argv, owned_name()
    try:
        if launch.enclose is not None:
            # What goes in is started by a shell, which would say so only on stderr.
            if shutil.which(launch.argv[0], path=launch.env.get("PATH", os.defpath)) is None:
                raise AgentUnavailableError(f"cannot start {Path(launch.argv[0]).name}: no such program")
            enclosure = await launch.enclose()
            argv = enclosure.enter(launch.argv)
        yield Birth(argv, {**launch.env, MARK: mark}, mark, enclosure, held)
    except (OSError, AgentUnavailableError, SandboxUnavailableError) as error:
        if enclosure is not None:
            await enclosure.close()
        if held is not None:
            held.release()
        if not isinstance(error, OSError):
            raise
        name = Path(launch.argv[0]).name
        raise AgentUnavailableError(f"cannot start {name}: {error.strerror}") from error


MARK = "CODEBUTLER_AGENT_ID"
"""Set to a name of our own for each program, so that whatever it leaves behind can be told."""


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
