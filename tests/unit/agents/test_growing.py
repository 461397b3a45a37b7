"""Prose that is told while it is written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from codebutler_worker.agents.answer import FEWEST_CHARS, Growing
from codebutler_worker.agents.backend import Text, Thinking, Writing
from codebutler_worker.agents.claude.schema import decode
from codebutler_worker.agents.claude.translate import ClaudeTranslator


@given(st.lists(st.text(max_size=60), max_size=60))
def test_what_is_told_is_how_the_whole_begins_and_grows(pieces: list[str]) -> None:
    growing = Growing()
    told = [each.text for piece in pieces for each in growing.add(piece)]
    whole = "".join(pieces)
    assert all(whole.startswith(text) for text in told)
    assert [len(text) for text in told] == sorted({len(text) for text in told})
    assert growing.take() == whole
    assert growing.take() == ""


def test_telling_costs_no_more_than_some_times_the_text() -> None:
    growing = Growing()
    told = sum(len(each.text) for _ in range(50_000) for each in growing.add("four"))
    assert told < 12 * 200_000


def test_there_is_an_end_to_it() -> None:
    growing = Growing(100)
    told = [each for _ in range(30) for each in growing.add("x" * 30)]
    assert told[-1] == Writing("x" * 90) or told[-1] == Writing("x" * 100)
    assert growing.take() == "x" * 100
    assert growing.add("y" * FEWEST_CHARS) == [Writing("y" * FEWEST_CHARS)]


def test_claudes_answer_is_told_while_it_comes_and_a_subagents_is_not() -> None:
    translator = ClaudeTranslator(Path("/w"))

    def feed(event: Mapping[str, object], inner: str | None = None) -> list[object]:
        line = {"type": "stream_event", "event": event, "parent_tool_use_id": inner}
        return list(translator.feed(decode(json.dumps(line).encode())))

    half = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "x" * 50}}
    assert feed({"type": "content_block_start", "content_block": {"type": "text", "text": ""}}) == []
    assert feed(half) == [Writing("x" * 50)]
    assert feed(half, "toolu_1") == []
    assert (
        feed({"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": "{"}})
        == []
    )
    assert feed(half) == [Writing("x" * 100)]
    message = {"role": "assistant", "content": [{"type": "text", "text": "x" * 100}]}
    whole = translator.feed(decode(json.dumps({"type": "assistant", "message": message}).encode()))
    assert whole == [Text("x" * 100)]
    assert feed({"type": "content_block_start"}) == []
    assert feed(half) == [Writing("x" * 50)]
    thought = {"type": "content_block_start", "content_block": {"type": "thinking", "thinking": ""}}
    assert feed(thought) == [Thinking("")]
    assert feed(thought, "toolu_1") == []
