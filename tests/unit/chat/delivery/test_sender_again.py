"""A worker that died sends again what it does not know to be done: the sender does it once, in the old order."""

from __future__ import annotations

import asyncio

from codebutler.domain.message import said
from codebutler.domain.model import React, Update
from tests.clock import settle
from tests.unit.chat.delivery.test_sender import C, bench, post


async def test_a_reaction_that_was_done_is_not_done_again_after_its_removal() -> None:
    async with bench() as b:
        ts = b.chat.say(C, "U1", "question")
        queued = React(target=ts, mark="queued")
        gone = React(target=ts, mark="queued", remove=True)
        await b.submit("set", queued)
        b.chat.hold("react")
        removal = b.submit("take away", gone)
        await settle()
        again = b.submit("set", queued, unsure=True)
        same_removal = b.submit("take away", gone, unsure=True)
        await settle()
        b.chat.release("react")
        await removal
        await again
        await same_removal
        assert b.chat.marks(C, ts) == set()


async def test_an_edit_that_was_done_does_not_replace_a_later_one() -> None:
    async with bench() as b:
        ts = await b.submit("op", post())
        busy = await b.submit("other", post())
        await b.submit("progress", Update(target=ts, message=said("working")))
        b.chat.hold("update")
        blocking = b.submit("block", Update(target=busy, message=said("x")))
        last = b.submit("end", Update(target=ts, message=said("done")))
        await settle()
        again = b.submit("progress", Update(target=ts, message=said("working")), unsure=True)
        await settle()
        b.chat.release("update")
        await blocking
        await last
        await again
        assert b.chat.texts(C) == ["done", "x"]


async def test_a_reaction_and_its_removal_are_told_done_in_the_order_they_came() -> None:
    """Told the other way round, a death between the two would leave the reaction to be set, for ever."""
    async with bench() as b:
        ts = b.chat.say(C, "U1", "question")
        told: list[str] = []

        async def ask(op_id: str, operation: React) -> None:
            await b.sender.submit(C, op_id, operation)
            told.append(op_id)

        asks = [
            ask("set", React(target=ts, mark="queued")),
            ask("other", React(target=ts, mark="working")),
            ask("take away", React(target=ts, mark="queued", remove=True)),
        ]
        await asyncio.gather(*asks)
        assert told == ["set", "take away", "other"]
        assert b.chat.calls.count("react") == 1
        assert b.chat.marks(C, ts) == {"working"}
