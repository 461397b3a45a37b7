from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codebutler.domain.errors import EXIT_IOERR
from codebutler.supervisor.lifecycle import (
    Again,
    GiveUp,
    Policy,
    Quarantine,
    Record,
    Verdict,
    after_death,
    backoff_s,
    describe,
)

POLICY = Policy()


def die(
    record: Record, now_s: float, *, lived_s: float = 0, code: int | None = 1, chance: float = 0.5
) -> tuple[Record, Verdict]:
    return after_death(POLICY, record, now_s=now_s, lived_s=lived_s, exit_code=code, rng=lambda: chance)


@given(st.integers(1, 10_000), st.floats(0, 1, exclude_max=True))
def test_a_back_off_is_never_below_a_second_nor_above_a_minute(attempt: int, chance: float) -> None:
    assert 1 <= backoff_s(POLICY, attempt, lambda: chance) <= 60


@pytest.mark.parametrize(("attempt", "ceiling_s"), [(1, 2), (2, 4), (3, 8), (5, 32), (6, 60), (60, 60)])
def test_the_ceiling_doubles_up_to_a_minute(attempt: int, ceiling_s: float) -> None:
    assert backoff_s(POLICY, attempt, lambda: 0.0) == 1
    assert backoff_s(POLICY, attempt, lambda: 1.0) == ceiling_s


def test_the_fifth_death_within_ten_minutes_quarantines_and_is_news_once() -> None:
    record = Record()
    verdicts = []
    for number in range(7):
        record, verdict = die(record, 100.0 * number)
        verdicts.append(verdict)
    assert all(isinstance(verdict, Again) for verdict in verdicts[:4])
    assert verdicts[4:] == [
        Quarantine(600, news=True),
        Quarantine(600, news=False),
        Quarantine(600, news=False),
    ]


def test_a_start_for_which_there_was_no_room_is_no_death() -> None:
    record = Record()
    verdicts = []
    for second in range(20):
        record, verdict = die(record, float(second), code=None, chance=1.0)
        verdicts.append(verdict)
    assert verdicts[:3] == [Again(2), Again(4), Again(8)]
    assert verdicts[-1] == Again(60)
    assert not record.deaths


def test_what_the_disk_ended_is_tried_again_within_a_minute() -> None:
    record = Record()
    for second in range(5):
        record, verdict = die(record, float(second), code=EXIT_IOERR)
    assert verdict == Quarantine(60, news=True)


def test_deaths_further_apart_than_the_window_never_quarantine() -> None:
    record = Record()
    for number in range(50):
        record, verdict = die(record, 151.0 * number)
        assert isinstance(verdict, Again)


def test_five_healthy_minutes_are_a_clean_record() -> None:
    record = Record()
    for number in range(4):
        record, _ = die(record, float(number))
    record, verdict = die(record, 310.0, lived_s=300.0)
    assert record == Record(deaths=(310.0,), attempt=1)
    assert verdict == Again(1.5)


def test_a_death_just_before_five_minutes_still_counts() -> None:
    record = Record()
    for number in range(4):
        record, _ = die(record, float(number))
    _, verdict = die(record, 303.0, lived_s=299.9)
    assert verdict == Quarantine(600, news=True)


def test_a_quarantine_that_was_overcome_is_news_again() -> None:
    record = Record(deaths=(0, 1, 2, 3, 4), attempt=5, quarantined=True)
    record, verdict = die(record, 2000, lived_s=1000)
    assert isinstance(verdict, Again)
    for number in range(4):
        record, verdict = die(record, 2001.0 + number)
    assert verdict == Quarantine(600, news=True)


def test_a_configuration_error_is_not_restarted_whatever_the_record() -> None:
    assert die(Record(), 0, code=78) == (Record(), GiveUp())
    assert die(Record((1, 2, 3, 4, 5), 5, True), 6, code=78) == (Record(), GiveUp())


@given(st.lists(st.tuples(st.floats(0, 1000), st.floats(0, 1000)), max_size=60))
def test_a_record_stays_small_and_a_verdict_is_always_given(history: list[tuple[float, float]]) -> None:
    record, now_s = Record(), 0.0
    for gap_s, lived_s in history:
        now_s += gap_s
        record, verdict = die(record, now_s, lived_s=lived_s)
        assert len(record.deaths) <= POLICY.deaths
        assert isinstance(verdict, Again | Quarantine)
        assert record.quarantined == isinstance(verdict, Quarantine)


def test_an_exit_code_is_told_in_words() -> None:
    assert describe(3) == "exited with code 3"
    assert describe(-9) == "was killed by signal 9"
