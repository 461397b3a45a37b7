"""Several questions of one call: on one card, each answered once, and the agent goes on when all are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from codebutler.domain.model import Post, Update
from codebutler.protocol.messages import Heartbeat
from codebutler_worker.agents.backend import Question, Started, Withdrawn
from tests.events import clicked
from tests.shown import blocks_of, text_of
from tests.worker_kit import CHANNEL, USER, Parent, Run, expiring, settings, worker

COLOUR = Question("req-1#0", "Which colour?", ("Red", "Blue"), ("warm", "calm"), of=3)
PARTS = Question("req-1#1", "Which parts?", ("Roof", "Walls, all", "Floor"), several=True, of=3)
SIZE = Question("req-1#2", "How big?", of=3)
BEN = "U0BEN"


def elements(card: Post | Update, kind: str) -> list[dict[str, Any]]:
    found = [one for block in blocks_of(card) for one in block.get("elements", [])]
    return [one for one in found if one["type"] == kind]


def value(card: Post | Update, label: str) -> str:
    """The value of a button or a box."""
    boxes = [option for group in elements(card, "checkboxes") for option in group["options"]]
    return next(
        str(one["value"]) for one in [*elements(card, "button"), *boxes] if one["text"]["text"] == label
    )


def press(
    parent: Parent,
    pressed: str,
    at: str,
    *,
    user: str = USER,
    name: str = "ana",
    picked: tuple[str, ...] = (),
) -> int:
    event = clicked(
        channel=CHANNEL,
        user=user,
        message="9000.000001",
        action_id="codebutler.answer",
        value=pressed,
        press=at,
        thread="100.1",
        user_name=name,
        picked=picked,
    )
    return parent.deliver(event)


async def asks(parent: Parent, *asked: Question) -> tuple[Run, Post]:
    parent.says("build it", "100.1")
    run = await parent.run(0)
    run.does(Started("session-1"), *asked)
    await parent.until(lambda: parent.said(Heartbeat)[-1].waiting == 1)
    return run, await parent.post_with(asked[0].text)


def answers(parent: Parent) -> list[tuple[str, bool, str]]:
    return [(id_, answer.allow, answer.text) for id_, answer in parent.backend.answers]


async def updated(parent: Parent, *texts: str) -> Update:
    """The card once it says all of this."""

    def look() -> list[Update]:
        return [one for one in parent.updates if all(text in text_of(one) for text in texts)]

    return (await parent.until(look, flow=True))[-1]


async def test_they_share_a_card_and_are_answered_one_by_one(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        _, card = await asks(parent, COLOUR, PARTS, SIZE)
        assert len(parent.posts) == 1
        assert [text in text_of(card) for text in ("1 of 3", "Which parts?", "3 of 3")] == [True] * 3
        ticked = (value(card, "Roof"), value(card, "Walls, all"))
        press(parent, value(card, "Blue"), "500.1", picked=ticked)
        again = await updated(parent, "💬 ana: Blue")
        [group] = elements(again, "checkboxes")
        assert [one["value"] for one in group["initial_options"]] == [*ticked]
        assert parent.said(Heartbeat)[-1].waiting == 1
        press(parent, value(card, "Done"), "500.2", user=BEN, name="ben", picked=ticked)
        await updated(parent, "💬 ben: Roof, Walls, all")
        parent.says("as big as a house", "9900.1", "100.1")
        await parent.until(lambda: len(answers(parent)) == 3)
        assert answers(parent) == [
            ("req-1#0", True, "Blue"),
            ("req-1#1", True, "Roof, Walls, all"),
            ("req-1#2", True, "as big as a house"),
        ]
        await parent.until(lambda: parent.said(Heartbeat)[-1].running == 1)
        closed = await updated(parent, "as big as a house")
        assert elements(closed, "button") == []


async def test_words_answer_the_first_open_question(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        _, card = await asks(parent, COLOUR, PARTS, SIZE)
        parent.says("something like teal", "9900.1", "100.1")
        parent.says("the roof and a bit of wall", "9900.2", "100.1")
        await parent.until(lambda: len(answers(parent)) == 2)
        press(parent, value(card, "Red"), "500.1", user=BEN)
        await parent.post_with("Already decided by")
        assert answers(parent) == [
            ("req-1#0", True, "something like teal"),
            ("req-1#1", True, "the roof and a bit of wall"),
        ]


async def test_nothing_ticked_and_foreign_boxes_answer_nothing(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        _, card = await asks(parent, COLOUR, PARTS, SIZE)
        await parent.stored(press(parent, value(card, "Done"), "500.1"))
        await parent.post_with("Nothing is selected")
        strange = (value(card, "Blue"), value(card, "Roof").replace(":0", ":7"), "x")
        await parent.stored(press(parent, value(card, "Done"), "500.2", picked=strange))
        await parent.until(lambda: sum("Nothing is selected" in text_of(post) for post in parent.posts) == 2)
        assert answers(parent) == []
        assert parent.said(Heartbeat)[-1].waiting == 1


async def test_what_nobody_answers_expires_once_and_keeps_the_answers_given(tmp_path: Path) -> None:
    async with worker(expiring(settings(tmp_path), minutes=30)) as parent:
        _, card = await asks(parent, COLOUR, PARTS, SIZE)
        press(parent, value(card, "Blue"), "500.1")
        await parent.until(lambda: len(answers(parent)) == 1)
        await parent.clock.advance(1801)
        await parent.until(lambda: len(answers(parent)) == 3)
        nobody = "(Nobody answered this within 30 minutes.)"
        assert answers(parent)[1:] == [("req-1#1", True, nobody), ("req-1#2", True, nobody)]
        await parent.post_with("Nobody decided within 30 minutes")
        assert sum("Nobody decided" in text_of(post) for post in parent.posts) == 1


async def test_where_nobody_answers_anything_the_call_is_refused_once(tmp_path: Path) -> None:
    async with worker(expiring(settings(tmp_path), minutes=30)) as parent:
        await asks(parent, COLOUR, PARTS, SIZE)
        await parent.clock.advance(1801)
        await parent.until(lambda: answers(parent))
        await parent.until(lambda: parent.said(Heartbeat)[-1].running == 1)
        assert answers(parent) == [("req-1#0", False, "Nobody decided within 30 minutes.")]
        assert sum("Nobody decided" in text_of(post) for post in parent.posts) == 1


async def test_what_the_agent_takes_back_is_closed_at_once(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        run, card = await asks(parent, COLOUR, PARTS, SIZE)
        press(parent, value(card, "Blue"), "500.1")
        await parent.until(lambda: len(answers(parent)) == 1)
        run.does(Withdrawn("req-1"))
        closed = await updated(parent, "💬 ana: Blue", "withdrew this")
        assert text_of(closed).count("withdrew this") == 2
        press(parent, value(card, "Done"), "500.2", picked=(value(card, "Roof"),))
        await parent.post_with("That card is closed.")
        assert len(answers(parent)) == 1


async def test_the_answers_outlive_the_worker_on_their_card(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        _, card = await asks(parent, COLOUR, PARTS, SIZE)
        press(parent, value(card, "Blue"), "500.1")
        await parent.until(lambda: len(answers(parent)) == 1)
    async with worker(settings(tmp_path)) as parent:
        closed = await updated(parent, "💬 ana: Blue", "NOT run")
        assert text_of(closed).count("NOT run") == 2
        press(parent, value(card, "Done"), "500.2", picked=(value(card, "Roof"),))
        await parent.post_with("That card is closed.")
        assert parent.backend.runs == []
        notice = await parent.post_with("The machine stopped")
        parent.deliver(
            clicked(
                channel=CHANNEL,
                user=USER,
                message="9000.000009",
                action_id="codebutler.retry",
                value=value(notice, "Continue"),
                press="600.1",
                thread="100.1",
            )
        )
        again = await parent.run(0)
        assert "Which colour? -> Blue" in again.request.prompt
        assert "Which parts?" not in again.request.prompt
