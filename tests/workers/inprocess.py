"""A worker without a process: the WorkerLink's fake, told what to say and when to die."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable

from codebutler.domain.errors import ProtocolError
from codebutler.protocol.messages import (
    PROTOCOL_VERSION,
    Configure,
    Deliver,
    Hello,
    Ready,
    Shutdown,
    Stored,
    ToParent,
)
from tests.clock import settle


class FakeWorker:
    """Records what it is sent; SIGKILL ends it, and so does a Shutdown unless it is ``stubborn``."""

    def __init__(self, pid: int, *, stubborn: bool = False) -> None:
        self.pid = pid
        self.heard: list[object] = []
        self.signals: list[int] = []
        self.unread_bytes = 0
        self._stubborn = stubborn
        self._inbox: asyncio.Queue[ToParent | ProtocolError | None] = asyncio.Queue()
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._dead: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def messages(
        self, admit: Callable[[int], Awaitable[None]] | None = None
    ) -> AsyncIterator[ToParent]:
        while (message := await self._inbox.get()) is not None:
            if admit is not None:
                await admit(1)
            if isinstance(message, ProtocolError):
                raise message
            yield message

    async def printed(self) -> AsyncIterator[str]:
        while (line := await self._lines.get()) is not None:
            yield line

    def send(self, message: object) -> None:
        self.heard.append(message)
        if isinstance(message, Shutdown) and not self._stubborn:
            self.die(0)

    async def drain(self) -> None:
        if self.unread_bytes:
            await asyncio.get_running_loop().create_future()

    async def wait_dead(self) -> int:
        return await asyncio.shield(self._dead)

    def kill(self, signal_number: int) -> None:
        if not self._dead.done():
            self.signals.append(signal_number)
            if signal_number == signal.SIGKILL:
                self.die(-signal_number)

    def close(self) -> None:
        self._inbox.put_nowait(None)

    # What the test does

    def say(self, *messages: ToParent | ProtocolError) -> None:
        for message in messages:
            self._inbox.put_nowait(message)

    def print(self, line: str) -> None:
        self._lines.put_nowait(line)

    def become_ready(self) -> None:
        self.say(Hello(version=PROTOCOL_VERSION, pid=self.pid), Ready())

    def die(self, code: int) -> None:
        if not self._dead.done():
            self._dead.set_result(code)
            self._inbox.put_nowait(None)
            self._lines.put_nowait(None)

    def hang_up(self) -> None:
        """Close the pipe and live on."""
        self._inbox.put_nowait(None)

    @property
    def delivered(self) -> list[int]:
        return [message.seq for message in self.heard if isinstance(message, Deliver)]

    def store(self, *seqs: int) -> None:
        self.say(*(Stored(seq=seq) for seq in seqs))


class FakeSpawner:
    """Hands out fake workers; ``eager`` ones become ready at once."""

    def __init__(self, *, eager: bool = True, stubborn: bool = False) -> None:
        self.workers: list[FakeWorker] = []
        self.names: list[str] = []
        self.errors: list[OSError] = []
        self.eager = eager
        self.stubborn = stubborn

    @property
    def last(self) -> FakeWorker:
        return self.workers[-1]

    async def spawn(self, name: str) -> FakeWorker:
        if self.errors:
            raise self.errors.pop(0)
        worker = FakeWorker(1000 + len(self.workers), stubborn=self.stubborn)
        self.workers.append(worker)
        self.names.append(name)
        if self.eager:
            worker.become_ready()
        return worker


async def configured(worker: FakeWorker) -> Configure:
    """What the worker was told it is."""
    await settle()
    return next(message for message in worker.heard if isinstance(message, Configure))
