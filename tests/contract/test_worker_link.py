"""WorkerLink: what supervision relies on, over the fake and over real processes."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from codebutler.domain.model import MessagePosted
from codebutler.protocol.messages import (
    PROTOCOL_VERSION,
    Configure,
    Deliver,
    Hello,
    Log,
    Ready,
    Shutdown,
    Stored,
    ToParent,
)
from codebutler.supervisor.forkserver import ForkServer
from codebutler.supervisor.port import WorkerLink
from tests.workers.inprocess import FakeWorker
from tests.workers.services import entry, repo

SERVER = ("tests.workers.scripted:main", ["tests.workers.scripted"])


class ScriptedFake(FakeWorker):
    """Does what the scripted worker process does."""

    def send(self, message: object) -> None:
        super().send(message)
        if isinstance(message, Configure):
            self.say(Ready())
        if isinstance(message, Deliver) and isinstance(message.event, MessagePosted):
            word, _, argument = message.event.text.partition(" ")
            self.say(Stored(seq=message.seq))
            if word == "die":
                self.die(int(argument))
            if word == "stumble":
                self.print(f"ArithmeticError: {argument}")
                self.die(1)


async def fake() -> WorkerLink:
    worker = ScriptedFake(4711)
    worker.say(Hello(version=PROTOCOL_VERSION, pid=worker.pid))
    return worker


async def real() -> WorkerLink:
    return await ForkServer(*SERVER).spawn("shop")


@pytest.fixture(params=[fake, real])
async def link(request: pytest.FixtureRequest) -> AsyncIterator[WorkerLink]:
    make: Callable[[], Awaitable[WorkerLink]] = request.param
    made = await make()
    yield made
    made.kill(signal.SIGKILL)
    async with asyncio.timeout(10):
        await made.wait_dead()
    made.close()


async def until(link: WorkerLink, kind: type[ToParent]) -> ToParent:
    async with asyncio.timeout(10):
        async for message in link.messages():
            if isinstance(message, kind):
                return message
    raise AssertionError(f"no {kind.__name__} before the end of file")


async def started(link: WorkerLink) -> None:
    hello = await until(link, Hello)
    assert hello == Hello(version=PROTOCOL_VERSION, pid=link.pid)
    link.send(Configure(settings=repo(beat_s="60")))
    await until(link, Ready)


def order(link: WorkerLink, text: str) -> None:
    asked = entry(5, text)
    link.send(Deliver(seq=5, event=asked.event, request=asked.request))


async def test_an_interrupt_is_for_what_a_worker_starts_and_not_for_itself() -> None:
    link = await real()
    try:
        await started(link)
        link.kill(signal.SIGINT)
        order(link, "child kill -INT $$; echo it is ignored")
        told = await until(link, Log)
        assert isinstance(told, Log)
        assert told.text == ""
    finally:
        link.kill(signal.SIGKILL)
        async with asyncio.timeout(30):
            await link.wait_dead()
        link.close()


async def test_messages_go_both_ways(link: WorkerLink) -> None:
    await started(link)
    order(link, "store")
    await link.drain()
    assert await until(link, Stored) == Stored(seq=5)


async def test_an_asked_end_is_a_clean_exit(link: WorkerLink) -> None:
    await started(link)
    link.send(Shutdown(reason="shutdown", grace_s=5))
    async with asyncio.timeout(10):
        assert await link.wait_dead() == 0
        assert await link.wait_dead() == 0


async def test_what_was_said_before_death_can_still_be_heard_and_then_comes_the_end(link: WorkerLink) -> None:
    await started(link)
    order(link, "die 7")
    async with asyncio.timeout(10):
        assert await link.wait_dead() == 7
        assert await until(link, Stored) == Stored(seq=5)
        assert [message async for message in link.messages()] == []


async def test_what_it_prints_comes_home(link: WorkerLink) -> None:
    await started(link)
    order(link, "stumble over a stone")
    async with asyncio.timeout(10):
        lines = [line async for line in link.printed()]
        assert await link.wait_dead() == 1
    assert lines[-1] == "ArithmeticError: over a stone"


async def test_a_kill_is_told_as_a_negative_code_and_is_harmless_afterwards(link: WorkerLink) -> None:
    await started(link)
    link.kill(signal.SIGKILL)
    async with asyncio.timeout(10):
        assert await link.wait_dead() == -signal.SIGKILL
    link.kill(signal.SIGKILL)
    link.send(Shutdown(reason="shutdown", grace_s=0))
    await link.drain()
