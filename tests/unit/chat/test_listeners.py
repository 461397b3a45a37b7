"""What somebody who waits for an answer hears of a thread."""

from __future__ import annotations

import asyncio

import pytest

from codebutler.chat.listeners import LIVE_CHARS, MOST_UNREAD, Listeners
from codebutler.domain.message import Button, Message, said
from codebutler.domain.model import Operation, Post, React, TurnOutcome, Update, Upload
from codebutler.protocol.control import Choice, Done, Said
from codebutler.protocol.messages import Live
from codebutler.text.redact import Redactor

BUTTON = Button("Stop", "codebutler.stop", "t1")
CHOICE = Choice(label="Stop", action_id="codebutler.stop", value="t1")


async def hear(*told: tuple[Operation, str] | TurnOutcome) -> list[Said | Done]:
    """What is answered to the message 1.1 of C1: operations with their ts, and outcomes of the message."""
    listeners = Listeners()
    with listeners.added("C1", "1.1") as listener:
        listener.await_outcome("1.1")
        for each in told:
            if isinstance(each, str):
                await listeners.ended("C1", ("1.1",), each)
            else:
                listener.delivered(*each)
        async with asyncio.timeout(5):
            return [reply async for reply in listener.answers()]


async def test_texts_of_the_thread_until_the_outcome_is_told() -> None:
    listeners = Listeners()
    with listeners.added("C1", "1.1") as listener:
        listener.await_outcome("1.1")
        listener.started(("1.1",))
        # No emoji says how it went: people set them, too.
        listener.delivered(React(target="1.1", mark="done"), "")
        listener.delivered(Post(message=said("elsewhere"), thread="0.5"), "1.2")
        listener.delivered(Post(message=said("the answer"), thread="1.1"), "1.3")
        await listeners.ended("C1", ("0.5",), "failed")
        await listeners.ended("C2", ("1.1",), "failed")
        await listeners.ended("C1", ("1.0", "1.1"), "done")
        async with asyncio.timeout(5):
            replies = [reply async for reply in listener.answers()]
    assert replies == [Said(text="the answer", ref="1.3"), Done(text="done")]


@pytest.mark.parametrize("outcome", ["failed", "stopped", "refused", "interrupted"])
async def test_what_was_not_done_is_not_ok(outcome: TurnOutcome) -> None:
    assert await hear(outcome) == [Done(ok=False, text=outcome)]


async def test_a_worker_that_stays_down_ends_the_waiting() -> None:
    listeners = Listeners()
    with listeners.added("C1", "1.1") as listener:
        listeners.stuck("C1", "nobody waits")
        listener.await_outcome("1.1")
        listeners.stuck("C2", "elsewhere")
        listeners.stuck("C1", "shop is not running")
        async with asyncio.timeout(5):
            replies = [reply async for reply in listener.answers()]
    assert replies == [Said(text="⚠️ shop is not running"), Done(ok=False, text="failed")]


async def test_progress_is_marked_as_such_and_followed() -> None:
    replies = await hear(
        (Post(message=said("🔧 at work", BUTTON), thread="1.1", value="progress"), "1.2"),
        (Update(target="1.2", message=said("✅ 3s")), ""),
        (Update(target="9.9", message=said("of another turn")), ""),
        "done",
    )
    assert replies == [
        Said(text="🔧 at work", kind="progress", ref="1.2", choices=(CHOICE,)),
        Said(text="✅ 3s", kind="progress", ref="1.2"),
        Done(text="done"),
    ]


async def test_every_answer_counts_until_the_outcome() -> None:
    replies = await hear(
        (Post(message=said("on it"), thread="1.1"), "1.2"),
        (Post(message=said("the answer"), thread="1.1"), "1.3"),
        (Upload(filename="cat.png", content=b"\x89PNG\r\n\x1a\n", thread="1.1"), ""),
        (Upload(filename="answer.md", content=b"all of it", thread="1.1"), ""),
        "stopped",
    )
    assert [reply.text for reply in replies] == [
        "on it",
        "the answer",
        "📎 cat.png, 0.0 kB: see its thread in the chat.",
        "all of it",
        "stopped",
    ]
    assert replies[-1] == Done(ok=False, text="stopped")


async def test_an_agents_markdown_stays_as_it_is() -> None:
    replies = await hear(
        (Post(message=Message(markdown="**bold**", is_foreign=True), thread="1.1"), "1.2"),
        "done",
    )
    assert replies[0] == Said(text="**bold**", ref="1.2")


async def test_a_terminal_shows_no_secret_either() -> None:
    listeners = Listeners(redact=Redactor(["held-value-0123"]).redact)
    with listeners.added("C1", "1.1") as listener:
        listener.await_outcome("1.1")
        upload = Upload(filename="a.txt", content=b"key: held-value-0123", thread="1.1")
        listener.delivered(upload, "")
        await listeners.ended("C1", ("1.1",), "done")
        async with asyncio.timeout(30):
            assert [reply async for reply in listener.answers()] == [
                Said(text="📎 a.txt\nkey: [redacted]", ref="file "),
                Done(text="done"),
            ]


async def test_who_does_not_read_is_not_kept_in_memory_whatever_a_worker_says() -> None:
    searched: list[int] = []

    def redact(text: str) -> str:
        searched.append(len(text))
        return text

    listeners = Listeners(redact=redact)
    with listeners.added("C1", "1.1") as listener:
        for _ in range(2 * MOST_UNREAD):
            listener.live(Live(thread="1.1", kind="writing", text="x" * 500_000))
        listener.delivered(Post(message=said("the answer"), thread="1.1"), "1.3")
        assert listener.replies.qsize() == MOST_UNREAD + 1
    assert max(searched[:-1]) == LIVE_CHARS
