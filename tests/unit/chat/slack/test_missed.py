"""What history and the journal prove together about a time when nobody listened."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codebutler.chat.slack.answers import ts_at
from codebutler.chat.slack.missed import ShownMessage, earlier, missed, threads, unsettled, window
from codebutler.domain.model import Event, MessageDeleted, MessageEdited, MessagePosted
from codebutler.intake.intake import dated
from codebutler.intake.records import Gap, SeenMessage
from tests import events
from tests.events import deleted, edited

START = datetime(2026, 1, 1, tzinfo=UTC)
NOW = START + timedelta(hours=2)
FLOOR = ts_at(START.timestamp() - 86400)


def at(minute: float) -> str:
    return ts_at(START.timestamp() + minute * 60)


def posted(ts: str, text: str = "hello", thread: str | None = None) -> MessagePosted:
    return events.posted(channel="C1", ref=ts, user="U1", text=text, thread=thread)


def show(ts: str, thread_ts: str | None = None, **more: str) -> ShownMessage:
    return ShownMessage(ts=ts, event=posted(ts, thread=thread_ts), **more)  # type: ignore[arg-type]  # texts only


def seen(ts: str, root_ts: str = "", *, taken: bool = True) -> SeenMessage:
    return SeenMessage(ts, root_ts or ts, "U1", taken, float(ts))


def gap(*known: SeenMessage, since: str = at(0), floor: str = FLOOR) -> Gap:
    first_s = (float(since), float(floor))
    return Gap("C1", *first_s, known, min((each.root for each in known), default=""), known)


def latest(shown: list[ShownMessage]) -> dict[str, str]:
    return {each.ts: each.latest_reply for each in shown if each.latest_reply}


def proved(hole: Gap, shown: list[ShownMessage], complete: set[str | None]) -> list[Event]:
    return missed(hole, window(hole, NOW), shown, complete)


def test_new_messages_come_in_order_and_known_ones_do_not() -> None:
    hole = gap(seen(at(-1)), seen(at(2)))
    shown = [show(at(3)), show(at(2)), show(at(1)), show(at(-1))]
    assert proved(hole, shown, {None}) == [posted(at(1)), posted(at(3))]


@pytest.mark.parametrize(
    ("signs", "handled"),
    [
        ({}, "no"),
        ({"marks": frozenset({"white_check_mark"})}, "yes"),
        ({"marks": frozenset({"eyes", "x"})}, "yes"),
        ({"marks": frozenset({"octagonal_sign"}), "replied": True}, "yes"),
        ({"marks": frozenset({"eyes"})}, "maybe"),
        ({"marks": frozenset({"hourglass_flowing_sand"})}, "maybe"),
        ({"replied": True}, "maybe"),
    ],
)
def test_our_own_signs_tell_what_was_handled_in_a_life_that_is_forgotten(
    signs: dict[str, Any], handled: str
) -> None:
    (event,) = proved(gap(), [ShownMessage(ts=at(1), event=posted(at(1)), **signs)], {None})
    assert isinstance(event, MessagePosted)
    assert event.handled == handled
    late = dated(event, NOW, START, 12)
    assert isinstance(late, MessagePosted)
    assert late.stale == (handled == "maybe")


def test_what_was_passed_over_stays_so_whatever_becomes_of_it() -> None:
    hole = gap(seen(at(1), taken=False), seen(at(2), taken=False))
    assert proved(hole, [show(at(1), edited_ts=at(5))], {None}) == []


def test_what_was_said_before_we_ever_listened_is_not_ours() -> None:
    hole = gap(floor=at(0))
    assert proved(hole, [show(at(-30)), show(at(0)), show(at(1))], {None}) == [posted(at(1))]


def test_an_edit_of_a_known_message_is_told_and_one_of_a_new_one_is_its_text() -> None:
    hole = gap(seen(at(-1)))
    events = proved(hole, [show(at(-1), edited_ts=at(4)), show(at(2), edited_ts=at(3))], {None})
    assert events == [
        edited(channel="C1", ref=at(-1), user="U1", text="hello", edit=at(4)),
        posted(at(2)),
    ]


def test_absence_is_deletion_only_where_everything_was_read() -> None:
    root, reply, other = seen(at(-9)), seen(at(-8), at(-9)), seen(at(-7))
    hole = gap(root, reply, other)
    gone = [ShownMessage(ts=at(-9), gone=True)]
    top = [
        deleted(channel="C1", ref=at(-9), user="U1"),
        deleted(channel="C1", ref=at(-7), user="U1"),
    ]
    assert proved(hole, gone, set()) == []
    assert proved(hole, gone, {None}) == top
    whole = proved(hole, gone, {None, at(-9)})
    assert whole == [
        top[0],
        deleted(channel="C1", ref=at(-8), user="U1", thread=at(-9)),
        top[1],
    ]


def test_what_lies_before_the_window_is_not_called_deleted() -> None:
    assert proved(gap(seen(at(-61))), [], {None}) == []


def test_the_window_holds_the_first_message_of_every_living_thread() -> None:
    hole = gap(seen(at(-60 * 24 * 2), at(-60 * 24 * 3)), seen(at(-60 * 24), at(-60 * 24 * 3)))
    frame = window(hole, NOW)
    assert frame.oldest_s < float(at(-60 * 24 * 3))
    assert frame.look_s == float(at(-60))


def test_after_a_very_long_time_only_the_last_days_are_looked_at() -> None:
    frame = window(gap(), NOW + timedelta(days=30))
    assert frame.oldest_s == frame.look_s == (NOW + timedelta(days=23)).timestamp()


def test_threads_are_read_where_somebody_wrote_and_then_where_something_may_still_wait() -> None:
    quiet, busy, waiting = at(-90), at(-80), at(-70)
    ancient = at(-60 * 24 * 9)
    hole = gap(seen(at(-600), ancient), seen(quiet), seen(busy), seen(at(-10), waiting))
    frame = window(hole, NOW)
    shown = [show(quiet, latest_reply=at(-85)), show(busy, latest_reply=at(20)), show(waiting)]
    assert threads(hole, frame, shown) == [busy, ancient]
    assert earlier(hole, frame, latest(shown)) == []
    assert unsettled(hole, frame) == [waiting]


def test_a_thread_written_in_before_the_gap_may_hold_what_never_came() -> None:
    root, old = seen(at(-30)), at(-300)
    hole = gap(root, seen(at(-1)))
    frame = window(hole, NOW)
    shown = [show(root.ref, latest_reply=at(-20)), show(old, latest_reply=at(-200)), show(at(-1))]
    assert threads(hole, frame, shown) == []
    assert earlier(hole, frame, latest(shown)) == [root.ref]


# One message's fate: when it was written, in which thread, and what became of it while nobody listened.
FATES = st.lists(
    st.tuples(
        st.integers(-50, 50),
        st.integers(-50, 50),
        st.sampled_from(["kept", "edited", "deleted"]),
        st.booleans(),
    ),
    max_size=12,
    unique_by=lambda fate: fate[0],
)


@given(FATES)
def test_the_events_lead_from_what_was_known_to_what_is_there(
    fates: list[tuple[int, int, str, bool]],
) -> None:
    """Whatever happened: applied to what was known, the events give the channel as it is."""
    minutes = {fate[0] for fate in fates}
    before: dict[str, tuple[str | None, str]] = {}
    after: dict[str, tuple[str | None, str]] = {}
    shown: list[ShownMessage] = []
    for minute, root, fate, in_thread in sorted(fates):
        thread_ts = at(root) if in_thread and root in minutes and root < minute else None
        if minute <= 0:
            before[at(minute)] = (thread_ts, "old")
        if fate == "deleted":
            continue
        text = "new" if fate == "edited" else "old"
        after[at(minute)] = (thread_ts, text)
        shown.append(
            ShownMessage(
                ts=at(minute),
                event=posted(at(minute), text, thread_ts),
                edited_ts=at(60) if fate == "edited" else "",
            )
        )
    known = tuple(seen(ts, thread_ts or ts) for ts, (thread_ts, _) in sorted(before.items()))
    hole = Gap("C1", float(max(before, default=at(0))), float(FLOOR), known)
    events = proved(hole, shown, {None, *(at(minute) for minute in minutes)})
    order = [event.ref for event in events if isinstance(event, MessagePosted | MessageEdited)]
    assert order == sorted(order)
    for event in events:
        match event:
            case MessagePosted(ref=ts):
                assert ts not in before
                before[ts] = (event.thread, event.text)
            case MessageEdited(ref=ts):
                before[ts] = (event.thread, event.text)
            case MessageDeleted(ref=ts):
                del before[ts]
    assert before == after
