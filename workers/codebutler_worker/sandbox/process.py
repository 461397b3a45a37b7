"""Program: how every external program starts and ends, whether driven by lines or through a terminal (``pty.py``);
AgentProcess: one driven line by line.

Each leads its own session. It carries a mark that its children inherit, and may run in an enclosure that limits it.
Nothing here parses JSON: the agents' packages do.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import threading
from abc import ABC, abstractmethod
from asyncio.subprocess import DEVNULL, PIPE, Process, SubprocessStreamProtocol
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import ClassVar, Self

from msgspec import Struct

from codebutler.domain.errors import AgentUnavailableError, SandboxUnavailableError
from codebutler.platform.system import this_system
from codebutler_worker.sandbox.pins import PinHold
from codebutler_worker.sandbox.port import Enclosure, Launch, owned_name, ownerless

MARK = "CODEBUTLER_AGENT_ID"
"""Set to a unique name for each program, so that its leftovers can be found: agents run their tools in separate
sessions. If the system does not show environments (macOS), or a process cleared its own, we rely on the sandbox."""

LINE_LIMIT_BYTES = 16 * 2**20
STDERR_TAIL_BYTES = 8 * 2**10
READ_BYTES = 64 * 2**10
WRITE_S = 30.0

Record = Callable[[bytes], None]
"""Receives the raw output of a program."""


@dataclass(eq=False, repr=False)
class Program(ABC):
    """An external program: ``async with await AgentProcess(launch).start() as process``. Leaving its block ends it and
    all its children that can still be found.

    ``pid``: the one outside; inside a sandbox it has a different one. ``container``: the name of the container that it
    runs in, "" if none. ``end_signals`` ask it to end.
    """

    end_signals: ClassVar[tuple[signal.Signals, ...]] = (signal.SIGTERM,)

    launch: Launch
    pid: int = field(default=0, init=False)
    container: str = field(default="", init=False)
    _mark: str = field(default_factory=owned_name, init=False)
    _enclosure: Enclosure | None = field(default=None, init=False)
    _held: PinHold | None = field(default=None, init=False)
    _process: Process = field(init=False)
    _exit: asyncio.Task[int] = field(init=False)
    _limit_hit: str = field(default="", init=False)
    _ending: asyncio.Task[None] | None = field(default=None, init=False)
    _kills: list[asyncio.Task[None]] = field(default_factory=list, init=False)

    async def start(self) -> Self:
        """Start it, once. Raises AgentUnavailableError if it cannot be executed, and SandboxUnavailableError if its
        limits cannot be set. Only from the main thread: a parent-death signal is tied to the thread that started the
        program."""
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("agents can be started from the main thread only")
        starting = asyncio.create_task(self._start(), name=f"start:{self.launch.argv[0]}")
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            # A start cannot be undone half-way: nobody would own its pipes. Complete it, then end the program.
            await starting
            await self.stop()
            raise
        return self

    async def _start(self) -> None:
        launch = self.launch
        argv = launch.argv
        # First of all: a file replaced while the sandbox is set up has lost its protection too.
        self._held = None if launch.guard is None else launch.guard()
        try:
            if launch.enclose is not None:
                # In an enclosure a shell starts the program, and would report a missing one only on stderr.
                if shutil.which(argv[0], path=launch.env.get("PATH", os.defpath)) is None:
                    raise AgentUnavailableError(f"cannot start {Path(argv[0]).name}: no such program")
                self._enclosure, argv = await launch.enclose(argv)
            self._process = await self._execute(argv, {**launch.env, MARK: self._mark})
        except (OSError, AgentUnavailableError, SandboxUnavailableError) as error:
            if self._enclosure is not None:
                await self._enclosure.close()
            if self._held is not None:
                self._held.watcher.release(self._held)
            if not isinstance(error, OSError):
                raise
            name = Path(launch.argv[0]).name
            raise AgentUnavailableError(f"cannot start {name}: {error.strerror}") from error
        self.pid = self._process.pid
        self.container = "" if self._enclosure is None else self._enclosure.container
        self._exit = asyncio.create_task(self._process.wait(), name=f"exit:{self.pid}")
        if self._held is not None:
            self._held.gone = self._unprotected
            if self._held.lifted:  # while it started
                self._unprotected(self._held.lifted)

    @abstractmethod
    async def _execute(self, argv: tuple[str, ...], env: dict[str, str]) -> Process:
        """Execute ``argv`` as the leader of its own session, and begin to read its output. Raises OSError."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def returncode(self) -> int | None:
        """The exit code (negative: the signal), None while it runs."""
        return self._process.returncode

    @property
    def limit_hit(self) -> str:
        """One line about the limit that the program or a child has reached so far, empty if none."""
        if self._ending is not None or self._limit_hit or self._enclosure is None:
            return self._limit_hit
        return self._enclosure.limit_reached()

    async def wait(self, within_s: float | None = None) -> int | None:
        """The exit code, once the program has ended by itself; None if it does not end ``within_s`` (None: forever)."""
        await asyncio.wait({self._exit}, timeout=within_s)
        return self._process.returncode

    async def stop(self, eof_s: float = 1.0, term_s: float = 1.0) -> None:
        """End the program within 5 s: close its input and wait ``eof_s``, ask it to end and wait ``term_s``, then
        SIGKILL what is left of it and its children. Once begun it goes on if the caller is cancelled; a second call
        waits for the first."""
        if self._ending is None:
            self._limit_hit = self.limit_hit
            self._ending = asyncio.create_task(self._end(eof_s, term_s), name=f"end:{self.pid}")
        await asyncio.shield(self._ending)

    async def _end(self, eof_s: float, term_s: float) -> None:
        is_whole = self.launch.ends_whole
        family: dict[int, str] = {}
        if self._process.returncode is None:
            # Children without our mark can be found only as long as the program lives.
            family = {} if is_whole else await descendants(self.pid)
            if self._process.stdin is not None:
                self._process.stdin.close()
                if await self.wait(eof_s) is None:
                    family |= await descendants(self.pid)
        if self._process.returncode is None:
            for number in self.end_signals:
                self._signal(number)
            await self.wait(term_s)
        if self._process.returncode is None or family or not is_whole:
            if self._process.returncode is None:
                family |= await descendants(self.pid)
            self._signal(signal.SIGKILL)
            marks = await asyncio.to_thread(this_system().carrying, MARK)
            family |= {pid: started for pid, (started, mark) in marks.items() if mark == self._mark}
            await kill_leftovers(family)
            await asyncio.wait({self._exit}, timeout=1.0)
        await asyncio.gather(*self._kills, return_exceptions=True)
        if self._enclosure is not None:
            self._limit_hit = self._limit_hit or self._enclosure.limit_reached()
            await self._enclosure.close()  # kills whatever is left inside
        if self._held is not None:
            self._held.watcher.release(self._held)
        await self._close()

    @abstractmethod
    async def _close(self) -> None:
        """Release the pipes or the terminal after it has ended."""

    def _unprotected(self, why: str) -> None:
        """Others are no longer protected from it: kill it now; ``why`` becomes the reason shown."""
        self._limit_hit = why
        self._signal(signal.SIGKILL)
        if self._enclosure is not None:
            kill_all = self._enclosure.kill_all()
            self._kills.append(asyncio.create_task(kill_all, name=f"kill_all:{self.pid}"))

    def _signal(self, number: signal.Signals) -> None:
        """Signal its whole group, which may outlive it."""
        if self._process.returncode is not None:
            # The group's id stays reserved while it has members; if the pid is alive after the program's exit, it
            # belongs to another process.
            with contextlib.suppress(ProcessLookupError):
                os.getpgid(self.pid)
                return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


async def descendants(pid: int) -> dict[int, str]:
    """Every process below ``pid`` with its start time, which tells a reused pid from the original."""
    table = await asyncio.to_thread(this_system().seen)
    found: dict[int, str] = {}
    level = {pid}
    while level:
        level = {child for child, (parent, _) in table.items() if parent in level and child not in found}
        found |= {child: table[child][1] for child in level}
    return found


async def kill_leftovers(leftovers: dict[int, str], within_s: float = 0.5) -> None:
    """SIGKILL those of ``leftovers`` (pid -> start time) that are still the same process; wait until they are gone."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            while leftovers:
                found = (await asyncio.to_thread(this_system().seen, leftovers)).items()
                leftovers = {pid: entry.started for pid, entry in found if entry.started == leftovers[pid]}
                for pid in leftovers:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, signal.SIGKILL)
                await asyncio.sleep(0.01)


async def kill_orphans() -> int:
    """Kill the programs of workers that no longer run; returns how many.

    A killed worker takes its sandboxed agents with it; this is for those without a sandbox.
    """
    marks = await asyncio.to_thread(this_system().carrying, MARK)
    orphans = {pid: started for pid, (started, mark) in marks.items() if ownerless(mark)}
    await kill_leftovers(orphans)
    return len(orphans)


@dataclass(eq=False, repr=False)
class AgentProcess(Program):
    """A program that is driven by lines. ``record`` is called with all its output in a thread, before anything else
    reads it; ``has_input``: something will be written to its stdin."""

    limit_bytes: int = LINE_LIMIT_BYTES
    record: Record | None = None
    has_input: bool = True
    _stderr: bytearray = field(default_factory=bytearray, init=False)
    _stderr_task: asyncio.Task[None] = field(init=False)
    _transport: asyncio.SubprocessTransport = field(init=False)

    async def _execute(self, argv: tuple[str, ...], env: dict[str, str]) -> Process:
        loop = asyncio.get_running_loop()
        self._transport, protocol = await loop.subprocess_exec(
            partial(SubprocessStreamProtocol, limit=READ_BYTES, loop=loop),
            *argv,
            stdin=PIPE if self.has_input else DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
            cwd=self.launch.cwd,
            env=env,
            start_new_session=True,
        )
        process = Process(self._transport, protocol, loop)
        assert process.stderr is not None
        self._stderr_task = asyncio.create_task(
            self._read_stderr(process.stderr), name=f"stderr:{process.pid}"
        )
        return process

    async def last_words(self, within_s: float = 1.0) -> str:
        """The last 8 KB that the program wrote to stderr, once that is closed, or after ``within_s``."""
        await asyncio.wait({self._stderr_task}, timeout=within_s)
        return self._stderr.decode(errors="replace")

    async def write_line(self, line: bytes) -> bool:
        """Send one line; False if the program no longer reads."""
        assert self._process.stdin is not None
        try:
            async with asyncio.timeout(WRITE_S):
                self._process.stdin.write(line + b"\n")
                await self._process.stdin.drain()
        except (ConnectionError, RuntimeError, TimeoutError):
            return False
        return True

    def close_stdin(self) -> None:
        """Close the program's stdin."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    async def lines(self) -> AsyncIterator[bytes]:
        """Each line of stdout until end of file, without its newline. One over the limit is dropped."""
        assert self._process.stdout is not None
        line, is_dropped = bytearray(), False
        while chunk := await self._process.stdout.read(READ_BYTES):
            if self.record is not None:
                await asyncio.to_thread(self.record, chunk)
            for number, part in enumerate(chunk.split(b"\n")):
                if number > 0:  # a newline came before it
                    if not is_dropped:
                        yield bytes(line)
                    line.clear()
                    is_dropped = False
                line += part
                is_dropped = is_dropped or len(line) > self.limit_bytes
                if is_dropped:
                    line.clear()
        if line:
            yield bytes(line)

    async def _close(self) -> None:
        self._transport.close()
        self._stderr_task.cancel()
        await asyncio.gather(self._stderr_task, return_exceptions=True)

    async def _read_stderr(self, stderr: asyncio.StreamReader) -> None:
        while chunk := await stderr.read(READ_BYTES):
            if self.record is not None:
                await asyncio.to_thread(self.record, chunk)
            self._stderr += chunk
            del self._stderr[:-STDERR_TAIL_BYTES]


class EndedProgram(Struct, frozen=True):
    """A program that has ended. ``code`` is None if it took too long; ``cut``: it wrote more than we keep, and was
    ended for that; ``limit_hit`` and ``container`` as in Program."""

    output: bytes
    code: int | None
    cut: bool
    stderr: str
    limit_hit: str
    container: str


async def run_to_end(
    launch: Launch,
    *,
    stdin: bytes = b"",
    limit_bytes: int | None,
    limit_s: float | None = None,
    record: Record | None = None,
) -> EndedProgram:
    """Run a program and keep ``limit_bytes`` of its stdout (None: nothing, of any length); a newline is added to
    ``stdin``. ``record`` is called with all its output, in a thread.

    Raises AgentUnavailableError if it cannot be executed, and SandboxUnavailableError.
    """
    lines: list[bytes] = []
    size, code, cut = 0, None, False
    process = await AgentProcess(launch, record=record, has_input=bool(stdin)).start()
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                if stdin:
                    await process.write_line(stdin)
                    process.close_stdin()
                async for line in process.lines():
                    if limit_bytes is not None:
                        lines.append(line)
                        size += len(line) + 1
                        if cut := size > limit_bytes:
                            break
                # A program that has closed its output may still be working.
                code = 0 if cut else await process.wait()
        stderr = await process.last_words(0 if code is None or cut else 1.0)
    finally:
        await process.stop()
    output = b"\n".join(lines)[:limit_bytes]
    return EndedProgram(output, code, cut, stderr, process.limit_hit, process.container)
