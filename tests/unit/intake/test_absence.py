"""What the end of a time without us is worth telling."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from codebutler.intake.absence import (
    PRESSES_NOT_KEPT,
    Absence,
    Arrival,
    ChatRetention,
    late,
    line,
    merged,
    span,
    with_interrupted,
)

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def at(minutes: float) -> datetime:
    return NOON + timedelta(minutes=minutes)


def sent(minutes: float) -> float:
    return at(minutes).timestamp()


def away(*spans: tuple[float, float]) -> Absence:
    return Absence(id="a", spans=tuple((at(since), at(until)) for since, until in spans))


FOUR = away((0, 4))
MEANWHILE = Arrival(sent(2), at(4.1))


@pytest.mark.parametrize(
    ("absence", "arrivals", "newest_s", "expected"),
    [
        (
            FOUR,
            [MEANWHILE] * 3,
            0.0,
            "👋 Back after 4 min: 3 messages sent meanwhile are answered late.",
        ),
        (FOUR, [MEANWHILE], 0.0, "👋 Back after 4 min: 1 message sent meanwhile is answered late."),
        (
            with_interrupted(FOUR, "C1"),
            [MEANWHILE],
            0.0,
            "👋 Back after 4 min: 1 message sent meanwhile is answered late, "
            "1 interrupted run asks in its thread how to continue.",
        ),
        (with_interrupted(FOUR, "C2"), [], 0.0, ""),
        (FOUR, [], 0.0, ""),
        (FOUR, [], sent(-5), "👋 Back after 4 min: nothing was missed."),
        (FOUR, [], sent(-45), ""),
        (away((0, 0.5)), [], sent(-5), ""),
        (away((0, 0.5)), [Arrival(sent(0.2), at(0.6))], 0.0, None),
        (replace(FOUR, told=("C1",)), [MEANWHILE], sent(-5), ""),
    ],
)
def test_only_where_something_happened(
    absence: Absence, arrivals: list[Arrival], newest_s: float, expected: str | None
) -> None:
    told = line(absence, "C1", arrivals, newest_s)
    assert told.startswith("👋 Back after 30 s") if expected is None else told == expected


def test_late_is_what_was_written_meanwhile_and_came_afterwards() -> None:
    absence = away((0, 4), (6, 9))
    in_time = [Arrival(sent(-1), at(-1)), Arrival(sent(5), at(5)), Arrival(sent(10), at(10))]
    # The beginning is not known exactly: what came before the death may lie after it.
    just_before = [Arrival(sent(0.1), at(0.1))]
    afterwards = [Arrival(sent(1), at(4.1)), Arrival(sent(7), at(9.1))]
    assert late(absence, in_time + just_before) == 0
    assert late(absence, in_time + just_before + afterwards) == 2


def test_what_slack_held_back_and_brought_with_the_connection_is_late() -> None:
    absence = away((0, 4))
    held_back, just_said = Arrival(sent(1), at(3.995)), Arrival(sent(3.99), at(3.995))
    long_before = Arrival(sent(0.5), at(0.6))
    assert late(absence, [held_back]) == 1
    assert late(absence, [just_said, long_before]) == 0


@pytest.mark.parametrize("done", [True, False])
def test_in_a_loop_of_crashes_a_channel_is_told_once(*, done: bool) -> None:
    absence = replace(away((0, 1)), told=("C1",), done=done)
    for minute in range(2, 400, 3):
        latest = Absence(id=str(minute), spans=((at(minute), at(minute + 1)),))
        absence = replace(merged(absence, latest), done=done)
    assert absence.told == ("C1",)
    assert len(absence.spans) <= 20
    arrivals = [Arrival(sent(398.5), at(399.1))]
    assert line(absence, "C1", arrivals, 0.0) == ""
    assert line(absence, "C2", arrivals, 0.0) != ""


def test_what_was_not_told_any_more_is_told_by_the_next_life() -> None:
    both = merged(FOUR, Absence(id="b", spans=((at(5), at(6)),)))
    assert both.id == "a"
    assert late(both, [MEANWHILE]) == 1
    told = merged(replace(FOUR, done=True), Absence(id="b", spans=((at(5), at(6)),)))
    assert told.id == "b"
    assert late(told, [MEANWHILE]) == 0


def test_what_follows_much_later_is_told_anew() -> None:
    later = Absence(id="b", spans=((at(5), at(60)),))
    assert merged(replace(FOUR, told=("C1",), done=True), later) == later
    assert merged(None, later) == later


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "1 s"),
        (41, "41 s"),
        (60, "1 min"),
        (250, "4 min"),
        (7000, "117 min"),
        (8 * 3600, "8 h"),
        (200_000, "2 days"),
    ],
)
def test_a_time_in_words(seconds: float, words: str) -> None:
    assert span(timedelta(seconds=seconds)) == words


DAY = 24 * 60.0
LOST = "Messages sent more than 24 h ago did not reach me: send them again if you still need them."


@pytest.mark.parametrize(
    ("absence", "arrivals", "newest_s", "expected"),
    [
        (away((0, 3 * DAY)), [], sent(-5000), f"👋 Back after 3 days. {LOST}"),
        (
            away((0, 3 * DAY)),
            [Arrival(sent(2 * DAY + 60), at(3 * DAY + 1))],
            sent(-5000),
            f"👋 Back after 3 days: 1 message sent meanwhile is answered late. {LOST}",
        ),
        (away((0, 3 * DAY)), [], 0.0, ""),
        (away((0, DAY - 60)), [], sent(-5), "👋 Back after 23 h: nothing was missed."),
        (away((0, DAY - 60), (DAY, DAY + 600)), [], sent(-5), "👋 Back after 34 h: nothing was missed."),
    ],
)
def test_what_a_chat_does_not_keep_is_not_called_nothing(
    absence: Absence, arrivals: list[Arrival], newest_s: float, expected: str
) -> None:
    assert line(absence, "C1", arrivals, newest_s, ChatRetention(timedelta(hours=24))) == expected


@pytest.mark.parametrize(
    ("minutes", "kept", "expected"),
    [
        (4, ChatRetention(presses=timedelta(seconds=150)), f"👋 Back after 4 min. {PRESSES_NOT_KEPT}"),
        (2, ChatRetention(presses=timedelta(seconds=150)), ""),
        (4, ChatRetention(), ""),
        (
            3 * DAY,
            ChatRetention(timedelta(hours=24), timedelta(seconds=150)),
            f"👋 Back after 3 days. {LOST} {PRESSES_NOT_KEPT}",
        ),
    ],
)
def test_presses_that_a_chat_does_not_keep_are_told_where_a_card_waits(
    minutes: float, kept: ChatRetention, expected: str
) -> None:
    assert line(away((0, minutes)), "C1", [], sent(-5000), kept) == expected
