"""What App Home is told of a repository's turns: what waits for people, and where that is decided."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from codebutler.domain.message import TICKED
from codebutler.domain.model import Asked, ButtonClicked, Post, TurnNote
from codebutler.protocol.messages import Overview, Send
from codebutler_worker.agents.backend import Approval, Finished, Question, Started, Text
from tests.events import clicked
from tests.shown import text_of
from tests.worker_kit import CHANNEL, USER, Parent, settings, worker

COMMAND = Approval("req-1", "Bash", "touch a", {"command": "touch a"})
LONG = Approval("req-2", "Bash", "touch b", {"command": "touch b " + "x" * 1500})
PLAN = Approval("req-3", "ExitPlanMode", "", {"plan": "1. look"})
COLOUR = Question("req-4", "Which <colour>?", ("Red", "Blue"))
PARTS = Question("req-5", "Which parts?", ("Roof", "Door"), several=True)


def notes(parent: Parent) -> tuple[TurnNote, ...]:
    told = parent.said(Overview)
    return told[-1].turns if told else ()


async def told(parent: Parent, state: str, asked: int = 0) -> TurnNote:
    """The newest turn once it is told in this state, with so much that is asked."""

    def look() -> list[TurnNote]:
        return [note for note in notes(parent)[:1] if note.state == state and len(note.asked) == asked]

    return (await parent.until(look, flow=True))[0]


def card_ts(parent: Parent, text: str) -> str:
    sends = [
        send
        for send in parent.said(Send)
        if isinstance(send.operation, Post) and text in text_of(send.operation)
    ]
    return parent.ts_of(sends[0].op_id)


async def test_what_is_asked_is_told_with_its_card(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.says("go", "100.1")
        run = await parent.run(0)
        run.does(Started("session-1"), COMMAND)
        note = await told(parent, "waiting", asked=1)
        [asked] = note.asked
        assert asked.card == card_ts(parent, "Permission needed")
        assert "touch a" in asked.text
        run.does(COLOUR)
        note = await told(parent, "waiting", asked=2)
        assert note.asked[1].text == "🤔 Which \\<colour>?"
        assert (note.asked[1].options, note.asked[1].is_question) == (("Red", "Blue"), True)


async def test_what_has_to_be_read_on_its_card_is_not_told(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.says("go", "100.1")
        run = await parent.run(0)
        run.does(Started("session-1"), LONG, PLAN, PARTS)
        note = await told(parent, "waiting", asked=3)
        assert [(asked.text, asked.options) for asked in note.asked] == [
            ("", ()),
            ("", ()),
            ("🤔 Which parts?", ("Roof", "Door")),
        ]
        parts = note.asked[2]
        assert parts.several
        event = replace(pressed(parts, "500.1"), action_id="codebutler.answer", value=f"{parts.id}:{TICKED}")
        parent.deliver(replace(event, picked=(f"{parts.id}:1", "other:0")))
        await parent.until(lambda: parent.backend.answers)
        assert [(id_, answer.text) for id_, answer in parent.backend.answers] == [("req-5", "Door")]


async def test_a_question_in_passing_is_told_until_it_is_answered(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.says("paint it", "100.1")
        run = await parent.run(0)
        envelope = "<<<SLACK:question>>>Which colour?\n\n- Blue\n- Green<<<END_SLACK>>>"
        run.does(Started("session-1"), Text(envelope), Finished(True, envelope, "done"))
        [asked] = (await told(parent, "waiting", asked=1)).asked
        assert (asked.text, asked.options) == ("🤔 Which colour?", ("Blue", "Green"))
        parent.deliver(replace(pressed(asked, "500.1"), action_id="codebutler.answer", value=f"{asked.id}:1"))
        again = await parent.run(1)
        assert again.request.prompt == "Green"
        again.finish("Painted.")
        await told(parent, "done")


async def test_a_decision_from_home_is_the_one_of_the_thread(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.says("go", "100.1")
        run = await parent.run(0)
        run.does(Started("session-1"), COMMAND)
        [asked] = (await told(parent, "waiting", asked=1)).asked
        for at in ("500.1", "500.2"):  # a double press, or home and thread
            parent.deliver(pressed(asked, at))
        await parent.post_with("Already decided by")
        await parent.until(lambda: parent.backend.answers)
        assert [(id_, answer.allow) for id_, answer in parent.backend.answers] == [("req-1", True)]
        await told(parent, "running")
        run.does(Finished(True, "Done.", "done"))
        await told(parent, "done")


async def test_an_interrupted_turn_is_told_with_the_card_that_asks(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.says("go", "100.1")
        (await parent.run(0)).does(Started("session-1"))
        await told(parent, "running")
    async with worker(settings(tmp_path)) as parent:
        await parent.post_with("The machine stopped")
        await parent.clock.advance(5)
        note = await told(parent, "interrupted")
        await parent.until(lambda: notes(parent)[0].card, flow=True)
        assert notes(parent)[0].card == card_ts(parent, "The machine stopped")
        parent.deliver(
            clicked(
                channel=CHANNEL,
                user=USER,
                message=notes(parent)[0].card,
                action_id="codebutler.drop",
                value=note.id,
                press="500.1",
                thread="100.1",
            )
        )
        await told(parent, "stopped")


def pressed(asked: Asked, at: str) -> ButtonClicked:
    return clicked(
        channel=CHANNEL,
        user=USER,
        message=asked.card,
        action_id="codebutler.allow",
        value=asked.id,
        press=at,
        thread="100.1",
    )


async def test_each_run_of_a_thread_is_told_when_it_has_ended(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        for number, (ref, text) in enumerate([("100.1", "write it"), ("100.2", "test it")]):
            parent.says(text, ref, "100.1")
            (await parent.run(number)).finish(f"Done {number}.")
            await parent.post_with(f"Done {number}")
        ended = [("test it", "done"), ("write it", "done")]
        await parent.until(lambda: [(note.text, note.state) for note in notes(parent)] == ended, flow=True)
