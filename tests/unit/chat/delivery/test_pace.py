"""How soon answers come, against the bound computed from the limits themselves. On a clock of its own."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping

from codebutler.chat.delivery.outgoing import Editor
from codebutler.chat.delivery.sender import Sender
from codebutler.chat.slack.api import SLACK_LIMITS
from codebutler.domain.message import said
from codebutler.domain.model import Post, React, Update, Value
from tests.clock import settle
from tests.notes import Notes
from tests.unit.chat.delivery.test_sender import Bench

ALLOWED = 1.5
STEP_S = 0.1


def bound_s(posts: Mapping[str, int]) -> float:
    """No sender can say so much in these channels sooner."""
    wide, narrow = SLACK_LIMITS.workspace["post"], SLACK_LIMITS.channel["post"]
    in_all = (sum(posts.values()) - wide.burst) * 60 / wide.per_minute
    return max(in_all, *((each - narrow.burst) * 60 / narrow.per_minute for each in posts.values()))


class Work:
    """Turns of many channels, with all their decoration; ``said`` are the answers."""

    def __init__(self, sender: Sender, bench: Bench) -> None:
        self._sender = sender
        self._bench = bench
        self.said: list[asyncio.Task[str]] = []
        self._rest: list[asyncio.Task[str]] = []

    def _send(self, channel: str, op_id: str, operation: Post | Update | React, *, unsure: bool) -> None:
        sent = self._sender.submit(channel, op_id, operation, unsure=unsure, lasting=True)
        is_answer = isinstance(operation, Post) and operation.value == "answer"
        (self.said if is_answer else self._rest).append(asyncio.ensure_future(sent))

    def mark(self, channel: str, ts: str, name: str, *, gone: bool = False, unsure: bool = False) -> None:
        value: Value = "outcome" if name == "failed" else "sign"
        react = React(target=ts, mark=name, remove=gone, value=value)
        self._send(channel, f"{ts}{name}{gone}", react, unsure=unsure)

    def turn(self, channel: str, ts: str, *, unsure: bool = False) -> None:
        for name in ("queued", "working"):
            self.mark(channel, ts, name, unsure=unsure)
        self._send(
            channel,
            f"edit {ts}",
            Update(target=self._shown(channel), message=said("edited")),
            unsure=unsure,
        )
        self._send(channel, f"answer {ts}", Post(message=said(f"to {ts}"), thread=ts), unsure=unsure)
        self.mark(channel, ts, "failed", unsure=unsure)
        for name in ("queued", "working"):
            self.mark(channel, ts, name, gone=True, unsure=unsure)

    def _shown(self, channel: str) -> str:
        """A message of ours that tells of progress."""
        return self._bench.chat._append(channel, self._bench.chat._own(text="working"), None)

    async def answered_s(self, at_most_s: float) -> float:
        """Seconds until the last answer was given."""
        spent_s = 0.0
        while not all(task.done() for task in self.said):
            assert spent_s < at_most_s, f"{sum(task.done() for task in self.said)} of {len(self.said)}"
            await self._bench.clock.advance(STEP_S)
            spent_s += STEP_S
        return spent_s

    async def over(self) -> None:
        await asyncio.gather(*self.said, *self._rest, return_exceptions=True)


async def _asked(b: Bench, channels: int, each: int) -> dict[str, list[str]]:
    return {
        f"C{number}": [b.chat.say(f"C{number}", "U1", "question") for _ in range(each)]
        for number in range(channels)
    }


async def _many(channels: int, each: int) -> float:
    b = Bench()
    async with Sender(b.chat, b.clock, Editor(str), notes=Notes()) as sender:
        work = Work(sender, b)
        for channel, asked in (await _asked(b, channels, each)).items():
            for ts in asked:
                work.turn(channel, ts)
        await settle()
        took_s = await work.answered_s(60)
    await work.over()
    return took_s


async def test_sixteen_channels_with_five_messages_at_once() -> None:
    bound = bound_s({f"C{number}": 5 for number in range(16)})
    assert bound == 6
    assert await _many(16, 5) <= ALLOWED * bound


async def test_fifty_channels_with_one_message_each() -> None:
    assert await _many(50, 1) <= 5


async def test_hundreds_that_may_have_been_sent_before_a_crash() -> None:
    """Of 240 answers in 240 threads thirty had been handed to Slack, half of them arrived; nobody knows."""
    b, notes = Bench(), Notes()
    asked = await _asked(b, 16, 15)
    async with Sender(b.chat, b.clock, Editor(str), notes=notes) as first:
        work = Work(first, b)
        for channel, roots in asked.items():
            work.turn(channel, roots[0])
        await settle()
        b.chat.hold("post")
        for channel, roots in asked.items():
            work.turn(channel, roots[1])
        await settle()
    await work.over()
    b.chat.release("post")
    before = Counter(b.chat.calls)
    async with Sender(b.chat, b.clock, Editor(str), notes=notes) as second:
        work = Work(second, b)
        for channel, roots in asked.items():
            for ts in roots:
                work.turn(channel, ts, unsure=True)
        await settle()
        bound = bound_s({channel: len(roots) for channel, roots in asked.items()})
        assert await work.answered_s(ALLOWED * bound) <= ALLOWED * bound
    await work.over()
    assert b.chat.calls.count("history") - before["history"] <= 32, "only what was handed over is looked for"
    for channel, roots in asked.items():
        answers = [text for text in b.chat.texts(channel) if text.startswith("to ")]
        assert sorted(answers) == sorted(f"to {ts}" for ts in roots)


async def test_conversations_without_an_unsure_operation_wait_for_no_look() -> None:
    b = Bench()
    async with Sender(b.chat, b.clock, Editor(str), Notes()) as sender:
        asked = await _asked(b, 4, 50)
        unsure = Work(sender, b)
        for channel, roots in asked.items():
            for ts in roots:
                unsure.turn(channel, ts, unsure=True)
        await b.passes(5)
        sure = Work(sender, b)
        new = b.chat.say("C9", "U1", "question")
        sure.turn("C9", new)
        await settle()
        assert sure.said[0].done()
    await unsure.over()
    await sure.over()
