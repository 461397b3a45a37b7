"""AgentProcess: one foreign program, read line by line, and gone without a trace when its block ends.

Each program is the leader of its own session. Nothing here reads JSON: the agents' own rooms do.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import threading
from asyncio.subprocess import PIPE, Process, SubprocessStreamProtocol
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from codebutler.errors import AgentUnavailableError
from codebutler_worker.agents.leftovers import MARK, alive, descendants, kill_leftovers, marked, new_mark
from codebutler_worker.sandbox.port import Enclosure, Launch

LINE_LIMIT_BYTES = 16 * 2**20
STDERR_TAIL_BYTES = 8 * 2**10
READ_BYTES = 64 * 2**10
WRITE_S = 30.0

Record = Callable[[bytes], None]
"""Takes what a program writes, as it came."""


class LineSplitter:
    """Pure: chunks in, whole lines out. A line over ``limit_bytes`` is dropped and counted."""

    def __init__(self, limit_bytes: int = LINE_LIMIT_BYTES) -> None:
        self.dropped = 0
        self._limit_bytes = limit_bytes
        self._buffer = bytearray()
        self._dropping = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that ``chunk`` completes, without their newline."""
        lines: list[bytes] = []
        *ended, rest = chunk.split(b"\n")
        for part in ended:
            self._append(part)
            if not self._dropping:
                lines.append(bytes(self._buffer))
            self._buffer.clear()
            self._dropping = False
        self._append(rest)
        return lines

    def end(self) -> list[bytes]:
        """What the program left without a newline when it ended."""
        rest, dropping = bytes(self._buffer), self._dropping
        self._buffer.clear()
        self._dropping = False
        return [rest] if rest and not dropping else []

    def _append(self, part: bytes) -> None:
        if self._dropping:
            return
        self._buffer += part
        if len(self._buffer) > self._limit_bytes:
            self._buffer.clear()
            self._dropping = True
            self.dropped += 1


class AgentProcess:
    """A running program: ``async with await AgentProcess.spawn(launch) as process``.

    Leaving the block ends the program and everything it started that can still be found.
    """

    def __init__(
        self,
        process: Process,
        transport: asyncio.SubprocessTransport,
        mark: str,
        limit_bytes: int = LINE_LIMIT_BYTES,
        enclosure: Enclosure | None = None,
        record: Record | None = None,
    ) -> None:
        self._record = record
        self._mark = mark
        self._enclosure = enclosure
        self._limit_hit = ""
        self._process = process
        self._transport = transport
        self._splitter = LineSplitter(limit_bytes)
        self._stderr = bytearray()
        self._stopping = asyncio.Lock()
        self._stopped = False
        self._stderr_task = asyncio.create_task(self._read_stderr(), name=f"stderr:{process.pid}")

    @classmethod
    async def spawn(
        cls, launch: Launch, limit_bytes: int = LINE_LIMIT_BYTES, record: Record | None = None
    ) -> Self:
        """Start ``launch``; ``record`` gets all it writes, before anything else does, in a thread.

        Raises AgentUnavailableError if the program cannot be executed, and SandboxUnavailableError if its limits
        cannot be set. From the main thread only: a parent-death signal is tied to the thread that started it.
        """
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("agents are started from the main thread only")
        starting = asyncio.create_task(
            cls._start(launch, limit_bytes, record), name=f"start:{launch.argv[0]}"
        )
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            # A start cannot be taken back half-way: its pipes would be nobody's. Complete it, then end it.
            async with await starting:
                raise

    @classmethod
    async def _start(cls, launch: Launch, limit_bytes: int, record: Record | None) -> Self:
        loop = asyncio.get_running_loop()
        mark = new_mark()
        enclosure, argv = await enclosed(launch)
        try:
            transport, protocol = await loop.subprocess_exec(
                lambda: SubprocessStreamProtocol(limit=READ_BYTES, loop=loop),
                *argv,
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                cwd=launch.cwd,
                env={**launch.env, MARK: mark},
                start_new_session=True,
            )
        except OSError as error:
            if enclosure is not None:
                await enclosure.close()
            raise AgentUnavailableError(
                f"cannot start {Path(launch.argv[0]).name}: {error.strerror}"
            ) from error
        process = Process(transport, protocol, loop)
        return cls(process, transport, mark, limit_bytes, enclosure, record)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit code (negative: the signal), None while it runs."""
        return self._process.returncode

    @property
    def dropped_lines(self) -> int:
        """How many lines were longer than the limit."""
        return self._splitter.dropped

    @property
    def stderr_tail(self) -> str:
        """The last 8 KB the program wrote to stderr."""
        return self._stderr.decode(errors="replace")

    @property
    def limit_hit(self) -> str:
        """One line about the limit that the program or what it started ran into so far, empty if none."""
        return self._limit_hit if self._stopped or self._enclosure is None else self._enclosure.struck()

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
        """Tell the program that nothing more will come."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    async def lines(self) -> AsyncIterator[bytes]:
        """Each line of stdout until its end of file."""
        assert self._process.stdout is not None
        while chunk := await self._process.stdout.read(READ_BYTES):
            await self._keep(chunk)
            for line in self._splitter.feed(chunk):
                yield line
        for line in self._splitter.end():
            yield line

    async def wait(self) -> int:
        """The exit code, when it has ended by itself."""
        return await self._process.wait()

    async def stop(
        self,
        ask: Callable[[], Awaitable[object]] | None = None,
        *,
        ask_s: float = 2.0,
        eof_s: float = 1.0,
        term_s: float = 1.0,
    ) -> None:
        """End the program: ask, close its stdin, SIGTERM its group, SIGKILL what is left. Within 5 s."""
        await asyncio.shield(asyncio.ensure_future(self._stop(ask, ask_s, eof_s, term_s)))

    async def _stop(
        self, ask: Callable[[], Awaitable[object]] | None, ask_s: float, eof_s: float, term_s: float
    ) -> None:
        async with self._stopping:
            if self._stopped:
                return
            self._limit_hit = self.limit_hit
            self._stopped = True
            children = await descendants(self.pid) if self.returncode is None else {}
            if self.returncode is None and ask is not None:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(ask_s):
                        await ask()
                        await self.wait()
            self.close_stdin()
            if not await self._ended(eof_s):
                children |= await descendants(self.pid)
                self._signal(signal.SIGTERM)
                await self._ended(term_s)
            if self.returncode is None:
                children |= await descendants(self.pid)
            self._signal(signal.SIGKILL)
            await kill_leftovers(children | await marked(self._mark))
            await self._ended(1.0)
            if self._enclosure is not None:
                self._limit_hit = self._enclosure.struck()
                await self._enclosure.close()
            await self._close()

    async def _ended(self, within_s: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self.wait()
        return self.returncode is not None

    def _signal(self, number: signal.Signals) -> None:
        # The group's id stays reserved while it has members; a pid that lives after its exit is another's.
        if self.returncode is not None and alive(self.pid):
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    async def _close(self) -> None:
        self._transport.close()
        self._stderr_task.cancel()
        await asyncio.gather(self._stderr_task, return_exceptions=True)

    async def _keep(self, chunk: bytes) -> None:
        if self._record is not None:
            await asyncio.to_thread(self._record, chunk)

    async def _read_stderr(self) -> None:
        assert self._process.stderr is not None
        while chunk := await self._process.stderr.read(READ_BYTES):
            await self._keep(chunk)
            self._stderr += chunk
            del self._stderr[:-STDERR_TAIL_BYTES]


async def enclosed(launch: Launch) -> tuple[Enclosure | None, tuple[str, ...]]:
    """The launch's enclosure, and the command that goes into it."""
    if launch.limiter is None:
        return None, launch.argv
    # What goes in is started by a shell, which would say so only on stderr.
    if shutil.which(launch.argv[0], path=launch.env.get("PATH", os.defpath)) is None:
        raise AgentUnavailableError(f"cannot start {Path(launch.argv[0]).name}: no such program")
    enclosure = await launch.limiter.begin()
    return enclosure, enclosure.enter(launch.argv)
