"""The sender over a scripted workspace: order, limits, lost answers, refusals, a token that dies."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from random import Random

import pytest
from msgspec.structs import replace

from codebutler.chat.delivery.outgoing import Editor
from codebutler.chat.delivery.sender import Sender
from codebutler.chat.port import Identity
from codebutler.domain.errors import (
    ChatAuthError,
    ChatError,
    ChatOutcomeUnknownError,
    ChatRateLimitedError,
    ChatUnreachableError,
)
from codebutler.domain.message import Button, Message, Option, Question, QuestionCard, said
from codebutler.domain.model import Operation, Post, Update, Upload
from codebutler.text.markup import PAGES
from tests.clock import ManualClock, settle
from tests.memory_chat import MemoryChat
from tests.notes import Notes

C = "C1"
LOST = ChatOutcomeUnknownError("time-out")


class Bench:
    def __init__(self) -> None:
        self.chat = MemoryChat()
        self.clock = ManualClock()
        self.tasks: list[asyncio.Task[str]] = []
        self.sender = self.another()

    def another(self) -> Sender:
        """A sender that knows nothing yet, as after a restart of the parent."""
        hide = partial(re.sub, "s3cret", "[redacted]")
        return Sender(self.chat, self.clock, Editor(hide), Notes(), rng=Random(1))

    def submit(
        self, op_id: str, operation: Operation, *, channel: str = C, unsure: bool = False
    ) -> asyncio.Task[str]:
        task = asyncio.ensure_future(self.sender.submit(channel, op_id, operation, unsure=unsure))
        self.tasks.append(task)
        return task

    async def passes(self, seconds: float) -> None:
        await self.clock.advance(seconds)
        await settle()


@asynccontextmanager
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    async with made.sender:
        yield made
    await asyncio.gather(*made.tasks, return_exceptions=True)


class AtHome(MemoryChat):
    """A workspace with an address."""

    async def identity(self) -> Identity:
        return replace(await super().identity(), url="https://acme.slack.com/")


def post(text: str = "hi", thread_ts: str | None = None) -> Post:
    return Post(message=said(text), thread=thread_ts)


async def test_a_post_returns_its_ts_and_is_found_by_its_operation() -> None:
    async with bench() as b:
        ts = await b.submit("op", post())
        assert b.chat.messages(C)[0]["ts"] == ts
        assert b.sender.pending == 0


async def test_a_link_to_a_page_leads_where_readers_of_this_workspace_can_open_it() -> None:
    chat = AtHome()
    editor = Editor(str, pages=lambda workspace: f"{workspace}pages/")
    async with Sender(chat, ManualClock(), editor, Notes(), rng=Random(1)) as sender:
        await sender.submit(C, "op", post(f"[Review]({PAGES}changes/shop/t1)"))
    assert "https://acme.slack.com/pages/changes/shop/t1" in chat.texts(C)[0]


async def test_posts_of_a_channel_keep_their_order_through_failures() -> None:
    async with bench() as b:
        b.chat.fail_next("post", ChatUnreachableError("down"), times=3)
        tasks = [b.submit(f"op{n}", post(f"{n}")) for n in range(4)]
        await b.passes(120)
        await asyncio.gather(*tasks)
        assert b.chat.texts(C) == ["0", "1", "2", "3"]


async def test_a_failing_channel_does_not_hold_up_another() -> None:
    async with bench() as b:
        b.chat.hold("post")
        slow = b.submit("a", post("slow"))
        await settle()
        held = b.chat._held.pop("post")
        assert await b.submit("b", post("quick"), channel="C2")
        assert not slow.done()
        held.set()
        assert await slow


async def test_five_posts_at_once_then_fewer_than_one_each_second() -> None:
    async with bench() as b:
        tasks = [b.submit(f"op{n}", post(f"{n}")) for n in range(10)]
        await settle()
        assert len(b.chat.done) == 5
        for expected in (6, 7, 8, 9, 10):
            await b.passes(0.93)
            assert len(b.chat.done) == expected - 1
            await b.passes(0.11)
            assert len(b.chat.done) == expected
        await asyncio.gather(*tasks)


async def test_an_answer_goes_before_what_can_wait_in_its_own_thread_too() -> None:
    async with bench() as b:
        one, two, three, four, _ = [await b.submit(f"said{n}", post(f"said {n}")) for n in range(5)]
        for number, thread in enumerate((one, two, three), start=1):
            b.submit(f"place{number}", Post(message=said(f"place {number}"), thread=thread, value="progress"))
        b.submit("pong", post("pong", four))
        b.submit("answer", post("answer", two))
        await b.passes(60)
        assert b.chat.texts(C)[5:] == ["pong", "answer", "place 1", "place 2", "place 3"]


async def test_retry_after_is_honoured_and_nothing_is_lost() -> None:
    async with bench() as b:
        b.chat.fail_next("post", ChatRateLimitedError(30))
        task = b.submit("op", post())
        await b.passes(29.9)
        assert b.chat.calls.count("post") == 1
        await b.passes(2)
        assert await task
        assert b.chat.texts(C) == ["hi"]


async def test_retry_after_of_one_channel_leaves_others_alone() -> None:
    async with bench() as b:
        b.chat.fail_next("post", ChatRateLimitedError(30))
        b.submit("op", post())
        await settle()
        assert await b.submit("other", post(), channel="C2")


async def test_unreachable_for_hours_delivers_in_the_end() -> None:
    async with bench() as b:
        b.chat.fail_next("post", ChatUnreachableError("down"), times=500)
        task = b.submit("op", post())
        await b.passes(6 * 3600)
        assert await task
        assert b.chat.texts(C) == ["hi"]


@pytest.mark.parametrize("in_thread", [False, True])
async def test_a_lost_answer_is_looked_for_and_not_posted_twice(in_thread: bool) -> None:
    async with bench() as b:
        root = b.chat.say(C, "U1", "question") if in_thread else None
        b.chat.deliver_then_fail("post", LOST)
        task = b.submit("op", post("answer", root))
        await b.passes(10)
        ts = await task
        assert b.chat.texts(C) == ["answer"]
        assert b.chat.messages(C)[-1]["ts"] == ts
        assert b.chat.calls.count("post") == 1


async def test_a_request_that_timed_out_is_given_time_to_arrive_before_looking() -> None:
    async with bench() as b:
        b.chat.fail_next("post", LOST)
        b.submit("op", post())
        await b.passes(1.9)
        assert b.chat.calls == ["post"]
        await b.passes(5)
        assert b.chat.texts(C) == ["hi"]


async def test_a_request_that_never_arrived_is_posted_after_looking() -> None:
    async with bench() as b:
        b.chat.fail_next("post", LOST)
        task = b.submit("op", post("answer"))
        await b.passes(10)
        assert await task
        assert b.chat.texts(C) == ["answer"]
        assert b.chat.calls == ["post", "history", "post"]


async def test_looking_goes_on_through_every_page_and_through_failures() -> None:
    async with bench() as b:
        b.chat.page_size = 2
        ts = await b.submit("op", post("answer"))
        for number in range(9):
            b.chat.say(C, "U1", f"{number}")
        b.sender = b.another()
        b.chat.fail_next("history", ChatUnreachableError("down"))
        b.chat.fail_next("history", ChatRateLimitedError(5))
        task = b.submit("op", post("answer"), unsure=True)
        await b.passes(60)
        assert await task == ts
        assert b.chat.texts(C) == ["answer"]


async def test_metadata_written_by_another_app_is_not_our_answer() -> None:
    async with bench() as b:
        b.chat.say(C, "U1", "forged")
        message = b.chat._channel(C).messages[0]
        message["bot_id"] = "B0OTHER"
        message["metadata"] = {"event_type": "codebutler_operation", "event_payload": {"op_id": "op"}}
        b.submit("op", post("answer"), unsure=True)
        await b.passes(5)
        assert b.chat.texts(C) == ["answer"]


async def test_the_same_operation_twice_is_done_once() -> None:
    async with bench() as b:
        b.chat.hold("post")
        one, two = b.submit("op", post()), b.submit("op", post())
        await settle()
        b.chat.release("post")
        assert await one == await two
        assert await b.submit("op", post(), unsure=True) == one.result()
        assert b.chat.calls == ["post"]


async def test_a_newer_edit_replaces_one_that_waits() -> None:
    async with bench() as b:
        ts = await b.submit("op", post())
        b.chat.hold("update")
        edits = [b.submit("e0", Update(target=ts, message=said("0")))]
        await settle()
        edits += [b.submit(f"e{n}", Update(target=ts, message=said(f"{n}"))) for n in range(1, 5)]
        await settle()
        b.chat.release("update")
        assert await asyncio.gather(*edits) == [""] * 5
        assert [d.operation for d in b.chat.done if isinstance(d.operation, Update)] == [
            Update(target=ts, message=said("0")),
            Update(target=ts, message=said("4")),
        ]


async def test_an_edit_may_come_again_under_its_id_with_other_content() -> None:
    async with bench() as b:
        ts = await b.submit("op", post())
        await b.submit("e", Update(target=ts, message=said("1")))
        await b.submit("e", Update(target=ts, message=said("2")))
        assert b.chat.texts(C) == ["2"]


async def test_edits_short_of_their_limit_do_not_hold_up_an_answer() -> None:
    async with bench() as b:
        targets = [b.chat._append(C, b.chat._own(text=""), None) for _ in range(30)]
        edits = [b.submit(ts, Update(target=ts, message=said("x"))) for ts in targets]
        assert await b.submit("answer", post("answer"))
        assert not all(edit.done() for edit in edits)
        await b.passes(60)
        assert all(edit.done() for edit in edits)


async def test_a_refusal_is_told_and_the_next_one_goes_out() -> None:
    async with bench() as b:
        b.chat.fail_next("post", ChatError(code="is_archived"))
        task = b.submit("op", post())
        after = b.submit("next", post("next"))
        with pytest.raises(ChatError, match="is_archived"):
            await task
        assert await after


@pytest.mark.parametrize("code", ["msg_too_long", "invalid_blocks"])
async def test_what_slack_finds_too_much_is_sent_as_short_plain_text(code: str) -> None:
    async with bench() as b:
        b.chat.fail_next("post", ChatError(code=code))
        await b.submit("op", Post(message=Message(markdown="y" * 50_000, is_foreign=True)))
        (message,) = b.chat.messages(C)
        assert message["blocks"] == []
        assert len(message["text"]) <= 4_000


async def test_too_much_twice_is_a_refusal() -> None:
    async with bench() as b:
        b.chat.fail_next("post", ChatError(code="msg_too_long"), times=2)
        with pytest.raises(ChatError, match="msg_too_long"):
            await b.submit("op", post("y" * 50_000))


async def test_secrets_leave_in_no_part_of_any_operation() -> None:
    async with bench() as b:
        option = Option("s3cret", "a s3cret")
        asked = Question(id="s3cret", text="s3cret", options=(option,), verdict="s3cret")
        card = Message(card=QuestionCard((asked,), ("s3cret",)), names=("s3cret",))
        ts = await b.submit("op", Post(message=said("s3cret", Button("s3cret", "s3cret", "s3cret"))))
        await b.submit("up", Update(target=ts, message=card))
        secret = "s3cret"
        upload = Upload(filename=secret, title=secret, comment=secret, content=b"x s3cret y")
        await b.submit("file", upload)
        large = Upload(filename="f", content=b"s3cret" * 20_000)
        await b.submit("large", large)
        assert len(b.chat.done) == 4
        assert "s3cret" not in repr(b.chat.done)


async def test_everything_waits_for_a_refused_token_and_goes_on_once_it_works() -> None:
    async with bench() as b:
        b.chat.fail_next("post", ChatAuthError("refused", "token_revoked"))
        b.chat.fail_next("identity", ChatAuthError("refused", "token_revoked"), times=2)
        tasks = [b.submit("one", post("1")), b.submit("two", post("2"), channel="C2")]
        await settle()
        assert b.sender.trouble == "refused"
        await b.passes(14)
        assert b.chat.calls.count("identity") == 1
        later = b.submit("three", post("3"), channel="C3")
        await b.passes(60)
        await asyncio.gather(*tasks, later)
        assert b.sender.trouble == ""
        assert b.chat.texts(C) == ["1"]


async def test_a_token_that_worked_in_between_is_asked_after_soon_again() -> None:
    async with bench() as b:
        for number in range(4):
            b.chat.fail_next("post", ChatAuthError("refused", "token_expired"))
            task = b.submit(f"op{number}", post())
            await b.passes(10)
            assert task.done()


async def test_a_token_that_passes_the_probe_only_is_not_hammered() -> None:
    async with bench() as b:
        b.chat.fail_next("post", ChatAuthError("refused", "not_allowed_token_type"), times=1000)
        b.submit("op", post())
        await b.passes(3600)
        assert b.chat.calls.count("post") < 70


async def test_drain_returns_when_nothing_is_pending() -> None:
    async with bench() as b:
        b.chat.hold("post")
        b.submit("op", post())
        await settle()
        drain = asyncio.ensure_future(b.sender.drain())
        await settle()
        assert not drain.done()
        b.chat.release("post")
        await drain


async def test_closing_tells_waiting_callers_that_nothing_is_known() -> None:
    async with bench() as b:
        b.chat.hold("post")
        task = b.submit("op", post())
        await settle()
    with pytest.raises(ChatUnreachableError):
        await task
    with pytest.raises(ChatUnreachableError):
        await b.submit("late", post())


async def test_a_caller_that_gives_up_does_not_stop_the_operation() -> None:
    async with bench() as b:
        b.chat.hold("post")
        task = b.submit("op", post())
        await settle()
        task.cancel()
        b.chat.release("post")
        await b.sender.drain()
        assert b.chat.texts(C) == ["hi"]
