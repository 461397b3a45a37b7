"""In which order marks leave that wait for something to be said."""

from __future__ import annotations

from typing import Any, cast

import msgspec
from msgspec.structs import replace

from codebutler.domain.message import Button, said
from codebutler.domain.model import Operation, Post, React, TurnOutcome, Update, Upload
from codebutler.protocol.messages import PIECE_BYTES, Send, TurnEnded, UploadPiece
from codebutler_worker.runtime.runtime import Outbox, _left_behind
from codebutler_worker.store.rows import OutboxRow
from codebutler_worker.store.unit_of_work import Store

STOP = Button("Stop", "codebutler.stop", "t1")


class Forgetful:
    """A store that keeps nothing."""

    async def run(self, _: Any) -> Any:
        return None


def row(
    op_id: str, operation: Operation, after: str | None = None, conversation: str = "C1:1.0"
) -> tuple[OutboxRow, Operation]:
    committed = OutboxRow(
        op_id=op_id,
        turn_id="t",
        conversation=conversation,
        kind=type(operation).__name__.lower(),  # type: ignore[arg-type]  # one of its words
        payload="",
        target_op_id=after,
        created_at="",
    )
    return committed, operation


def ending(
    op_id: str, outcome: TurnOutcome = "done", conversation: str = "C1:1.0"
) -> tuple[OutboxRow, TurnEnded]:
    told = TurnEnded(op_id=op_id, thread="1.0", messages=("1.0",), outcome=outcome)
    return OutboxRow(
        op_id=op_id, turn_id="t", conversation=conversation, kind="ended", payload="", created_at=""
    ), told


def react(name: str, *, remove: bool = False) -> React:
    return React(target="1.0", mark=name, remove=remove)


async def test_marks_that_are_taken_away_before_they_could_be_set_are_neither() -> None:
    sent: list[Send | TurnEnded | UploadPiece] = []
    outbox = Outbox(cast(Store, Forgetful()), sent.append)
    await outbox.publish([row("card", Post(message=said("it waits")))])
    await outbox.publish(
        [row("wait", react("queued"), "card"), row("off", react("working", remove=True), "card")]
    )
    # Somebody lets it go on at once, while it is not known yet whether the card was posted.
    await outbox.publish([row("on", react("working")), row("unwait", react("queued", remove=True))])
    await outbox.publish([row("answer", Post(message=said("done")))])
    await outbox.publish(
        [row("tick", react("done"), "answer"), row("end", react("working", remove=True), "answer")]
    )
    assert [each.op_id for each in sent] == ["card", "answer"]
    await outbox.settle("answer", "3.0")
    assert [each.op_id for each in sent[2:]] == ["tick"]
    await outbox.settle("card", "2.0")
    # What an earlier turn has left is taken away; the rest was over before it could be seen.
    assert [each.op_id for each in sent[3:]] == ["off"]
    await outbox.settle("tick", "")
    await outbox.settle("off", "")
    assert not outbox.pending


async def test_a_mark_is_not_taken_away_before_the_same_one_is_set() -> None:
    sent: list[Send | TurnEnded | UploadPiece] = []
    outbox = Outbox(cast(Store, Forgetful()), sent.append)
    await outbox.publish([row("card", Post(message=said("it waits")))])
    await outbox.publish([row("off", react("working", remove=True), "card")])
    await outbox.publish([row("on", react("working"))])
    assert [each.op_id for each in sent] == ["card"]
    await outbox.settle("card", "2.0")
    assert [each.op_id for each in sent] == ["card", "off", "on"]
    await outbox.publish([row("end", react("working", remove=True))])
    assert [each.op_id for each in sent] == ["card", "off", "on", "end"]


async def test_nothing_of_a_conversation_overtakes_what_waits_for_an_edit() -> None:
    sent: list[Send | TurnEnded | UploadPiece] = []
    outbox = Outbox(cast(Store, Forgetful()), sent.append)
    await outbox.publish([row("edit", Update(target="1.0", message=said("the last lines")))])
    await outbox.publish(
        [row("end", Post(message=said("it ended")), "edit"), row("tick", react("done"), "end")]
    )
    await outbox.publish([row("next", Post(message=said("the next turn"))), row("eyes", react("working"))])
    await outbox.publish([row("other", Post(message=said("elsewhere")), conversation="C1:2.0")])
    assert [each.op_id for each in sent] == ["edit", "eyes", "other"]
    await outbox.settle("edit", "1.0")
    assert [each.op_id for each in sent[3:]] == ["end", "next"]
    await outbox.settle("end", "2.0")
    assert [each.op_id for each in sent[5:]] == ["tick"]


async def test_what_waits_for_an_edit_is_said_when_slack_has_refused_the_edit() -> None:
    sent: list[Send | TurnEnded | UploadPiece] = []
    outbox = Outbox(cast(Store, Forgetful()), sent.append)
    await outbox.publish([row("edit", Update(target="1.0", message=said("the last lines")))])
    await outbox.publish([row("end", Post(message=said("it ended")), "edit")])
    await outbox.settle("edit", code="message_not_found")
    assert [each.op_id for each in sent] == ["edit", "end"]


async def test_a_large_file_goes_ahead_of_its_operation_in_pieces() -> None:
    sent: list[Send | TurnEnded | UploadPiece] = []
    outbox = Outbox(cast(Store, Forgetful()), sent.append)
    content = bytes(PIECE_BYTES) + b"the end"
    await outbox.publish([row("small", Upload(filename="a", content=b"a"))])
    await outbox.publish([row("large", Upload(filename="b", content=content))])
    pieces = [each for each in sent if isinstance(each, UploadPiece)]
    assert b"".join(piece.data for piece in pieces) == content
    assert [each.op_id for each in sent] == ["small", "large", "large", "large"]
    assert [each.operation for each in sent if isinstance(each, Send)] == [
        Upload(filename="a", content=b"a"),
        Upload(filename="b", content=b""),
    ]


async def test_the_end_of_a_turn_is_told_when_all_that_answers_it_is_there() -> None:
    sent: list[Send | TurnEnded | UploadPiece] = []
    outbox = Outbox(cast(Store, Forgetful()), sent.append)
    await outbox.publish(
        [
            row("file", Upload(filename="a", content=b"a")),
            row("answer", Post(message=said("done"))),
            row("page", Update(target="1.1", message=said("the last page"), value="answer")),
            row("progress", Update(target="1.2", message=said("✅ Done"))),
            row("tick", react("done"), "answer"),
            ending("end"),
        ]
    )
    await outbox.publish([ending("lost", "interrupted"), ending("elsewhere", conversation="C1:2.0")])
    await outbox.publish([row("next", Post(message=said("of the next turn")))])
    assert [each.op_id for each in sent] == [
        "file",
        "answer",
        "page",
        "progress",
        "lost",
        "elsewhere",
        "next",
    ]
    await outbox.settle("answer", "2.0")
    await outbox.settle("page", code="message_not_found")
    assert [each.op_id for each in sent[7:]] == ["tick"]
    await outbox.settle("file", "")
    assert [each.op_id for each in sent[8:]] == ["end"]
    for op_id in ("end", "lost", "elsewhere", "next", "tick", "progress"):
        assert outbox.pending
        await outbox.settle(op_id, "")
    assert not outbox.pending


def full(count: int) -> list[tuple[OutboxRow, Operation]]:
    """So much is under way that what comes next waits."""
    elsewhere = [row(f"p{n}", Post(message=said("x")), conversation=f"C1:{n}.9") for n in range(count)]
    edits = [row(f"u{n}", Update(target=f"{n}.8", message=said("x"))) for n in range(count)]
    marks = [row(f"m{n}", React(target=f"{n}.7", mark="working")) for n in range(100)]
    return [*elsewhere, *edits, *marks]


async def test_what_was_made_needless_before_it_left_is_not_sent() -> None:
    sent: list[Send | TurnEnded | UploadPiece] = []
    outbox = Outbox(cast(Store, Forgetful()), sent.append)
    await outbox.publish(full(64))
    under_way = len(sent)
    progress = Post(message=said("at work", STOP), value="progress")
    await outbox.publish([row("progress", progress), row("eyes", react("working"))])
    await outbox.publish([row("first", Update(target="", message=said("1")), "progress")])
    await outbox.publish([row("again", Update(target="5.0", message=said("1")))])
    await outbox.publish([row("newer", Update(target="5.0", message=said("2")))])
    # The turn ends: its answer, what becomes of its progress, its marks.
    await outbox.publish(
        [
            row("answer", Post(message=said("done"))),
            row("last", Update(target="", message=said("Done")), "progress"),
            row("tick", react("done"), "answer"),
            row("off", react("working", remove=True), "answer"),
            ending("end"),
        ]
    )
    assert [each.op_id for each in sent[under_way:]] == []
    for each in sent:
        # The list grows as there is room again.
        await outbox.settle(each.op_id, "9.0")
    assert [each.op_id for each in sent[under_way:]] == ["answer", "newer", "tick", "end"]
    assert not outbox.pending


async def test_progress_that_is_under_way_when_its_turn_ends_is_needed_no_more() -> None:
    sent: list[Send | TurnEnded | UploadPiece] = []
    outbox = Outbox(cast(Store, Forgetful()), sent.append)
    progress = Post(message=said("at work", STOP), value="progress")
    await outbox.publish([row("progress", progress)])
    await outbox.publish([row("last", Update(target="", message=said("Done")), "progress"), ending("end")])
    told = [each for each in sent if isinstance(each, Send)]
    assert [(each.op_id, each.unsure) for each in told] == [("progress", False), ("progress", True)]
    assert told[1].operation == Post(message=said("at work", STOP), value="progress", outdated=True)
    # It came too late for that: so it is brought to its end.
    await outbox.settle("progress", "9.0")
    await outbox.settle("progress", "")
    assert [each.operation for each in sent if isinstance(each, Send) and each.op_id == "last"] == [
        Update(target="9.0", message=said("Done"))
    ]


class Remembering(Forgetful):
    """A store with what an earlier worker left behind."""

    def __init__(self, *left: tuple[OutboxRow, Operation]) -> None:
        self.rows = [replace(row, payload=msgspec.json.encode(operation).decode()) for row, operation in left]

    async def run(self, work: Any) -> Any:
        return (self.rows, {}, frozenset()) if work is _left_behind else None


async def test_an_edit_left_behind_that_a_later_one_replaces_is_settled_at_once() -> None:
    sent: list[Any] = []
    edits = [row(name, Update(target="5.0", message=said(name))) for name in ("first", "second")]
    outbox = Outbox(cast(Store, Remembering(*edits)), sent.append)
    assert await outbox.restore() == 2
    assert [each.op_id for each in sent] == ["second"]
    assert outbox.pending == 1
    await outbox.settle("second")
    await outbox.drained()
