"""Bytes to events, chunks to answers, refusals to decisions."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codebutler_worker.agents.native.model import ModelError
from codebutler_worker.agents.native.service import EventDecoder, EventTooLargeError
from codebutler_worker.agents.native.services import (
    LONGEST_PAUSE_S,
    MOST_RETRIES,
    pause_s,
    refusal,
    retry_after_s,
)
from codebutler_worker.agents.native.wire import Assembler

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TEXTS = st.lists(st.text(st.characters(exclude_characters="\r\n\0", codec="utf-8"), min_size=1), max_size=5)


@given(TEXTS, st.sampled_from(["\n", "\r\n", "\r"]), st.data())
def test_events_come_whole_however_they_are_cut(texts: list[str], end: str, data: st.DataObject) -> None:
    stream = "".join(f": a comment{end}event: x{end}data: {text}{end}{end}" for text in texts).encode()
    decoder, found, at = EventDecoder(), [], 0
    while at < len(stream):
        step = data.draw(st.integers(1, len(stream)))
        found += decoder.feed(stream[at : at + step])
        at += step
    assert found == texts


def test_several_data_lines_are_one_event_and_too_much_is_refused() -> None:
    assert EventDecoder().feed(b"data: a\ndata:b\n\n\n") == ["a\nb"]
    with pytest.raises(EventTooLargeError):
        EventDecoder(10).feed(b"data: " + b"x" * 20)


@pytest.mark.parametrize("data", ["", "no json", "[]", '{"choices": 3}', '{"error": {"message": "gone"}}'])
def test_what_is_no_chunk_is_an_error(data: str) -> None:
    with pytest.raises(ModelError, match=r"^[^\n]+$"):
        Assembler().feed(data)


def test_an_answer_that_is_kept_back_is_said() -> None:
    assembler = Assembler()
    assembler.feed('{"choices": [{"delta": {}, "finish_reason": "content_filter"}]}')
    with pytest.raises(ModelError, match="content_filter"):
        assembler.reply()


def test_a_call_that_was_cut_off_is_no_call() -> None:
    assembler = Assembler()
    for at, arguments in enumerate(("{}", '{"content": "half a fi')):
        call = {"index": at, "id": f"c{at}", "function": {"name": "write_file", "arguments": arguments}}
        assembler.feed(json.dumps({"choices": [{"delta": {"tool_calls": [call]}}]}))
    assembler.feed('{"choices": [{"delta": {}, "finish_reason": "length"}]}')
    reply = assembler.reply()
    assert (reply.cut, [call.id for call in reply.said.calls]) == (True, ["c0"])


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "5"}, 5.0),
        ({"retry-after": "-5"}, 0.0),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Thu, 01 Jan 2026 00:01:00 GMT"}, 60.0),
        ({"retry-after": "Wed, 31 Dec 2025 00:00:00 GMT"}, 0.0),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
    ],
)
def test_when_to_ask_again(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_s(headers, NOW) == seconds


@given(st.integers(0, MOST_RETRIES - 1), st.floats(0, 1, exclude_max=True))
def test_pauses_grow_and_end(retries: int, chance: float) -> None:
    wait_s = pause_s(refusal(500, "", "", None), retries, chance)
    assert wait_s is not None
    assert 0 < wait_s <= LONGEST_PAUSE_S
    assert pause_s(refusal(500, "", "", None), MOST_RETRIES, chance) is None
    assert pause_s(refusal(400, "", "", None), retries, chance) is None


def test_half_a_character_or_an_empty_call_does_not_cost_the_answer() -> None:
    assembler = Assembler()
    assembler.feed('{"choices": [{"delta": {"content": "a\\ud83d"}}]}')
    for function in (None, {"name": "list_files", "arguments": "{}"}):
        call = {"index": 0, "id": "c", "function": function}
        assembler.feed(json.dumps({"choices": [{"delta": {"tool_calls": [call]}}]}))
    said = assembler.reply().said
    assert (said.content, [call.name for call in said.calls]) == ("a\ufffd", ["list_files"])
