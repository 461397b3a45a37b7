"""What is decided of reactions: who goes first, what is put off, and that it ends as it was asked."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from codebutler.errors import ChatOutcomeUnknownError, ChatRateLimitedError, ChatUnreachableError
from codebutler.model import React
from codebutler.slack.marks import BRIEF, PUT_OFF, Mark, Marks
from tests.unit.slack.test_sender import C, bench

QUEUED, WORKING, DONE = "hourglass_flowing_sand", "eyes", "white_check_mark"
NAMES = (QUEUED, WORKING, DONE)


def removals(marks: Marks[str], count: int, channel: str = "C0") -> None:
    """So many marks of old that have to go."""
    for number in range(count):
        marks.ask(channel, f"{number}.0", WORKING, "somebody", wanted=False, unsure=False).there = True


def serve(marks: Marks[str], step: str, count: int) -> list[Mark[str]]:
    """The next marks in their order, each done at once."""
    done = []
    for _ in range(count):
        mark = marks.next(step)  # type: ignore[arg-type]  # one of its words
        assert mark is not None
        marks.begin(mark)
        mark.busy, mark.there = False, mark.wanted
        mark.told()
        marks.drop(mark)
        done.append(mark)
    return done


def test_what_stays_goes_before_what_goes_again() -> None:
    marks: Marks[str] = Marks()
    marks.ask("C1", "1.1", WORKING, "a", wanted=True, unsure=False)
    marks.ask("C1", "1.2", DONE, "b", wanted=True, unsure=False)
    assert [mark.name for mark in serve(marks, "add", 2)] == [DONE, WORKING]


def test_a_mark_for_a_while_waits_for_fewer_removals() -> None:
    for name, most in BRIEF.items():
        marks: Marks[str] = Marks()
        removals(marks, most)
        marks.ask("C1", "1.1", name, "a", wanted=True, unsure=False)
        assert marks.next("add") is None
        assert [mark.name for mark in marks.crowded()] == [name]
        serve(marks, "remove", 1)
        assert marks.crowded() == []
        assert marks.next("add") is not None


def test_channels_take_turns() -> None:
    marks: Marks[str] = Marks()
    for number in range(20):
        marks.ask("C1", f"{number}.0", DONE, "a", wanted=True, unsure=False)
    for number in range(3):
        marks.ask("C2", f"{number}.0", DONE, "b", wanted=True, unsure=False)
    assert [mark.channel for mark in serve(marks, "add", 8)] == ["C1", "C2"] * 3 + ["C1"] * 2


def test_a_mark_that_was_set_once_and_again_is_looked_for_before_it_counts_as_away() -> None:
    marks: Marks[str] = Marks()
    marks.ask("C1", "1.1", DONE, "a", wanted=True, unsure=False)
    serve(marks, "add", 1)
    marks.ask("C1", "1.1", DONE, "b", wanted=True, unsure=False)
    mark = marks.ask("C1", "1.1", DONE, "c", wanted=False, unsure=False)
    assert not mark.right
    assert marks.next("look") is mark


def test_a_worker_that_asks_without_end_is_forgotten_beyond_a_number() -> None:
    marks: Marks[str] = Marks()
    removals(marks, 10)
    for number in range(1000):
        mark = marks.ask("C1", f"{number}.5", QUEUED, "a", wanted=True, unsure=False)
        assert marks.put_off(mark) == ["a"]
    assert len([mark for mark in marks._all() if mark.put_off]) == PUT_OFF


Act = tuple[int, str, bool, bool, float]
ACTS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from(NAMES),
        st.booleans(),
        st.booleans(),
        st.sampled_from((0.0, 0.0, 0.3, 5.0)),
    ),
    max_size=25,
)


@settings(deadline=None, max_examples=60)
@given(ACTS, st.integers(0, 1000))
async def test_whatever_is_asked_and_whatever_fails_it_ends_as_it_was_asked_last(
    acts: list[Act], seed: int
) -> None:
    """Each act: which message, which mark, away or there, unsure or not, and the seconds until the next one."""
    rng = Random(seed)
    async with bench() as b:
        asked = [b.chat.say(C, "U1", "question") for _ in range(3)]
        for ts in asked:
            for name in NAMES:
                if rng.random() < 0.3:  # what an earlier life left behind
                    await b.chat.react(C, React(target_ts=ts, name=name))
        before = {ts: b.chat.marks(C, ts) for ts in asked}
        last: dict[tuple[str, str], bool] = {}
        for number, (which, name, remove, unsure, wait_s) in enumerate(acts):
            ts = asked[which]
            unsure = unsure or name in before[ts]
            b.submit(f"{number}", React(target_ts=ts, name=name, remove=remove), unsure=unsure)
            last[ts, name] = not remove
            if rng.random() < 0.4:
                trouble = rng.choice((ChatUnreachableError("down"), ChatRateLimitedError(3)))
                b.chat.fail_next(rng.choice(("react", "reactions")), trouble)
            if rng.random() < 0.3:
                b.chat.deliver_then_fail("react", ChatOutcomeUnknownError("time-out"))
            await b.passes(wait_s)
        await b.passes(900)
        assert b.sender.pending == 0
        for (ts, name), wanted in last.items():
            assert (name in b.chat.marks(C, ts)) is wanted
        assert all(task.done() for task in b.tasks)
