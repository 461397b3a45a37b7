"""What Claude Code asks, takes back, and plans."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from codebutler_worker.agents.backend import AgentEvent, Approval, Question, ToolResult, Withdrawn
from codebutler_worker.agents.claude.schema import decode
from codebutler_worker.agents.claude.translate import ClaudeTranslator

REPO = Path("/home/you/repo")
PLAN_FILE = "/home/you/.claude/plans/first-zazzy-donut.md"


def feed(translator: ClaudeTranslator, *lines: dict[str, Any]) -> list[AgentEvent]:
    return [event for each in lines for event in translator.feed(decode(json.dumps(each).encode()))]


def asks(request_id: str, tool: str, given: dict[str, Any], call_id: str = "t1") -> dict[str, Any]:
    request = {"subtype": "can_use_tool", "tool_name": tool, "input": given, "tool_use_id": call_id}
    return {"type": "control_request", "request_id": request_id, "request": request}


def calls(tool: str, given: dict[str, Any], call_id: str = "t1") -> dict[str, Any]:
    block = {"type": "tool_use", "id": call_id, "name": tool, "input": given}
    return {"type": "assistant", "message": {"content": [block]}}


def test_a_request_that_is_taken_back_is_told_once() -> None:
    translator = ClaudeTranslator(REPO)
    cancel = {"type": "control_cancel_request", "request_id": "r1"}
    events = feed(translator, asks("r1", "Bash", {"command": "ls"}), cancel, cancel)
    assert events[1:] == [Withdrawn("r1")]
    assert not translator.asking


def test_a_result_takes_its_request_back() -> None:
    result = {
        "type": "tool_result",
        "tool_use_id": "t1",
        "content": "Permission stream closed",
        "is_error": True,
    }
    told = {"type": "user", "message": {"content": [result]}}
    events = feed(ClaudeTranslator(REPO), asks("r1", "Bash", {"command": "ls"}), told)
    assert events[1:] == [Withdrawn("r1"), ToolResult("t1", False, "Permission stream closed")]


def test_nothing_else_is_slipped_in_under_an_id_that_is_asked_about() -> None:
    """Agents can write to the program's output: what a person saw must be what runs."""
    translator = ClaudeTranslator(REPO)
    events = feed(
        translator, asks("r1", "Bash", {"command": "ls"}), asks("r1", "Bash", {"command": "rm -rf ."})
    )
    assert len(events) == 1
    assert translator.asking["r1"].request.input == {"command": "ls"}


def questions(*asked: Any) -> list[AgentEvent]:
    return feed(ClaudeTranslator(REPO), asks("r", "AskUserQuestion", {"questions": list(asked)}))


def test_each_question_of_one_call_is_asked_and_knows_how_many_there_are() -> None:
    first = {"question": "A?", "options": [{"label": "x", "description": "why x"}, "junk", {"label": "y"}]}
    second = {"question": "B?", "options": "junk", "multiSelect": True}
    assert questions(first, second) == [
        Question("r#0", "A?", ("x", "y"), ("why x", ""), of=2),
        Question("r#1", "B?", (), (), several=True, of=2),
    ]


def test_the_same_question_twice_is_asked_once() -> None:
    """Its answers go by their texts."""
    twice = {"question": "A?", "options": []}
    assert questions(twice, {"question": "B?"}, twice) == [
        Question("r#0", "A?", of=2),
        Question("r#1", "B?", of=2),
    ]


def test_a_call_without_a_question_is_asked_about_as_any_other() -> None:
    assert questions() == [Approval("r", "AskUserQuestion", "", {"questions": []})]


def plan_of(*lines: dict[str, Any]) -> Any:
    events = feed(ClaudeTranslator(REPO), *lines, asks("r1", "ExitPlanMode", {}, "exit"))
    asked = events[-1]
    assert isinstance(asked, Approval)
    assert (asked.id, asked.tool) == ("r1", "ExitPlanMode")
    return asked.input.get("plan")


def test_the_plan_of_the_call_is_shown() -> None:
    assert plan_of(calls("ExitPlanMode", {"plan": "1. do it"}, "exit")) == "1. do it"
    assert plan_of(calls("ExitPlanMode", {"plan": "1. another call's"}, "other")) is None


def test_the_plan_of_the_file_is_shown_as_it_was_edited() -> None:
    written = calls("Write", {"file_path": PLAN_FILE, "content": "1. look\n2. break"})
    edited = calls("Edit", {"file_path": PLAN_FILE, "old_string": "break", "new_string": "mend"}, "t2")
    other = calls("Write", {"file_path": "/home/you/repo/plan.md", "content": "not this"}, "t3")
    assert plan_of(written, edited, other, calls("ExitPlanMode", {}, "exit")) == "1. look\n2. mend"
    assert plan_of(edited) is None


def test_what_is_sent_back_is_the_input_as_it_came() -> None:
    translator = ClaudeTranslator(REPO)
    feed(
        translator,
        calls("ExitPlanMode", {"plan": "1. do it"}, "exit"),
        asks("r1", "ExitPlanMode", {}, "exit"),
    )
    assert translator.asking["r1"].request.input == {}


def test_a_null_field_is_as_good_as_none_but_what_a_tool_gets_stays() -> None:
    asked = asks("r1", "Edit", {"file_path": "a", "new_string": None}, call_id="")
    asked["request"]["tool_use_id"] = None
    translator = ClaudeTranslator(REPO)
    [approval] = feed(translator, asked)
    assert isinstance(approval, Approval)
    assert translator.asking["r1"].request.input == approval.input == {"file_path": "a", "new_string": None}
    said = {"model": None, "usage": None, "content": [None, {"type": "text", "text": "Done.", "id": None}]}
    told = {"result": "Done.", "is_error": False, "subtype": None, "num_turns": None, "usage": None}
    feed(translator, {"type": "assistant", "message": said}, {"type": "result", **told})
    verdict = translator.verdict()
    assert verdict is not None
    assert (verdict.reason, verdict.text) == ("done", "Done.")


@pytest.mark.parametrize("half", [b"\\ud83d", b"\xf0\x9f"])
def test_half_a_character_does_not_cost_the_line(half: bytes) -> None:
    asked = json.dumps(asks("r1", "Bash", {"command": "echo HALF"})).encode().replace(b"HALF", half)
    [approval] = ClaudeTranslator(REPO).feed(decode(asked))
    assert isinstance(approval, Approval)
    assert approval.input == {"command": "echo \ufffd"}
