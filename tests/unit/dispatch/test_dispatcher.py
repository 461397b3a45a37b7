"""Every event passes the same steps in the same order, however long one of them keeps it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace as with_fields

from codebutler.domain.model import Command, Prompt, Request
from codebutler.intake.intake import Dispatcher, GoOn
from codebutler.intake.records import Entry
from tests.events import posted

PING, ASKED = Command(name="ping", argument=""), Prompt(text="x")


def entry(seq: int, *, is_direct: bool = True, request: Request = PING) -> Entry:
    event = with_fields(posted(channel="D1", ref=f"{seq}.0", user="U1", text="x"), is_direct=is_direct)
    return Entry(seq, "D1", event, request, datetime(2026, 1, 1, tzinfo=UTC))


class Way:
    """Notes who sees what; the first step keeps what is even, the second translates, the third takes 3."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int, str]] = []
        self.kept: list[tuple[Entry, GoOn]] = []
        self.dispatcher = Dispatcher(
            held_back=self.held_back,
            direct_message=self.direct_message,
            parent_command=self.parent_command,
            audit=self.audit,
            overheard=lambda entry, go_on: go_on(entry),
            deliver=self.deliver,
        )

    def note(self, step: str, entry: Entry) -> None:
        self.seen.append((step, entry.seq, entry.channel))

    def held_back(self, entry: Entry, go_on: GoOn) -> None:
        self.note("held back", entry)
        if entry.seq % 2:
            go_on(entry)
        else:
            self.kept.append((entry, go_on))

    def direct_message(self, entry: Entry, go_on: GoOn) -> None:
        self.note("direct message", entry)
        go_on(replace(entry, channel="C1"))

    def parent_command(self, entry: Entry, go_on: GoOn) -> None:
        self.note("parent command", entry)
        if entry.seq != 3:
            go_on(entry)

    def audit(self, entry: Entry, go_on: GoOn) -> None:
        self.note("audit", entry)
        go_on(entry)

    def deliver(self, entry: Entry) -> None:
        self.note("deliver", entry)


def test_the_steps_come_in_their_order_and_see_what_the_one_before_made_of_it() -> None:
    way = Way()
    way.dispatcher.dispatch(entry(1))
    assert way.seen == [
        ("held back", 1, "D1"),
        ("direct message", 1, "D1"),
        ("parent command", 1, "C1"),
        ("audit", 1, "C1"),
        ("deliver", 1, "C1"),
    ]


@pytest.mark.parametrize(
    ("passing", "steps"),
    [
        (entry(1, is_direct=False, request=ASKED), ["held back", "audit", "deliver"]),
        (entry(1, is_direct=False), ["held back", "parent command", "audit", "deliver"]),
        (entry(1, request=ASKED), ["held back", "direct message", "audit", "deliver"]),
    ],
)
def test_a_step_sees_only_what_concerns_it(passing: Entry, steps: list[str]) -> None:
    way = Way()
    way.dispatcher.dispatch(passing)
    assert [step for step, *_ in way.seen] == steps


def test_what_a_step_takes_is_seen_by_none_after_it() -> None:
    way = Way()
    way.dispatcher.dispatch(entry(3))
    assert way.seen[-1] == ("parent command", 3, "C1")


def test_what_a_step_kept_goes_on_where_it_was() -> None:
    way = Way()
    for seq in (2, 4, 1):
        way.dispatcher.dispatch(entry(seq))
    assert [seq for step, seq, _ in way.seen if step == "deliver"] == [1]
    for kept, go_on in way.kept:
        go_on(kept)
    assert [seq for step, seq, _ in way.seen if step == "held back"] == [2, 4, 1]
    assert [seq for step, seq, _ in way.seen if step == "deliver"] == [1, 2, 4]
