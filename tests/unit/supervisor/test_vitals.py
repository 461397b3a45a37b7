"""When a worker process has to be killed, and when it may sleep."""

from __future__ import annotations

import math

import pytest

from codebutler.supervisor.lifecycle import Vitals, WorkerTiming

TIMING = WorkerTiming(start_s=30, heartbeat_s=5, missed=3)


def begun(idle_sleep_s: float = 0) -> Vitals:
    return Vitals(TIMING, idle_sleep_s, now_s=100)


def running(idle_sleep_s: float = 0) -> Vitals:
    vitals = begun(idle_sleep_s)
    vitals.ready(110)
    vitals.seen(110)
    return vitals


@pytest.mark.parametrize(("at_s", "fault"), [(129, ""), (130, "the worker was not ready after 30 s")])
def test_it_has_a_time_to_become_ready(at_s: float, fault: str) -> None:
    vitals = begun()
    assert vitals.deadline_s() == 130
    assert vitals.fault(at_s, held_up=False) == fault


@pytest.mark.parametrize(("at_s", "fault"), [(124, ""), (125, "the worker has been silent for 15 s")])
def test_once_ready_it_has_to_be_heard(at_s: float, fault: str) -> None:
    vitals = running()
    assert vitals.deadline_s() == 125
    assert vitals.fault(at_s, held_up=False) == fault
    assert vitals.fault(at_s, held_up=True) == ""


def test_it_has_a_time_to_end_of_which_the_sooner_counts() -> None:
    vitals = running()
    vitals.stop("shutdown", 140)
    vitals.stop("sleep", 150)
    assert (vitals.stop_reason, vitals.deadline_s()) == ("sleep", 140)
    assert vitals.fault(139, held_up=False) == ""
    assert vitals.fault(140, held_up=True) == "the worker did not end in time"


def test_it_may_sleep_once_it_has_had_nothing_to_do_for_long_enough() -> None:
    vitals = running(idle_sleep_s=60)
    vitals.seen(math.inf)
    assert vitals.deadline_s() == 170
    assert not vitals.may_sleep(169, busy=False)
    assert not vitals.may_sleep(170, busy=True)
    assert not vitals.may_sleep(229, busy=False)
    assert vitals.may_sleep(230, busy=False)
    vitals.active_s = 230
    assert not vitals.may_sleep(289, busy=False)


def test_what_it_follows_keeps_it_awake_unless_its_place_is_wanted() -> None:
    vitals = running(idle_sleep_s=60)
    assert not vitals.may_sleep(1000, busy=False, follows=True)
    assert not vitals.may_sleep(1059, busy=False)
    assert vitals.may_sleep(1000, busy=False, wanted=True, follows=True)


@pytest.mark.parametrize("vitals", [begun(idle_sleep_s=60), running()], ids=["not ready", "never sleeps"])
def test_some_do_not_sleep(vitals: Vitals) -> None:
    assert not vitals.may_sleep(1000, busy=False)


def test_who_ends_does_not_go_to_sleep_besides() -> None:
    vitals = running(idle_sleep_s=60)
    vitals.stop("shutdown", 140)
    assert not vitals.may_sleep(1000, busy=False)


def test_it_lives_from_when_it_is_ready() -> None:
    assert begun().lived_s(200) == 0
    assert running().lived_s(200) == 90


def test_who_has_nothing_to_do_makes_room_at_once_where_it_is_wanted() -> None:
    for vitals in (running(), running(idle_sleep_s=60)):
        assert not vitals.may_sleep(111, busy=False)
        assert not vitals.may_sleep(111, busy=True, wanted=True)
        assert vitals.may_sleep(111, busy=False, wanted=True)
    assert not begun().may_sleep(111, busy=False, wanted=True)
