"""AgentProcess: one external program, driven line by line. Nothing here parses JSON: the agents' packages do."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from asyncio.subprocess import PIPE, Process, SubprocessStreamProtocol
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from typing import Self

from codebutler_worker.programs.program import Birth, Program, begun, birth_of
from codebutler_worker.sandbox.common import Launch

LINE_LIMIT_BYTES = 16 * 2**20
STDERR_TAIL_BYTES = 8 * 2**10
READ_BYTES = 64 * 2**10
WRITE_S = 30.0

Record = Callable[[bytes], None]
"""Receives the raw output of a program."""


class LineSplitter:
    """Pure: takes chunks, returns whole lines. A line over ``limit_bytes`` is dropped."""

    def __init__(self, limit_bytes: int = LINE_LIMIT_BYTES) -> None:
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
        """The rest of the output, if it ends without a newline."""
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


class AgentProcess(Program):
    """A running program: ``async with await AgentProcess.spawn(launch) as process``."""

    def __init__(
        self,
        process: Process,
        transport: asyncio.SubprocessTransport,
        birth: Birth,
        limit_bytes: int = LINE_LIMIT_BYTES,
        record: Record | None = None,
    ) -> None:
        super().__init__(process, birth)
        self._record = record
        self._transport = transport
        self._splitter = LineSplitter(limit_bytes)
        self._stderr = bytearray()
        self._stderr_task = asyncio.create_task(self._read_stderr(), name=f"stderr:{process.pid}")

    @classmethod
    async def spawn(
        cls, launch: Launch, limit_bytes: int = LINE_LIMIT_BYTES, record: Record | None = None
    ) -> Self:
        """Start ``launch``; ``record`` is called with all its output in a thread, before anything else reads it.

        Raises AgentUnavailableError if the program cannot be executed, and SandboxUnavailableError if its limits cannot
        be set. Only from the main thread.
        """
        return await begun(cls._start(launch, limit_bytes, record), launch.argv[0])

    @classmethod
    async def _start(cls, launch: Launch, limit_bytes: int, record: Record | None) -> Self:
        loop = asyncio.get_running_loop()
        async with birth_of(launch) as birth:
            transport, protocol = await loop.subprocess_exec(
                partial(SubprocessStreamProtocol, limit=READ_BYTES, loop=loop),
                *birth.argv,
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                cwd=launch.cwd,
                env=birth.env,
                start_new_session=True,
            )
        return cls(Process(transport, protocol, loop), transport, birth, limit_bytes, record)

    @property
    def stderr_tail(self) -> str:
        """The last 8 KB that the program wrote to stderr."""
        return self._stderr.decode(errors="replace")

    async def last_words(self, within_s: float = 1.0) -> str:
        """``stderr_tail`` once stderr is closed, or after ``within_s``."""
        await asyncio.wait({self._stderr_task}, timeout=within_s)
        return self.stderr_tail

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
        """Each line of stdout until end of file."""
        assert self._process.stdout is not None
        while chunk := await self._process.stdout.read(READ_BYTES):
            if self._record is not None:
                await asyncio.to_thread(self._record, chunk)
            for line in self._splitter.feed(chunk):
                yield line
        for line in self._splitter.end():
            yield line

    async def wait(self) -> int:
        """The exit code, once the program has ended by itself."""
        return await self._process.wait()

    async def exit_code(self, within_s: float = 2.0) -> int | None:
        """The exit code after stdout has closed; None if the program does not end."""
        await self._ended_within(within_s)
        return self.returncode

    async def _ask_to_end(self, eof_s: float, term_s: float) -> dict[int, str]:
        self.close_stdin()
        if await self._ended_within(eof_s):
            return {}
        family = await self._family()
        self._signal(signal.SIGTERM)
        await self._ended_within(term_s)
        return family

    async def _close(self) -> None:
        self._transport.close()
        self._stderr_task.cancel()
        await asyncio.gather(self._stderr_task, return_exceptions=True)

    async def _read_stderr(self) -> None:
        assert self._process.stderr is not None
        while chunk := await self._process.stderr.read(READ_BYTES):
            if self._record is not None:
                await asyncio.to_thread(self._record, chunk)
            self._stderr += chunk
            del self._stderr[:-STDERR_TAIL_BYTES]


@dataclass(frozen=True, slots=True)
class EndedProgram:
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
    limit_bytes: int,
    limit_s: float | None = None,
    record: Record | None = None,
) -> EndedProgram:
    """Run a program and keep ``limit_bytes`` of its stdout; a newline is added to ``stdin``. ``record`` is called with
    all its output, in a thread.

    Raises AgentUnavailableError if it cannot be executed, and SandboxUnavailableError.
    """
    lines: list[bytes] = []
    size, code, cut = 0, None, False
    async with await AgentProcess.spawn(launch, record=record) as process:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                if stdin:
                    await process.write_line(stdin)
                process.close_stdin()
                async for line in process.lines():
                    lines.append(line)
                    size += len(line) + 1
                    if cut := size > limit_bytes:
                        break
                # A program that has closed its output may still be working.
                code = 0 if cut else await process.wait()
        output = b"\n".join(lines)[:limit_bytes]
        has_ended = code is not None and not cut
        stderr = await process.last_words() if has_ended else process.stderr_tail
        return EndedProgram(output, code, cut, stderr, process.limit_hit, process.container)
