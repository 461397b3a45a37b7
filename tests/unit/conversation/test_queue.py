"""The places in line."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from codebutler_worker.conversation.queue import Slots, choose, in_line
from codebutler_worker.store.rows import TurnRow, racers_conversation
from codebutler_worker.store.unit_of_work import iso

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def turn(number: int, conversation: str, due_in_s: float = 0) -> TurnRow:
    return TurnRow(
        id=f"turn-{number}",
        conversation=conversation,
        channel_id="C",
        thread="1",
        agent="claude",
        created_at=iso(NOW),
        not_before=iso(NOW + timedelta(seconds=due_in_s)),
    )


def line_of(queued: list[TurnRow], busy: set[str], room: int) -> list[str]:
    running = dict.fromkeys(busy, "claude")
    return [one.id for one in in_line(queued, running, NOW, Slots(room + len(busy)))]


def test_without_room_all_wait() -> None:
    assert line_of([turn(1, "a"), turn(2, "b")], {"c"}, 0) == ["turn-1", "turn-2"]


def test_who_only_debounces_does_not_wait() -> None:
    assert line_of([turn(1, "a", 3)], set(), 1) == []


def test_a_busy_conversation_waits_where_others_start() -> None:
    assert line_of([turn(1, "a"), turn(2, "b")], {"a"}, 1) == ["turn-1"]


def started(queued: list[TurnRow], busy: set[str], room: int) -> list[str]:
    running = dict.fromkeys(busy, "claude")
    return [one.id for one in choose(queued, running, NOW, Slots(room + len(busy)), debounce_s=0).start]


ONE, TWO = (racers_conversation("a", "key", number) for number in range(2))


def test_the_agents_of_a_race_share_a_place() -> None:
    assert started([turn(1, ONE), turn(2, TWO), turn(3, "b")], set(), 1) == ["turn-1", "turn-2"]
    assert started([turn(2, TWO), turn(3, "b")], {ONE}, 0) == ["turn-2"]
    running = {ONE: "claude", TWO: "claude", "b": "claude"}
    queue = [turn(4, "c"), turn(5, "d")]
    assert [one.id for one in choose(queue, running, NOW, Slots(3), debounce_s=0).start] == ["turn-4"]
    other = racers_conversation("a", "other", 0)
    assert started([turn(2, other)], {ONE}, 0) == []


def test_what_is_said_in_a_thread_waits_for_the_race_in_it_and_not_the_other_way_round() -> None:
    assert started([turn(1, "a")], {ONE}, 5) == []
    assert started([turn(1, ONE), turn(2, "a")], set(), 5) == ["turn-1"]
    assert started([turn(1, ONE)], {"a"}, 5) == ["turn-1"]


QUEUE = st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from([0.0, 2.0])), max_size=8)


@given(QUEUE, st.sets(st.sampled_from("abcd")), st.integers(0, 4))
def test_nobody_is_both_started_and_in_line(
    queue: list[tuple[str, float]], busy: set[str], room: int
) -> None:
    queued = [turn(number, name, due_s) for number, (name, due_s) in enumerate(queue)]
    running, slots = dict.fromkeys(busy, "claude"), Slots(room + len(busy))
    start = choose(queued, running, NOW, slots, debounce_s=3).start
    rest = [one for one in queued if one not in start]
    line = in_line(queued, running, NOW, slots, start)
    assert line == [one for one in rest if one in line]
    outside = [one for one in rest if one not in line]
    assert all(one.not_before > iso(NOW) for one in outside)
    assert len(outside) <= max(0, room - len(start))
