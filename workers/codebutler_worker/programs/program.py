"""Program: what all external programs have in common, whether driven by lines or through a terminal: how they start and
how they end.

Each leads its own session. It carries a mark that its children inherit, and may run in an enclosure that limits it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import threading
from abc import ABC, abstractmethod
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

from codebutler.domain.errors import AgentUnavailableError, SandboxUnavailableError
from codebutler.platform.system import ProcessEntry, this_system
from codebutler_worker.sandbox.cgroups import owned_name, ownerless
from codebutler_worker.sandbox.common import Enclosure, Launch
from codebutler_worker.sandbox.pins import PinHold

# Nobody is there to page, to type in git's editor, or to enter a password.
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
    """How a launch is actually executed, and how the program is identified afterwards."""

    argv: tuple[str, ...]
    env: dict[str, str]
    mark: str
    enclosure: Enclosure | None
    held: PinHold | None = None
    ends_whole: bool = False


def program_root(binary: Path, home: Path) -> Path:
    """What must be readable to run the program: its directory, unless that would expose the user's home."""
    return binary if home.is_relative_to(binary.parent) else binary.parent


class Program(ABC):
    """A running program. Leaving its block ends it and all its children that can still be found."""

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

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def pid(self) -> int:
        """The pid outside; inside a sandbox the program has a different one."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit code (negative: the signal), None while it runs."""
        return self._process.returncode

    @property
    def container(self) -> str:
        """The name of the container that it runs in, "" if none."""
        return "" if self._birth.enclosure is None else self._birth.enclosure.container

    @property
    def limit_hit(self) -> str:
        """One line about the limit that the program or a child has reached so far, empty if none."""
        if self._stopped or self._limit_hit or self._birth.enclosure is None:
            return self._limit_hit
        return self._birth.enclosure.struck()

    def _unprotected(self, told: str) -> None:
        """Others are no longer protected from it: kill it now; ``told`` becomes the reason shown."""
        self._limit_hit = told
        self._signal(signal.SIGKILL)
        if self._birth.enclosure is not None:
            self._burst = asyncio.create_task(
                self._birth.enclosure.burst(), name=f"burst:{self._process.pid}"
            )

    async def stop(self, eof_s: float = 1.0, term_s: float = 1.0) -> None:
        """End the program within 5 s: close its input and wait ``eof_s``, ask it to end and wait ``term_s``, then
        SIGKILL what is left of it and its children."""
        await asyncio.shield(asyncio.ensure_future(self._stop(eof_s, term_s)))

    async def _stop(self, eof_s: float, term_s: float) -> None:
        async with self._stopping:
            if self._stopped:
                return
            self._limit_hit = self.limit_hit
            self._stopped = True
            family = {} if self._birth.ends_whole else await self._family()
            family |= await self._ask_to_end(eof_s, term_s)
            if self._process.returncode is None or family or not self._birth.ends_whole:
                await self._kill(family | await self._family())
            if self._burst is not None:
                await asyncio.wait({self._burst})
            if self._birth.enclosure is not None:
                self._limit_hit = self._limit_hit or self._birth.enclosure.struck()
                await self._birth.enclosure.close()  # kills whatever is left inside
            if self._birth.held is not None:
                self._birth.held.release()
            await self._close()

    @abstractmethod
    async def _ask_to_end(self, eof_s: float, term_s: float) -> dict[int, str]:
        """Give it the chance to end by itself; returns the children it started meanwhile."""

    @abstractmethod
    async def _close(self) -> None:
        """Release the pipes or the terminal after it has ended."""

    async def _family(self) -> dict[int, str]:
        return await descendants(self._process.pid) if self._process.returncode is None else {}

    async def _kill(self, family: dict[int, str]) -> None:
        """SIGKILL what is left of it and of its children."""
        self._signal(signal.SIGKILL)
        await kill_leftovers(family | await marked(self._birth.mark))
        await self._ended_within(1.0)

    async def _ended_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._process.wait()
        return self._process.returncode is not None

    def _signal(self, number: signal.Signals) -> None:
        # The group's id stays reserved while it has members; if the pid is alive after the program's exit, it belongs
        # to another process.
        if self._process.returncode is not None and alive(self._process.pid):
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


P = TypeVar("P", bound=Program)


async def begun(start: Coroutine[Any, Any, P], name: str) -> P:
    """Await ``start`` and return its program. Raises what ``start`` raises.

    Only from the main thread: a parent-death signal is tied to the thread that started the program.
    """
    if threading.current_thread() is not threading.main_thread():
        start.close()
        raise RuntimeError("agents can be started from the main thread only")
    starting = asyncio.create_task(start, name=f"start:{name}")
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        # A start cannot be undone half-way: nobody would own its pipes. Complete it, then end the program.
        async with await starting:
            raise


@asynccontextmanager
async def birth_of(launch: Launch) -> AsyncIterator[Birth]:
    """What to execute for ``launch``, inside this block.

    Raises AgentUnavailableError if that cannot be executed, and SandboxUnavailableError if its limits cannot be set.
    """
    # First of all: a file replaced while the sandbox is set up has lost its protection too.
    held = None if launch.guard is None else launch.guard()
    enclosure: Enclosure | None = None
    argv, mark = launch.argv, owned_name()
    try:
        if launch.enclose is not None:
            # In an enclosure a shell starts the program, and would report a missing one only on stderr.
            if shutil.which(launch.argv[0], path=launch.env.get("PATH", os.defpath)) is None:
                raise AgentUnavailableError(f"cannot start {Path(launch.argv[0]).name}: no such program")
            enclosure = await launch.enclose()
            argv = enclosure.enter(launch.argv)
        yield Birth(argv, {**launch.env, MARK: mark}, mark, enclosure, held, launch.ends_whole)
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
"""Set to a unique name for each program, so that its leftovers can be found. Agents run their tools in separate
sessions, which killing the agent's process group does not reach."""


def alive(pid: int) -> bool:
    """Whether a process has this pid."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


async def descendants(pid: int) -> dict[int, str]:
    """Every process below ``pid`` with its start time, which tells a reused pid from the original."""
    table = await processes()
    found: dict[int, str] = {}
    level = {pid}
    while level:
        level = {child for child, (parent, _) in table.items() if parent in level and child not in found}
        found |= {child: table[child][1] for child in level}
    return found


async def kill_leftovers(leftovers: dict[int, str], within_s: float = 0.5) -> None:
    """SIGKILL those of ``leftovers`` that are still the same process, and wait until they are gone."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            while remaining := await still(leftovers):
                for pid in remaining:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, signal.SIGKILL)
                await asyncio.sleep(0.01)


async def still(expected: dict[int, str]) -> list[int]:
    """Those of ``expected`` (pid -> start time) that are still alive."""
    if not expected:
        return []
    found = await asyncio.to_thread(this_system().seen, expected)
    return [pid for pid, entry in found.items() if entry.started == expected[pid]]


async def processes() -> dict[int, ProcessEntry]:
    """Every process by its pid, except zombies."""
    return await asyncio.to_thread(this_system().processes)


async def marked(mark: str) -> dict[int, str]:
    """Every process that inherited ``mark``, with its start time: finds those that had left the process tree."""
    return {pid: started for pid, (started, found) in (await marks()).items() if found == mark}


async def kill_orphans() -> int:
    """Kill the programs of workers that no longer run; returns how many.

    A killed worker takes its sandboxed agents with it; this is for those without a sandbox.
    """
    orphans = {pid: started for pid, (started, mark) in (await marks()).items() if ownerless(mark)}
    await kill_leftovers(orphans)
    return len(orphans)


async def marks() -> dict[int, tuple[str, str]]:
    """pid -> (start time, mark) of every marked process we may inspect.

    Empty if the system does not show environments (macOS). There, and for processes that cleared theirs, we rely on the
    sandbox.
    """
    return await asyncio.to_thread(this_system().carrying, MARK)
