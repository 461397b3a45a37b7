"""LiveSession: one Claude Code process that works in one session, and the lines that go in and out of it."""

from __future__ import annotations

import asyncio
from typing import Self
from uuid import uuid4

from codebutler_worker.agents.claude import command
from codebutler_worker.agents.claude.schema import Line, decode
from codebutler_worker.egress.gauge import Gauge
from codebutler_worker.egress.way import Way
from codebutler_worker.programs.process import AgentProcess, Record
from codebutler_worker.sandbox.port import Launch

QUEUE_LINES = 256
LARGE_BYTES = 64 * 2**10
"""A line of so many is heard before the next one is read: a queue full of them would be gigabytes."""


class EndOfStream:
    """The process closed its stdout."""


Heard = Line | EndOfStream | None
"""A line, a line that was not understood (None), or the end."""


class LiveSession:
    """Lives as long as one turn; ``end`` leaves nothing of it behind."""

    def __init__(self, process: AgentProcess) -> None:
        self.process = process
        self.way: Way | None = None
        """Its way out, which ends with it."""
        # Bounded: a flood of lines waits in the pipe, not in our memory.
        self._heard: asyncio.Queue[Heard] = asyncio.Queue(QUEUE_LINES)
        self._taken = asyncio.Event()
        self._over = False
        self._reader = asyncio.create_task(self._read(), name=f"claude:{process.pid}")

    @classmethod
    async def open(cls, launch: Launch, system_prompt: str, record: Record | None = None) -> Self:
        """Start the process; ``system_prompt`` is appended to the CLI's own, ``record`` gets all it writes.

        Raises AgentUnavailableError if it cannot be started.
        """
        session = cls(await AgentProcess.spawn(launch, record=record))
        try:
            await session.write(command.initialize_line(system_prompt))
        except BaseException:
            await session.end(at_once=True)
            raise
        return session

    @property
    def gauge(self) -> Gauge | None:
        """What its model's service has answered so far; None if that cannot be seen."""
        return None if self.way is None else self.way.gauge

    async def write(self, line: bytes) -> bool:
        """Send one line; False if the process no longer reads."""
        return await self.process.write_line(line)

    async def say(self, text: str) -> str:
        """Send a person's message; returns the id by which the CLI reports on it, empty if not taken."""
        uuid = str(uuid4())
        return uuid if await self.write(command.message_line(text, uuid)) else ""

    async def interrupt(self) -> bool:
        """Ask the CLI to end its turn; it answers with a result and stays alive."""
        return await self.write(command.control_line(f"interrupt-{uuid4()}", {"subtype": "interrupt"}))

    async def hear(self) -> Heard:
        """The next line. After the end of the stream, the end again and again."""
        if self._over:
            return EndOfStream()
        heard = await self._heard.get()
        if self._heard.empty():
            self._taken.set()
        self._over = isinstance(heard, EndOfStream)
        return heard

    async def end(self, *, at_once: bool = False) -> None:
        """End the process: close its stdin, then by force. ``at_once``: in mid turn, where it would go on."""
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)
        try:
            await self.process.stop(eof_s=0.3 if at_once else 1.5, term_s=1.0)
        finally:
            if self.way is not None:
                await self.way.close()
        if self._heard.full():
            self._heard.get_nowait()
        self._heard.put_nowait(EndOfStream())

    async def _read(self) -> None:
        async for line in self.process.lines():
            if line.strip():
                await self._heard.put(decode(line))
                if len(line) >= LARGE_BYTES:
                    self._taken.clear()
                    await self._taken.wait()
        await self._heard.put(EndOfStream())
