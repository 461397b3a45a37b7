"""A thousand calls whose outcome nobody knows: nothing is said twice, nothing is lost.

Calls fail before or after they took effect, look-ups fail, and the sender itself is killed between a post and
its mark; its successor gets what was not marked, as unsure.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random

from codebutler.chat.delivery.outgoing import Editor
from codebutler.chat.delivery.sender import Sender
from codebutler.domain.errors import ChatOutcomeUnknownError, ChatRateLimitedError, ChatUnreachableError
from codebutler.domain.message import said
from codebutler.domain.model import Post, Upload
from tests.clock import ManualClock, settle
from tests.memory_chat import MemoryChat
from tests.notes import Notes
from tests.shown import text_of

UNKNOWNS = 1000
CHANNELS = 25
LOST = ChatOutcomeUnknownError("time-out")


class Ledger:
    """What is to be said, and what is known to be said."""

    def __init__(self, chat: MemoryChat, rng: Random) -> None:
        self.marked: dict[str, str] = {}
        self.wanted: dict[str, tuple[str, Post | Upload]] = {}
        for number in range(UNKNOWNS):
            channel = f"C{number % CHANNELS}"
            root = chat.say(channel, "U1", "question") if rng.random() < 0.7 else None
            operation: Post | Upload = Post(message=said(f"answer {number}"), thread=root)
            if number % 50 == 0:
                operation = Upload(filename="long.md", content=b"%04d" % number, thread=root)
            self.wanted[f"op-{number}"] = (channel, operation)

    async def send(self, sender: Sender, op_id: str, *, unsure: bool) -> None:
        channel, operation = self.wanted[op_id]
        self.marked[op_id] = await sender.submit(channel, op_id, operation, unsure=unsure)


def script(chat: MemoryChat, rng: Random) -> None:
    """The first call for each operation: its outcome stays unknown. Some look-ups fail, too."""
    for _ in range(UNKNOWNS):
        for method in ("post", "share"):
            if rng.random() < 0.6:
                chat.deliver_then_fail(method, LOST)
            else:
                chat.fail_next(method, LOST)
    for _ in range(UNKNOWNS // 10):
        trouble = rng.choice((ChatUnreachableError("down"), ChatRateLimitedError(3), LOST))
        chat.fail_next("history", trouble)
        chat.deliver_then_fail("history", LOST)


async def one_life(
    ledger: Ledger, chat: MemoryChat, notes: Notes, clock: ManualClock, *, first: bool, lasts_s: float
) -> None:
    """A sender that is killed after a while, with whatever it was doing."""
    async with Sender(chat, clock, Editor(lambda text: text), rng=Random(7), notes=notes) as sender:
        left = [op_id for op_id in ledger.wanted if op_id not in ledger.marked]
        tasks = [asyncio.create_task(ledger.send(sender, op_id, unsure=not first)) for op_id in left]
        spent_s = 0.0
        while spent_s < lasts_s and not all(task.done() for task in tasks):
            await clock.advance(1.0)
            spent_s += 1.0
        for task in tasks:
            task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await settle()


async def test_a_thousand_unknown_outcomes_make_no_duplicate_and_lose_nothing() -> None:
    rng, chat, clock = Random(20261120), MemoryChat(), ManualClock()
    ledger, notes = Ledger(chat, rng), Notes()
    script(chat, rng)
    lives = 0
    while len(ledger.marked) < UNKNOWNS:
        await one_life(ledger, chat, notes, clock, first=lives == 0, lasts_s=rng.uniform(20, 90))
        lives += 1
        assert lives < 200, f"{len(ledger.marked)} of {UNKNOWNS} were sent"
    effects = Counter(text_of(done.operation) for done in chat.done if isinstance(done.operation, Post))
    files = Counter(
        done.operation.content.decode() for done in chat.done if isinstance(done.operation, Upload)
    )
    assert [said for said, times in (effects + files).items() if times > 1] == []
    assert len(effects) + len(files) == UNKNOWNS
    assert lives > 3
    assert {ledger.marked[op] for op in ledger.wanted} == {done.result for done in chat.done}
