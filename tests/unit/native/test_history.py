"""A session read back is the session that was written, whatever its last line looks like."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from codebutler_worker.agents.native.model import Assistant, Call, Message, System, Told, User
from codebutler_worker.agents.native.sessions import (
    INTERRUPTED,
    Cleaned,
    History,
    Opened,
    Planned,
    Record,
    Said,
    Stood,
    after,
    line,
    mended,
    read,
)
from codebutler_worker.tools.plan import PlanStep

START: list[Record] = [Opened("2026-01-01"), Said(System("orders"))]
TEXT = st.text(max_size=20)
CALLED = Assistant("I look.", (Call("a", "look", "{}"), Call("b", "look", '{"x": 1}')))
RECORDS = st.lists(
    st.one_of(
        st.builds(Said, st.builds(User, TEXT)),
        st.builds(Said, st.builds(Assistant, TEXT, st.just(()), TEXT)),
        st.just(Said(CALLED)),
        st.builds(Said, st.builds(Told, st.sampled_from("abc"), TEXT)),
        st.builds(Planned, st.lists(st.builds(PlanStep, TEXT, st.just("done")), max_size=2).map(tuple)),
        st.builds(Stood, TEXT),
        st.builds(lambda text: Cleaned((System("orders"), User(text))), TEXT),
    ),
    max_size=12,
)


@given(RECORDS, st.integers(0, 30))
def test_what_is_read_is_what_was_written_but_for_a_line_that_was_cut(
    records: list[Record], cut: int
) -> None:
    whole = [line(record) for record in (*START, *records)]
    torn = b"".join(whole) + line(Said(User("the last one")))[:cut]
    history = History()
    for record in (*START, *records):
        history = after(history, record)
    found = read(torn)
    assert found is not None
    assert (found.plan, found.cwd) == (history.plan, history.cwd)
    assert list(found.messages) == mended(history.messages)


@given(RECORDS)
def test_each_call_has_exactly_one_result_right_behind_it(records: list[Record]) -> None:
    history = read(b"".join(line(record) for record in (*START, *records)))
    assert history is not None
    waiting: list[str] = []
    for message in history.messages:
        if isinstance(message, Told):
            waiting.remove(message.call_id)
            continue
        assert waiting == []
        waiting = [call.id for call in message.calls] if isinstance(message, Assistant) else []
    assert waiting == []


def test_a_result_that_never_came_is_said_to_be_unknown() -> None:
    messages: list[Message] = [User("go"), CALLED, Told("a", "seen"), User("go on")]
    assert mended(messages) == [User("go"), CALLED, Told("a", "seen"), Told("b", INTERRUPTED), User("go on")]


def test_what_is_no_session_of_ours_is_none() -> None:
    for content in (b"", b"{}\n", line(Said(User("x"))), line(Opened("x", 99)) + line(START[1]), b"\xff\n"):
        assert read(content) is None
