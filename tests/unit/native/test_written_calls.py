"""Calls and reasoning that a model wrote into its words."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codebutler_worker.agents.native.content import before_calls, parted, said_so_far, words_of, written_calls

PROPERTIES = {"path": {"type": "string"}, "lines": {"type": "integer"}, "paths": {"type": "array"}}
TOOLS = [{"type": "function", "function": {"name": "edit", "parameters": {"properties": PROPERTIES}}}]
GIVEN = {"path": "a.py", "lines": 7}
JSON = json.dumps(GIVEN)


@pytest.mark.parametrize(
    "written",
    [
        f'<tool_call>{{"name": "edit", "arguments": {JSON}}}</tool_call>',
        f'<tool_call>\n{{"name": "edit", "parameters": {JSON}}}\n',
        "<tool_call>\n<function=edit>\n<parameter=path>\na.py\n</parameter>\n<parameter=lines>7</parameter>\n"
        "</function>\n</tool_call>",
        "<function=edit><parameter=path>a.py</parameter><parameter=lines>7</parameter></function>",
        "<tool_call>edit\n<arg_key>path</arg_key>\n<arg_value>a.py</arg_value>\n<arg_key>lines</arg_key>"
        "<arg_value>7</arg_value>\n</tool_call>",
        f'[TOOL_CALLS] [{{"name": "edit", "arguments": {JSON}}}]',
        f"[TOOL_CALLS]edit[ARGS]{JSON}",
        f"[TOOL_CALLS]edit[CALL_ID]abc123DEF[ARGS]{JSON}",
        f"[TOOL_CALLS]edit{JSON}",
        f"<|tool_calls_section_begin|><|tool_call_begin|>functions.edit:0<|tool_call_argument_begin|>{JSON}"
        "<|tool_call_end|><|tool_calls_section_end|>",
        '<function_calls>\n<invoke name="edit">\n<parameter name="path" string="true">a.py</parameter>\n'
        '<parameter name="lines">7</parameter>\n</invoke>\n</function_calls>',
        f'```json\n{{"name": "edit", "arguments": {JSON}}}\n```',
        f'```\n{{"type": "function", "function": {{"name": "edit", "arguments": {json.dumps(JSON)}}}}}\n```',
    ],
)
@pytest.mark.parametrize("lead", ["", "I edit it.\n\n"])
def test_a_call_among_the_words_is_one(written: str, lead: str) -> None:
    words, calls = written_calls(lead + written, TOOLS)
    assert words == lead.strip()
    assert [(call.id, call.name, json.loads(call.arguments)) for call in calls] == [("", "edit", GIVEN)]


def test_several_are_several() -> None:
    tagged = "".join(
        f'<tool_call>{{"name": "edit", "arguments": {{"lines": {at}}}}}</tool_call>\n' for at in (1, 2)
    )
    assert [json.loads(call.arguments) for call in written_calls(tagged, TOOLS)[1]] == [
        {"lines": 1},
        {"lines": 2},
    ]
    mistral = '[TOOL_CALLS]edit[ARGS]{"lines": 1}[TOOL_CALLS]edit[ARGS]{"lines": 2}'
    assert [json.loads(call.arguments) for call in written_calls(mistral, TOOLS)[1]] == [
        {"lines": 1},
        {"lines": 2},
    ]


def test_what_is_nearly_json_is_left_to_who_understands_it() -> None:
    _, [call] = written_calls(
        '<tool_call>{"name": "edit", "arguments": {"path": \'a.py\'}}</tool_call>', TOOLS
    )
    assert (call.name, call.arguments) == ("edit", "{\"path\": 'a.py'}")


@pytest.mark.parametrize(
    "text",
    [
        "Models write `<tool_call>` and then JSON.",
        f'In the middle <tool_call>{{"name": "edit", "arguments": {JSON}}}</tool_call> it is quoted.',
        f'```\n<tool_call>{{"name": "edit", "arguments": {JSON}}}</tool_call>\n```',
        '```json\n{"name": "my-package", "version": "1.0.0"}\n```',
        f'```json\n{{"name": "unknown", "arguments": {JSON}}}\n```',
        '{"name": "edit"}',
        "[1, 2]",
        "[]",
        "",
    ],
)
def test_what_is_only_about_calls_is_none(text: str) -> None:
    assert written_calls(text, TOOLS) == (text, ())
    assert written_calls(f'<tool_call>{{"name": "edit", "arguments": {JSON}}}</tool_call>', [])[1] == ()


@pytest.mark.parametrize(
    ("text", "said", "thought"),
    [
        ("<think>hm</think>Done.", "Done.", "hm"),
        ("\n<think>\nhm\n</think>\n\nDone.", "Done.", "hm"),
        ("[THINK]hm[/THINK]Done.", "Done.", "hm"),
        ("<think>half a tho", "", "half a tho"),
        ("hm\n</think>\n\nDone.", "Done.", "hm"),
        ("<think>a</think><think>b</think>c", "c", "a\n\nb"),
        ("The tag `</think>` ends it.", "The tag `</think>` ends it.", ""),
        ("```\n</think>\n```", "```\n</think>\n```", ""),
        ("Say <think> twice.", "Say <think> twice.", ""),
    ],
)
def test_reasoning_is_parted_from_words(text: str, said: str, thought: str) -> None:
    assert parted(text) == (said, thought)


def test_words_may_come_in_parts() -> None:
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}, {"type": "text", "text": "m"}]},
        {"type": "reference", "reference_ids": [1]},
        {"type": "text", "text": "Do"},
        "ne.",
    ]
    assert words_of(parts) == ("Done.", "hmm")
    assert words_of(None) == words_of(7) == words_of([None, {}]) == ("", "")


@given(st.text())
def test_nothing_breaks_it(text: str) -> None:
    for mark in ("", "<think>", "<tool_call>", "[TOOL_CALLS]", "<function=edit>", "```json\n{", "{"):
        said, _ = parted(mark + text)
        assert said_so_far(mark + text) in (said, "")
        words, calls = written_calls(mark + text, TOOLS)
        assert calls or words == mark + text
        assert (mark + text).startswith(before_calls(mark + text))
