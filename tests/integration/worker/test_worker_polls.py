"""Questions in passing: an envelope of type question, answered by a button or in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from codebutler.domain.model import Post
from codebutler.protocol.messages import Send
from codebutler_worker.agents.backend import Approval, Finished, Started, Text
from tests.events import clicked
from tests.shown import blocks_of, text_of
from tests.worker_kit import CHANNEL, USER, Parent, Run, settings, worker

ASKED = "<<<SLACK:question>>>Which colour?\n\n- Blue\n- **Green**<<<END_SLACK>>>"


def buttons(parent: Parent) -> list[tuple[str, str]]:
    """(label, value) of the newest question."""
    post = [post for post in parent.posts if "Which colour?" in text_of(post)][-1]
    elements = [element for block in blocks_of(post) for element in block.get("elements", [])]
    return [(element["text"]["text"], element["value"]) for element in elements]


def card_ts(parent: Parent) -> str:
    sends = [
        send
        for send in parent.said(Send)
        if isinstance(send.operation, Post) and "Which colour?" in text_of(send.operation)
    ]
    return parent.ts_of(sends[0].op_id)


def press(parent: Parent, value: str, *, user: str = USER, at: str = "500.1") -> int:
    event = clicked(
        channel=CHANNEL,
        user=user,
        message=card_ts(parent),
        action_id="codebutler.answer",
        value=value,
        press=at,
        thread="100.1",
        user_name="ana",
    )
    return parent.deliver(event)


async def asked(parent: Parent) -> Run:
    parent.says("paint it", "100.1")
    run = await parent.run(0)
    run.does(Started("session-1"), Text(ASKED))
    await parent.post_with("Which colour?")
    return run


async def test_a_press_becomes_the_next_message(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        run = await asked(parent)
        assert [label for label, _ in buttons(parent)] == ["Blue", "**Green**"]
        run.does(Finished(True, ASKED, "done"))  # an answer repeats what was said before
        await parent.until(lambda: parent.reactions("100.1") == ["white_check_mark"], flow=True)
        assert sum("Which colour?" in text_of(post) for post in parent.posts) == 1
        press(parent, buttons(parent)[0][1])
        again = await parent.run(1)
        assert (again.request.prompt, again.request.session_id) == ("Blue", "session-1")
        again.finish("Painted.")
        await parent.until(lambda: parent.reactions(card_ts(parent)) == ["white_check_mark"], flow=True)
        assert any("💬 ana: Blue" in text_of(update) for update in parent.updates)
        press(parent, buttons(parent)[1][1], at="500.2")
        await parent.post_with("Already decided by ana")
        assert len(parent.backend.runs) == 2


@pytest.mark.parametrize("busy", ["queue", "reject"])
async def test_a_press_while_it_works_waits_for_its_turn(tmp_path: Path, busy: str) -> None:
    async with worker(settings(tmp_path, busy=busy)) as parent:
        run = await asked(parent)
        press(parent, buttons(parent)[0][1])
        await parent.until(lambda: parent.reactions(card_ts(parent)) == ["hourglass_flowing_sand"], flow=True)
        run.finish()
        assert (await parent.run(1)).request.prompt == "Blue"


async def test_words_in_the_thread_answer_it_too(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        run = await asked(parent)
        run.finish()
        await parent.until(lambda: parent.reactions("100.1") == ["white_check_mark"], flow=True)
        parent.says("a kind of red", "9900.1", "100.1")
        assert (await parent.run(1)).request.prompt == "a kind of red"
        await parent.until(lambda: any(": a kind of red" in text_of(update) for update in parent.updates))


async def test_it_does_not_stand_in_the_way_of_leave(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        run = await asked(parent)
        run.does(Approval("req-1", "Bash", "ls", {"command": "ls"}))
        await parent.post_with("Permission needed")
        parent.says("yes", "9900.1", "100.1")
        await parent.until(lambda: [id_ for id_, _ in parent.backend.answers] == ["req-1"])
        run.finish()
        await parent.until(lambda: parent.reactions("100.1") == ["white_check_mark"], flow=True)
        assert not any("Which colour?" in text_of(update) for update in parent.updates)


@pytest.mark.parametrize("choice", ["7", "", "x", "-1", "99"])
async def test_what_is_no_option_is_no_answer(tmp_path: Path, choice: str) -> None:
    async with worker(settings(tmp_path)) as parent:
        await asked(parent)
        approval_id = buttons(parent)[0][1].partition(":")[0]
        await parent.stored(press(parent, f"{approval_id}:{choice}"))
        assert not any("💬" in text_of(update) for update in parent.updates)


async def test_a_question_without_options_is_only_said(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.says("paint it", "100.1")
        run = await parent.run(0)
        run.does(Started("s"), Text("<<<SLACK:question>>>Which colour?<<<END_SLACK>>>"))
        await parent.post_with("🤔 Which colour?")
        assert buttons(parent) == []
