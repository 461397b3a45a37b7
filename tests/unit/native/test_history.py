"""A session read back is the session that was written, whatever its last line looks like."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from codebutler_worker.agents.native.model import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from codebutler_worker.agents.native.sessions import (
    INTERRUPTED,
    CleanedRecord,
    OpenedRecord,
    PlannedRecord,
    Record,
    SaidRecord,
    SessionHistory,
    StoodRecord,
    after,
    line,
    mended,
    read,
)
from codebutler_worker.tools.tool import PlanStep

START: list[Record] = [OpenedRecord("2026-01-01"), SaidRecord(SystemMessage("orders"))]
TEXT = st.text(max_size=20)
CALLED = AssistantMessage("I look.", (ToolCall("a", "look", "{}"), ToolCall("b", "look", '{"x": 1}')))
RECORDS = st.lists(
    st.one_of(
        st.builds(SaidRecord, st.builds(UserMessage, TEXT)),
        st.builds(SaidRecord, st.builds(AssistantMessage, TEXT, st.just(()), TEXT)),
        st.just(SaidRecord(CALLED)),
        st.builds(SaidRecord, st.builds(ToolMessage, st.sampled_from("abc"), TEXT)),
        st.builds(PlannedRecord, st.lists(st.builds(PlanStep, TEXT, st.just("done")), max_size=2).map(tuple)),
        st.builds(StoodRecord, TEXT),
        st.builds(lambda text: CleanedRecord((SystemMessage("orders"), UserMessage(text))), TEXT),
    ),
    max_size=12,
)


@given(RECORDS, st.integers(0, 30))
def test_what_is_read_is_what_was_written_but_for_a_line_that_was_cut(
    records: list[Record], cut: int
) -> None:
    whole = [line(record) for record in (*START, *records)]
    torn = b"".join(whole) + line(SaidRecord(UserMessage("the last one")))[:cut]
    history = SessionHistory()
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
        if isinstance(message, ToolMessage):
            waiting.remove(message.call_id)
            continue
        assert waiting == []
        waiting = [call.id for call in message.calls] if isinstance(message, AssistantMessage) else []
    assert waiting == []


def test_a_result_that_never_came_is_said_to_be_unknown() -> None:
    messages: list[Message] = [UserMessage("go"), CALLED, ToolMessage("a", "seen"), UserMessage("go on")]
    assert mended(messages) == [
        UserMessage("go"),
        CALLED,
        ToolMessage("a", "seen"),
        ToolMessage("b", INTERRUPTED),
        UserMessage("go on"),
    ]


def test_what_is_no_session_of_ours_is_none() -> None:
    for content in (
        b"",
        b"{}\n",
        line(SaidRecord(UserMessage("x"))),
        line(OpenedRecord("x", 99)) + line(START[1]),
        b"\xff\n",
    ):
        assert read(content) is None
