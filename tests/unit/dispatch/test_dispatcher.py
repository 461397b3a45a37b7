"""Every event passes the same steps in the same order, however long one of them keeps it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial

import pytest
from msgspec.structs import replace
from msgspec.structs import replace as with_fields

from codebutler.domain.model import Command, Prompt, Request
from codebutler.intake.dispatcher import GoOn
from codebutler.intake.records import Entry
from codebutler.observe.chain import AuditAct
from codebutler.platform.tasks import beside
from tests.dispatching import dispatcher
from tests.events import posted
from tests.seam import until

PING, ASKED = Command(name="ping", argument=""), Prompt(text="x")


def entry(seq: int, *, is_direct: bool = True, request: Request = PING) -> Entry:
    event = with_fields(posted(channel="D1", ref=f"{seq}.0", user="U1", text="x"), is_direct=is_direct)
    return Entry(seq, "D1", event, request, datetime(2026, 1, 1, tzinfo=UTC))


class Way:
    """Notes who sees what: the step of direct messages translates, the next one takes 3."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int, str]] = []
        self.dispatcher = dispatcher(
            partial(self.note, "deliver"),
            direct_message=self.direct_message,
            parent_command=self.parent_command,
            keep=self.keep,
        )

    def note(self, step: str, entry: Entry) -> None:
        self.seen.append((step, entry.seq, entry.channel))

    def direct_message(self, entry: Entry, go_on: GoOn) -> None:
        self.note("direct message", entry)
        go_on(replace(entry, channel="C1"))

    def parent_command(self, entry: Entry, go_on: GoOn) -> None:
        self.note("parent command", entry)
        if entry.seq != 3:
            go_on(entry)

    def keep(self, acts: Sequence[AuditAct]) -> None:
        self.seen += [("audit", 0, act.channel) for act in acts]


def test_the_steps_come_in_their_order_and_see_what_the_one_before_made_of_it() -> None:
    way = Way()
    way.dispatcher.dispatch(entry(1))
    assert way.seen == [("direct message", 1, "D1"), ("parent command", 1, "C1"), ("deliver", 1, "C1")]


@pytest.mark.parametrize(
    ("passing", "steps"),
    [
        (entry(1, is_direct=False, request=ASKED), ["audit", "deliver"]),
        (entry(1, is_direct=False), ["parent command", "deliver"]),
        (entry(1, request=ASKED), ["direct message", "audit", "deliver"]),
    ],
)
async def test_a_step_sees_only_what_concerns_it(passing: Entry, steps: list[str]) -> None:
    way = Way()
    async with beside(way.dispatcher.run(), name="audit"):
        way.dispatcher.dispatch(passing)
        await until(lambda: way.seen and way.seen[-1][0] == "deliver")
    assert [step for step, *_ in way.seen] == steps


def test_what_a_step_takes_is_seen_by_none_after_it() -> None:
    way = Way()
    way.dispatcher.dispatch(entry(3))
    assert way.seen[-1] == ("parent command", 3, "C1")


def test_what_is_held_goes_on_with_the_next_step() -> None:
    way = Way()
    way.dispatcher.hold("D1")
    for seq in (2, 4):
        way.dispatcher.dispatch(entry(seq))
    assert way.seen == []
    way.dispatcher.release("D1")
    assert [seq for step, seq, _ in way.seen if step == "deliver"] == [2, 4]
    assert [step for step, seq, _ in way.seen if seq == 2] == ["direct message", "parent command", "deliver"]
