"""Which queued turns start: order, debounce, one per conversation, room."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from codebutler_worker.conversation.queue import Slots, choose, in_line
from codebutler_worker.store.rows import TurnRow
from codebutler_worker.store.unit_of_work import iso

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def turn(number: int, conversation: str = "C:1", due_in_s: float = 0) -> TurnRow:
    return TurnRow(
        id=f"turn-{number}",
        conversation=conversation,
        channel_id="C",
        thread="1",
        agent="claude",
        created_at=iso(NOW),
        not_before=iso(NOW + timedelta(seconds=due_in_s)),
    )


def test_the_oldest_due_turn_starts() -> None:
    choice = choose([turn(1), turn(2, "C:2")], {}, NOW, Slots(1), debounce_s=3)
    assert [one.id for one in choice.start] == ["turn-1"]


def test_a_busy_conversation_waits_and_others_go() -> None:
    choice = choose([turn(1), turn(2, "C:2")], {"C:1": "claude"}, NOW, Slots(5), debounce_s=3)
    assert [one.id for one in choice.start] == ["turn-2"]


def test_a_turn_that_is_not_due_holds_back_its_own_conversation_only() -> None:
    queued = [turn(1, due_in_s=2), turn(2), turn(3, "C:2")]
    choice = choose(queued, {}, NOW, Slots(5), debounce_s=3)
    assert [one.id for one in choice.start] == ["turn-3"]
    assert choice.next_due_s == 2


def test_a_clock_that_was_set_back_delays_nothing() -> None:
    choice = choose([turn(1, due_in_s=86_400)], {}, NOW, Slots(1), debounce_s=3)
    assert len(choice.start) == 1


def test_without_room_nothing_starts() -> None:
    assert choose([turn(1)], {}, NOW, Slots(0), debounce_s=3).start == ()


@given(
    st.lists(st.tuples(st.sampled_from("ABC"), st.floats(0, 3)), max_size=8),
    st.sets(st.sampled_from("ABC")),
    st.integers(0, 4),
)
def test_never_more_than_room_nor_two_of_a_conversation_nor_early(
    queue: list[tuple[str, float]], busy: set[str], room: int
) -> None:
    queued = [turn(number, conversation, due) for number, (conversation, due) in enumerate(queue)]
    choice = choose(queued, dict.fromkeys(busy, "claude"), NOW, Slots(room + len(busy)), debounce_s=3)
    conversations = [one.conversation for one in choice.start]
    assert len(conversations) == len(set(conversations)) <= room
    assert not set(conversations) & busy
    assert all(one.not_before <= iso(NOW) for one in choice.start)
    firsts = {one.conversation: one.id for one in reversed(queued)}
    assert all(firsts[one.conversation] == one.id for one in choice.start)


def test_programs_take_no_agents_room_and_have_their_own() -> None:
    queued = [turn(1), turn(2, "C:2"), *(replace(turn(n, f"C:{n}"), agent="run") for n in range(3, 7))]
    room = Slots(1, 3, frozenset({"run"}))
    choice = choose(queued, {}, NOW, room, debounce_s=3)
    assert [one.id for one in choice.start] == ["turn-1", "turn-3", "turn-4", "turn-5"]
    line = in_line(queued, {}, NOW, room)
    assert [one.id for one in line] == ["turn-2", "turn-6"]


def test_a_program_waits_for_what_came_before_it_in_its_conversation() -> None:
    queued = [turn(1), replace(turn(2), agent="run")]
    choice = choose(queued, {}, NOW, Slots(0, 3, frozenset({"run"})), debounce_s=3)
    assert choice.start == ()
