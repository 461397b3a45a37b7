"""Answers of a service that take the worker much longer to read than they are long, or more stack than there is. The
worker reads them in its event loop: while it does, its other runs wait, and after a while it is killed with them."""

from __future__ import annotations

import json
import time

import pytest

from codebutler_worker.agents.native.content import parted, written_calls

CHARS = 100_000
LONGEST_S = 2.0
TOOLS = [{"function": {"name": "f", "parameters": {"properties": {"a": {"type": "string"}}}}}]


def seconds(text: str) -> float:
    """Of the processor."""
    began_s = time.process_time()
    parted(text)
    written_calls(text, TOOLS)
    return time.process_time() - began_s


@pytest.mark.parametrize(
    "piece",
    [
        "<tool_call>", "<tool_call>x ", "<function=", "<function=f>", "<invoke ", '<invoke name="f">', "<parameter=",
        "<parameter=a>", '<parameter name="', "<arg_key>", "<arg_key></arg_key>", "<arg_key>a</arg_key><arg_value>",
        "<|tool_call_begin|>", "[TOOL_CALLS]", "```json\n{", '{"name":', "<think>", "</think>\n", "<think></think>",
        " ",
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", ""), ("<function=f>", "x"), ("<tool_call>f", "x"), ('<tool_call>{"name":"f","arguments":', "x"),
        ("[TOOL_CALLS]f", "x"), ("```json\n{", "x}```"),
    ],
)  # fmt: skip
def test_what_is_opened_and_never_closed_is_read_in_linear_time(piece: str, before: str, after: str) -> None:
    assert seconds(before + piece * (CHARS // len(piece)) + after) < LONGEST_S


def test_as_many_thoughts_as_anybody_has_are_taken_out_and_no_stack_is_too_small() -> None:
    assert parted("<think>a</think>" * 3 + "b") == ("b", "a\n\na\n\na")
    said, _ = parted("<think></think>" * 5_000 + "b")
    assert said.endswith("b")
    assert written_calls("[TOOL_CALLS]f" + '{"a":' * 50_000, TOOLS)[1]


def test_calls_are_still_read() -> None:
    glm = "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>\nb\n</arg_value>\n</tool_call>"
    qwen = "<function=f>\n<parameter=a>\nb\n</parameter>\n</function>"
    fenced = 'So:\n```json\n{"name": "f", "arguments": {"a": "b"}}\n```\n'
    for text in (glm, qwen, fenced):
        _, (call,) = written_calls(text, TOOLS)
        assert (call.name, json.loads(call.arguments.strip())) == ("f", {"a": "b"}), text
    _, (call,) = written_calls('<tool_call>{"name": "f", "arguments": {"a": "b",} }</tool_call>', TOOLS)
    assert call.arguments.strip() == '{"a": "b",}'
