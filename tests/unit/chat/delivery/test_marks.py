"""Whatever is asked of marks and whatever fails, it ends as it was asked last; only a sign may be left out."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from codebutler.domain.errors import ChatOutcomeUnknownError, ChatRateLimitedError, ChatUnreachableError
from codebutler.domain.model import React
from tests.unit.chat.delivery.test_sender import C, bench

QUEUED, WORKING, DONE = "queued", "working", "done"
NAMES = (QUEUED, WORKING, DONE)

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
                    await b.chat.react(C, React(target=ts, mark=name))
        before = {ts: b.chat.marks(C, ts) for ts in asked}
        last: dict[tuple[str, str], bool] = {}
        for number, (which, name, remove, unsure, wait_s) in enumerate(acts):
            ts = asked[which]
            unsure = unsure or name in before[ts]
            react = React(target=ts, mark=name, remove=remove, value="outcome" if name == DONE else "sign")
            b.submit(f"{number}", react, unsure=unsure)
            last[ts, name] = not remove
            if rng.random() < 0.4:
                b.chat.fail_next("react", rng.choice((ChatUnreachableError("down"), ChatRateLimitedError(3))))
            if rng.random() < 0.3:
                b.chat.deliver_then_fail("react", ChatOutcomeUnknownError("time-out"))
            await b.passes(wait_s)
        await b.passes(900)
        assert b.sender.pending == 0
        for (ref, name), wanted in last.items():
            is_there = name in b.chat.marks(C, ref)
            assert is_there is wanted or (wanted and name != DONE)
        assert all(task.done() for task in b.tasks)


async def test_a_mark_that_may_be_there_is_taken_away() -> None:
    """Also if it was asked for again meanwhile, and that failed for sure."""
    async with bench() as b:
        ts = b.chat.say(C, "U1", "question")
        b.chat.deliver_then_fail("react", ChatOutcomeUnknownError("time-out"))
        b.submit("1", React(target=ts, mark=QUEUED))
        await b.passes(0)
        b.chat.fail_next("react", ChatUnreachableError("down"))
        b.submit("2", React(target=ts, mark=QUEUED))
        await b.passes(0)
        b.submit("3", React(target=ts, mark=QUEUED, remove=True))
        await b.passes(60)
        assert b.chat.marks(C, ts) == set()
