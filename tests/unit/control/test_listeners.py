"""What somebody who waits for an answer hears of a thread."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

import pytest

from codebutler.clock import settle
from codebutler.control.listeners import Listener, Listeners
from codebutler.control.messages import Choice, Done, Said
from codebutler.model import Operation, Post, React, Update, Upload
from codebutler.text.redact import Redactor

STOP = {
    "type": "button",
    "text": {"type": "plain_text", "text": "Stop"},
    "action_id": "codebutler.stop",
    "value": "t1",
}
BUTTONS = ({"type": "actions", "elements": [STOP]},)
CHOICE = Choice(label="Stop", action_id="codebutler.stop", value="t1")


async def hear(listener: Listener, *operations: tuple[Operation, str]) -> list[Said | Done]:
    listeners = Listeners()
    with listeners.added(listener):
        for operation, ts in operations:
            listeners.tell("C1", operation, ts)
        async with asyncio.timeout(5):
            return [reply async for reply in listener.replies()]


async def test_texts_of_the_thread_until_the_final_reaction() -> None:
    replies = await hear(
        Listener("C1", "1.1", "1.1"),
        (React(target_ts="1.1", name="eyes"), ""),
        (Post(text="elsewhere", thread_ts="0.5"), "1.2"),
        (Post(text="the answer", thread_ts="1.1"), "1.3"),
        (React(target_ts="0.5", name="x"), ""),
        (React(target_ts="1.1", name="white_check_mark"), ""),
    )
    assert replies == [Said(text="the answer", ts="1.3"), Done(text="done")]


@pytest.mark.parametrize("refused", [False, True])
async def test_a_file_that_is_on_its_way_is_waited_for(refused: bool) -> None:
    listeners, listener = Listeners(), Listener("C1", "1.1", "1.1")
    file = Upload(filename="answer.md", content=b"all of it", thread_ts="1.1")
    elsewhere = Upload(filename="b", content=b"", thread_ts="0.5")
    with listeners.added(listener):
        replies = listener.replies()
        with listeners.sending("C1", elsewhere), ExitStack() as stack:
            stack.enter_context(listeners.sending("C1", file))
            listeners.tell("C1", Post(text="here it is", thread_ts="1.1"), "1.2")
            listeners.tell("C1", React(target_ts="1.1", name="white_check_mark"), "")
            assert await anext(replies) == Said(text="here it is", ts="1.2")
            last = asyncio.ensure_future(anext(replies))
            await settle(5)
            assert not last.done()
            if not refused:
                listeners.tell("C1", file, "")
            stack.close()
            async with asyncio.timeout(5):
                told = [await last, *[reply async for reply in replies]]
    texts = [reply.text for reply in told if isinstance(reply, Said)]
    assert (texts, told[-1]) == ([] if refused else ["all of it"], Done(text="done"))


async def test_a_failed_turn_is_not_ok() -> None:
    replies = await hear(Listener("C1", "1.1", "1.1"), (React(target_ts="1.1", name="x"), ""))
    assert replies == [Done(ok=False, text="failed")]


async def test_progress_is_marked_as_such_and_followed() -> None:
    replies = await hear(
        Listener("C1", "1.1", "1.1"),
        (Post(text="🔧 at work", thread_ts="1.1", blocks=BUTTONS), "1.2"),
        (Update(target_ts="1.2", text="✅ 3s"), ""),
        (Update(target_ts="9.9", text="of another turn"), ""),
        (React(target_ts="1.1", name="white_check_mark"), ""),
    )
    assert replies == [
        Said(text="🔧 at work", kind="progress", ts="1.2", choices=(CHOICE,)),
        Said(text="✅ 3s", kind="progress", ts="1.2"),
        Done(text="done"),
    ]


async def test_every_answer_counts_until_the_outcome() -> None:
    replies = await hear(
        Listener("C1", "1.1", "1.1"),
        (Post(text="on it", thread_ts="1.1"), "1.2"),
        (Post(text="the answer", thread_ts="1.1"), "1.3"),
        (Upload(filename="cat.png", content=b"\x89PNG\r\n\x1a\n", thread_ts="1.1"), ""),
        (Upload(filename="answer.md", content=b"all of it", thread_ts="1.1"), ""),
        (React(target_ts="1.1", name="octagonal_sign"), ""),
    )
    assert [reply.text for reply in replies] == [
        "on it",
        "the answer",
        "📎 cat.png, 0.0 kB: see the thread in Slack.",
        "all of it",
        "stopped",
    ]
    assert replies[-1] == Done(ok=False, text="stopped")


async def test_markdown_reads_better_than_its_fallback() -> None:
    block = {"type": "markdown", "text": "**bold**"}
    replies = await hear(
        Listener("C1", "1.1", "1.1"),
        (Post(text="*bold*", thread_ts="1.1", blocks=(block,)), "1.2"),
        (React(target_ts="1.1", name="white_check_mark"), ""),
    )
    assert replies[0] == Said(text="**bold**", ts="1.2")


async def test_a_terminal_shows_no_secret_either() -> None:
    listeners = Listeners(redact=Redactor(["held-value-0123"]).redact)
    listener = Listener("C1", "1.1", "1.1")
    with listeners.added(listener):
        upload = Upload(filename="a.txt", content=b"key: held-value-0123", thread_ts="1.1")
        listeners.tell("C1", upload, "")
        listeners.tell("C1", React(target_ts="1.1", name="white_check_mark"), "")
        async with asyncio.timeout(30):
            assert [reply async for reply in listener.replies()] == [
                Said(text="📎 a.txt\nkey: [redacted]", ts="file "),
                Done(text="done"),
            ]
