"""A job's life between the ticks of the clock, restarts included."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codebutler.domain.model import TurnOutcome
from codebutler.schedule.jobs import Job, JobPlace, parse_file, place_at
from codebutler.schedule.state import (
    Schedule,
    Timer,
    begin,
    ended,
    given_up,
    key_of,
    next_at,
    paused,
    reconcile,
    runs,
    said,
    taken,
    triggered,
    with_timer,
    without_timer,
)

START = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)


def job(cron: str = "0 * * * *", extra: str = "", command: str = "make test") -> Job:
    text = f"jobs: [{{name: tests, cron: '{cron}', command: {command}, timezone: UTC{extra}}}]"
    return parse_file(text.encode(), "jobs.yaml", place_at(JobPlace("shop", "C1"))).jobs[0]


KEY = key_of(job())


def book_of(one: Job, now: datetime = START) -> Schedule:
    return reconcile(Schedule(), [one], now)


def at(hours: float) -> datetime:
    return START + timedelta(hours=hours)


def due_at(one: Job, schedule: Schedule, now: datetime) -> Schedule:
    return begin(schedule, {KEY: one}, now)


def test_a_job_begins_when_it_is_due_and_moves_on() -> None:
    one = job()
    assert runs(due_at(one, book_of(one), at(0.9)), {KEY: one}, "owner") == []
    schedule = due_at(one, book_of(one), at(1))
    assert [run.key for run in runs(schedule, {KEY: one}, "owner")] == [
        "job:shop/tests:2026-11-21T11:00:00+00:00"
    ]
    assert schedule.jobs[KEY].next == at(2)


def test_what_is_begun_is_the_same_run_after_a_restart() -> None:
    one = job()
    schedule = due_at(one, book_of(one), at(1))
    again = msgspec.json.decode(msgspec.json.encode(schedule), type=Schedule)
    again = due_at(one, reconcile(again, [one], at(1.1)), at(1.1))
    assert runs(again, {KEY: one}, "owner") == runs(schedule, {KEY: one}, "owner")


def test_runs_that_were_missed_become_one_within_the_window() -> None:
    one = job()
    assert len(runs(due_at(one, book_of(one), at(5.5)), {KEY: one}, "o")) == 1
    daily = job("0 11 * * *", ", catchUpHours: 2")
    assert len(runs(due_at(daily, book_of(daily), at(2.5)), {KEY: daily}, "o")) == 1
    assert runs(due_at(daily, book_of(daily), at(3.5)), {KEY: daily}, "o") == []


def test_missed_runs_can_be_left_out() -> None:
    one = job(extra=", missed: skip")
    schedule = due_at(one, book_of(one), at(1.5))
    assert runs(schedule, {KEY: one}, "o") == []
    assert schedule.jobs[KEY].next == at(2)


def test_one_run_at_a_time() -> None:
    one = job()
    schedule = taken(said(due_at(one, book_of(one), at(1)), KEY, "1.1", at(1)), KEY)
    assert runs(due_at(one, schedule, at(2)), {KEY: one}, "o") == []
    schedule, key = ended(schedule, {KEY: one}, one.channel, ("1.1",), "done")
    assert key == KEY
    assert len(runs(due_at(one, schedule, at(2)), {KEY: one}, "o")) == 1


def test_a_run_without_an_outcome_does_not_keep_the_job_back_for_ever() -> None:
    one = job()
    schedule = taken(said(due_at(one, book_of(one), at(1)), KEY, "1.1", at(1)), KEY)
    assert len(runs(due_at(one, schedule, at(26)), {KEY: one}, "o")) == 1


def test_three_failures_in_a_row_pause_it_and_resuming_forgives() -> None:
    one = job()
    schedule = book_of(one)
    for hour in (1, 2, 3):
        assert schedule.jobs[KEY].paused == ""
        schedule = said(due_at(one, schedule, at(hour)), KEY, f"{hour}.0", at(hour))
        schedule, _ = ended(schedule, {KEY: one}, one.channel, (f"{hour}.0",), "failed")
    assert schedule.jobs[KEY].paused == "failed 3 times in a row"
    assert runs(due_at(one, schedule, at(4)), {KEY: one}, "o") == []
    schedule = paused(schedule, KEY, "")
    assert schedule.jobs[KEY].failures == 0
    assert len(runs(due_at(one, schedule, at(5)), {KEY: one}, "o")) == 1


def test_a_success_between_forgives() -> None:
    one = job()
    schedule = book_of(one)
    outcomes: list[TurnOutcome] = ["failed", "stopped", "done", "refused", "failed"]
    for number, outcome in enumerate(outcomes):
        schedule = said(schedule, KEY, str(number), START)
        schedule, _ = ended(schedule, {KEY: one}, one.channel, (str(number),), outcome)
    assert schedule.jobs[KEY].paused == ""


def test_what_cannot_be_said_is_a_failure() -> None:
    one = job()
    schedule = given_up(due_at(one, book_of(one), at(1)), KEY, at(1))
    assert (schedule.jobs[KEY].failures, schedule.jobs[KEY].begun) == (1, None)


def test_a_changed_job_waits_for_its_new_time_and_is_forgiven() -> None:
    one, two = job(), job("30 * * * *")
    schedule = paused(book_of(one), KEY, "by UYOU")
    schedule = reconcile(schedule, [two], at(0.1))
    assert (schedule.jobs[KEY].next, schedule.jobs[KEY].paused) == (at(0.5), "")
    assert reconcile(schedule, [], at(1)).jobs == {}


@pytest.mark.parametrize(("unread", "is_kept"), [({"shop"}, True), ({""}, True), ({"tools"}, False)])
def test_what_a_person_has_paused_stays_paused_while_its_file_cannot_be_read(
    unread: set[str], is_kept: bool
) -> None:
    one = job()
    schedule = said(paused(due_at(one, book_of(one), at(1)), KEY, "by UYOU"), KEY, "1.1", at(1))
    kept = reconcile(schedule, [], at(2), unread)
    assert (KEY in kept.jobs) == is_kept
    assert next_at(kept, {}) is None
    again = reconcile(kept, [one], at(3)).jobs[KEY]
    assert (again.paused, again.awaited) == ("by UYOU" if is_kept else "", "")


def test_a_run_that_was_said_but_not_handed_in_is_still_to_be_handed_in() -> None:
    one = job()
    schedule = said(due_at(one, book_of(one), at(1)), KEY, "1.1", at(1))
    assert len(runs(schedule, {KEY: one}, "o")) == 1
    assert runs(taken(schedule, KEY), {KEY: one}, "o") == []
    assert runs(ended(schedule, {KEY: one}, one.channel, ("1.1",), "done")[0], {KEY: one}, "o") == []


def test_switched_off_in_the_file_it_never_runs() -> None:
    one = job(extra=", enabled: false")
    assert runs(due_at(one, book_of(one), at(1)), {KEY: one}, "o") == []


def test_timers_come_and_go_once() -> None:
    timer = Timer(id="a", at=at(1), user="U1", repo="shop", channel="C1", text="look")
    schedule = with_timer(with_timer(Schedule(), timer), timer)
    assert next_at(schedule, {}) == at(1)
    assert without_timer(schedule, "a") == Schedule()


@given(
    st.lists(st.floats(0.001, 30), max_size=40), st.sampled_from(["0 * * * *", "*/7 * * * *", "0 3 * * *"])
)
def test_no_due_time_is_run_twice_whatever_the_clock_does(steps: list[float], cron: str) -> None:
    """Steps in hours, some of them restarts, some an hour back."""
    one, now, seen = job(cron), START, set[str]()
    schedule = book_of(one)
    for number, step in enumerate(steps):
        now += timedelta(hours=step if number % 5 else -1)
        schedule = due_at(
            one, reconcile(msgspec.json.decode(msgspec.json.encode(schedule), type=Schedule), [one], now), now
        )
        for run in runs(schedule, {KEY: one}, "o"):
            assert run.key not in seen
            seen.add(run.key)
            schedule = said(schedule, KEY, run.key, now)
            schedule, _ = ended(schedule, {KEY: one}, one.channel, (run.key,), "done")


@pytest.mark.parametrize("hours", [0.0, 0.5])
def test_nothing_is_due_before_its_time(hours: float) -> None:
    one = job()
    assert due_at(one, book_of(one), at(hours)).jobs[KEY].begun is None


@given(
    st.sampled_from(["*/17 * * * *", "30 */5 * * *", "0 3 * * *", "0 12 * * 1"]),
    st.floats(0.01, 60),
    st.sampled_from([0, 1, 6, 24, 72]),
)
def test_what_was_missed_runs_if_its_last_time_is_not_too_long_ago(
    line: str, away_hours: float, catch_up_hours: int
) -> None:
    one = job(line, f", catchUpHours: {catch_up_hours}")
    now, last = at(away_hours), None
    moment = START
    while (after := one.next(moment)) is not None and after <= now:
        last = moment = after
    begun = runs(due_at(one, book_of(one), now), {KEY: one}, "owner")
    late_s = (now - last).total_seconds() if last is not None else None
    assert bool(begun) is (late_s is not None and late_s <= max(60, catch_up_hours * 3600))


def test_a_job_of_every_minute_is_begun_with_few_looks_at_its_calendar() -> None:
    one = Counting(job("* * * * *"))
    due_at(one, book_of(one), at(30))  # type: ignore[arg-type]  # a job that counts
    assert one.looks < 40


class Counting:
    """A job that counts how often it is asked for its next time."""

    def __init__(self, inner: Job) -> None:
        self._inner = inner
        self.looks = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def next(self, moment: datetime) -> datetime | None:
        self.looks += 1
        return self._inner.next(moment)


def test_a_change_of_files_begins_its_job_once() -> None:
    (build,) = parse_file(
        b"jobs: [{name: build, watch: '*.c', command: make}]", "jobs.yaml", place_at(JobPlace("shop", "C1"))
    ).jobs
    jobs = {"shop/build": build}
    before = reconcile(Schedule(), jobs.values(), START)
    begun = triggered(before, jobs, "shop/build", "t1", START)
    assert begun.jobs["shop/build"].begun == START
    assert triggered(begun, jobs, "shop/build", "t2", START) == begun, "it runs"
    done = ended(said(taken(begun, "shop/build"), "shop/build", "1.0", START), jobs, "C1", ("1.0",), "done")[
        0
    ]
    assert triggered(done, jobs, "shop/build", "t1", START) == done, "told again"
    assert triggered(done, jobs, "shop/build", "t3", START).jobs["shop/build"].begun == START
    stopped = paused(done, "shop/build", "by hand")
    assert triggered(stopped, jobs, "shop/build", "t4", START) == stopped
    assert triggered(done, jobs, "shop/other", "t5", START) == done


@pytest.mark.parametrize("cron", ["0 * * * *", "0 3 * * 1", "0 0 1 1 *"])
def test_a_clock_that_was_years_ahead_keeps_no_job_back_for_years(cron: str) -> None:
    one = job(cron)
    due, wrong = one.next(START), START + timedelta(days=3650)
    schedule = due_at(one, reconcile(book_of(one), [one], wrong), wrong)
    assert schedule.jobs[KEY].next == one.next(wrong)
    assert reconcile(schedule, [one], START).jobs[KEY].next == due


def test_a_clock_that_is_set_back_a_little_repeats_no_run() -> None:
    one = job()
    schedule = due_at(one, book_of(one), at(1))
    assert reconcile(schedule, [one], at(0.99)).jobs[KEY].next == at(2)
