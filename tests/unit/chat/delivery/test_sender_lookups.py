"""After a crash: what may have been sent is looked up once for each conversation, and before anything that can wait."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from codebutler.domain.errors import ChatUnreachableError
from tests.clock import settle
from tests.unit.chat.delivery.test_sender import LOST, C, bench, post

ANSWERS = 15


async def test_one_look_answers_for_all_of_a_conversation() -> None:
    async with bench() as b:
        root = b.chat.say(C, "U1", "question")
        sent = [
            await b.chat.post(C, post(f"{number}", root), f"op{number}") for number in range(0, ANSWERS, 2)
        ]
        b.sender = b.another()
        tasks = [b.submit(f"op{number}", post(f"{number}", root), unsure=True) for number in range(ANSWERS)]
        await b.passes(60)
        assert [await task for task in tasks[::2]] == sent
        assert sorted(b.chat.texts(C), key=int) == [f"{number}" for number in range(ANSWERS)]
        assert b.chat.calls.count("history") == 1


async def test_an_outcome_that_is_unknown_later_is_looked_up_anew() -> None:
    async with bench() as b:
        root = b.chat.say(C, "U1", "question")
        b.submit("op1", post("one", root), unsure=True)
        b.submit("op2", post("two", root), unsure=True)
        b.chat.deliver_then_fail("post", LOST)
        await b.passes(60)
        assert b.chat.texts(C) == ["one", "two"]
        assert b.chat.calls.count("history") == 2, "before the first, and after it was lost"


async def test_looking_up_goes_before_catching_up() -> None:
    """Both read threads, of which Slack allows 50 a minute."""
    async with bench() as b:
        roots = [b.chat.say(C, "U1", f"{number}") for number in range(200)]
        reading = [asyncio.ensure_future(b.sender.background.history(C, thread=root)) for root in roots]
        await settle()
        tasks = [b.submit(f"op-{root}", post("answer", root), unsure=True) for root in roots[:ANSWERS]]
        await b.passes(ANSWERS * 1.3 + 2)
        assert all(task.done() for task in tasks)
        assert sum(task.done() for task in reading) <= 25
        await b.passes(240)
        assert all(task.done() for task in reading)


async def test_what_can_wait_goes_in_its_order_first_pages_first() -> None:
    async with bench() as b:
        b.chat.page_size = 1
        for channel in ("C1", "C2", *(f"D{number}" for number in range(20))):
            for text in ("old", "new"):
                b.chat.say(channel, "U1", text)
        for number in range(20):
            await b.sender.background.history(f"D{number}")
        order: list[str] = []

        async def read(channel: str, cursor: str) -> None:
            await b.sender.background.history(channel, cursor=cursor)
            order.append(f"{channel}{cursor}")

        reading = [asyncio.ensure_future(read("C1", "1")), asyncio.ensure_future(read("C2", ""))]
        await b.passes(10)
        assert order == ["C2", "C11"]
        await asyncio.gather(*reading)


async def test_what_is_outdated_is_left_unsent_unless_it_stands_there_already() -> None:
    async with bench() as b:
        root = b.chat.say(C, "U1", "question")
        progress = replace(post("working", root), value="progress")
        there = await b.chat.post(C, progress, "sent")
        b.sender = b.another()
        sent = b.submit("sent", replace(progress, outdated=True), unsure=True)
        unsent = b.submit("unsent", replace(progress, outdated=True), unsure=True)
        answer = b.submit("answer", post("answer", root), unsure=True)
        await b.passes(5)
        assert (await sent, await unsent) == (there, "")
        assert await answer
        assert b.chat.texts(C) == ["working", "answer"]


async def test_what_was_sent_before_spends_nothing_of_the_limit_for_posts() -> None:
    async with bench() as b:
        root = b.chat.say(C, "U1", "question")
        for number in range(30):
            await b.chat.post(C, post(f"{number}", root), f"op{number}")
        b.sender = b.another()
        tasks = [b.submit(f"op{number}", post(f"{number}", root), unsure=True) for number in range(30)]
        await b.passes(3)
        assert all(task.done() for task in tasks)
        new = b.submit("new", post("new", root))
        await settle()
        assert new.done()


async def test_what_becomes_outdated_while_it_waits_is_left_unsent_and_what_was_sent_stays() -> None:
    async with bench() as b:
        root = b.chat.say(C, "U1", "question")
        progress = replace(post("working", root), value="progress")
        b.chat.hold("post")
        under_way = b.submit("under way", progress)
        waits = b.submit("waits", progress)
        await settle()
        for op_id in ("under way", "waits"):
            b.submit(op_id, replace(progress, outdated=True), unsure=True)
        await settle()
        assert await waits == ""
        b.chat.release("post")
        assert await under_way
        assert b.chat.texts(C) == ["working"]


async def test_what_fails_and_is_outdated_by_then_is_not_tried_again() -> None:
    async with bench() as b:
        b.chat.hold("post")
        b.chat.fail_next("post", ChatUnreachableError("down"))
        task = b.submit("op", replace(post("working"), value="progress"))
        await settle()
        b.submit("op", replace(post("working"), value="progress", outdated=True), unsure=True)
        await settle()
        b.chat.release("post")
        await b.passes(60)
        assert await task == ""
        assert b.chat.texts(C) == []
