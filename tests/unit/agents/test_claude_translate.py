"""Claude Code's recorded output, translated."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from codebutler_worker.agents.backend import (
    AgentEvent,
    Approval,
    Plan,
    Question,
    Refusal,
    Started,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    Usage,
    Withdrawn,
)
from codebutler_worker.agents.claude.schema import Line, Meter, decode
from codebutler_worker.agents.claude.translate import ClaudeTranslator
from codebutler_worker.tools.tool import PlanStep

GOLDEN = Path(__file__).parents[2] / "golden" / "claude"
REPO = Path("/home/you/repo")
STARTED = "started"


def replay(
    case: str, translator: ClaudeTranslator | None = None
) -> tuple[ClaudeTranslator, list[AgentEvent]]:
    translator = translator or ClaudeTranslator(REPO)
    lines = (GOLDEN / f"{case}.jsonl").read_bytes().splitlines()
    events = [event for line in lines for event in translator.feed(decode(line))]
    # What was answered during the recording is not known to the replay, which takes the questions back.
    return translator, [event for event in events if not isinstance(event, Withdrawn)]


def line(**fields: object) -> Line:
    found = decode(json.dumps(fields).encode())
    assert found is not None
    return found


def brief(event: AgentEvent) -> str:
    match event:
        case Started():
            return STARTED
        case Text(text) | Thinking(text):
            return text
        case ToolUse(_, name, summary) | Approval(_, name, summary):
            return f"{type(event).__name__} {name} {summary}".strip()
        case ToolResult(_, ok):
            return "ok" if ok else "not ok"
        case Refusal(text):
            return text
        case Question(_, text, options):
            return f"{text} {'/'.join(options)}"
        case Usage(given, taken, _, turns):
            return f"{given}+{taken} in {turns}"
        case other:
            return repr(other)


EVENTS = {
    "answer_2_1_197": [STARTED, "ok", "100+20 in 1"],
    "thinking": [STARTED, "let me think", "answer", "100+20 in 1"],
    "state_events": [STARTED, "ok", "100+20 in 1"],
    "background_command": [
        STARTED,
        "ToolUse Bash python3 -c 'import time; time.sleep(40)'",
        "ok",
        "started in background",
        "200+40 in 2",
        "after bg",
        "300+60 in 3",
    ],
    "subagent": [
        STARTED,
        "ToolUse Agent look",
        "ok",
        "ToolUse Bash pwd",
        "ok",
        "main end",
        "300+60 in 3",
    ],
    "permission_2_1_197": [
        STARTED,
        "w",
        "ToolUse Bash touch allowed.txt",
        "Approval Bash touch allowed.txt",
        "ok",
        "end",
        "200+40 in 2",
    ],
    "question": [
        STARTED,
        "ToolUse AskUserQuestion",
        "Which colour? Red/Blue",
        "ok",
        "end",
        "200+40 in 2",
    ],
    "service_recovers": [
        STARTED,
        "The model service answered 500: retry 1 of 10 in 1 s",
        "recovered",
        "100+20 in 1",
    ],
    "wrong_key": [STARTED, "The model service answered 401: retry 1 of 1 in 1 s", "0+0 in 1"],
    "unknown_session": ["0+0 in 0"],
}


@pytest.mark.parametrize("case", EVENTS)
def test_the_events_of_a_recorded_run(case: str) -> None:
    translator, events = replay(case)
    assert [brief(event) for event in events] == EVENTS[case]
    assert translator.settled


@pytest.mark.parametrize(
    ("case", "reason", "text"),
    [
        ("answer", "done", "Hello from"),
        ("background_command", "done", "after bg"),
        ("interrupted_then_second_turn", "done", "second turn ok"),
        ("max_turns", "max_turns", "Continue"),
        ("max_budget", "failed", "maximum budget"),
        ("wrong_key", "auth", "claude auth login"),
        ("wrong_key_2_1_197", "auth", "claude auth login"),
        ("not_logged_in", "auth", "claude auth login"),
        ("rate_limited", "overloaded", "429"),
        ("service_down", "overloaded", "500"),
        ("unknown_session", "session_lost", "gone"),
        ("no_session_id", "session_lost", "gone"),
    ],
)
def test_the_verdict_of_a_recorded_run(case: str, reason: str, text: str) -> None:
    translator, _ = replay(case)
    verdict = translator.verdict()
    assert verdict is not None
    assert (verdict.reason, verdict.ok) == (reason, reason == "done")
    assert text in verdict.text
    assert verdict.ok or "\n" not in verdict.text


def test_a_killed_run_has_no_verdict_and_its_tool_still_runs() -> None:
    translator, _ = replay("killed_in_tool")
    assert translator.verdict() is None
    assert translator.running or translator.tasks
    assert not translator.settled


def test_an_interrupted_turn_is_stopped() -> None:
    translator = ClaudeTranslator(REPO)
    for raw in (GOLDEN / "interrupted_then_second_turn.jsonl").read_bytes().splitlines():
        translator.feed(decode(raw))
        if translator.settled:
            break
    verdict = translator.verdict()
    assert verdict is not None
    assert verdict.reason == "stopped"


def test_a_background_task_keeps_the_turn_open_until_the_answer_to_it() -> None:
    translator = ClaudeTranslator(REPO)
    settled = []
    for raw in (GOLDEN / "background_command.jsonl").read_bytes().splitlines():
        translator.feed(decode(raw))
        settled.append(translator.settled)
    assert settled[-1]
    assert not any(settled[:-1])


def test_a_message_sent_into_the_turn_keeps_it_open_until_it_was_read() -> None:
    translator = ClaudeTranslator(REPO)
    translator.sent.add("m1")
    translator.sent.add("m2")
    translator.feed(line(type="command_lifecycle", command_uuid="m1", state="started"))
    translator.feed(line(type="result", is_error=False, result="one"))
    assert not translator.settled
    translator.feed(line(type="command_lifecycle", command_uuid="m2", state="started"))
    translator.feed(line(type="result", is_error=False, result="two"))
    assert translator.settled


def test_a_cli_that_does_not_follow_messages_is_not_waited_for() -> None:
    translator = ClaudeTranslator(REPO)
    translator.sent.add("m1")
    translator.feed(line(type="result", is_error=False, result="one"))
    assert translator.settled


def test_cost_is_the_difference_of_totals() -> None:
    translator, events = replay("background_command", ClaudeTranslator(REPO, Meter(0.002)))
    usage = events[-1]
    assert isinstance(usage, Usage)
    assert usage.cost_usd == pytest.approx(0.0004)
    assert translator.result is not None
    assert translator.result.total_cost_usd == pytest.approx(0.0024)


def test_what_is_not_understood_is_counted() -> None:
    translator = ClaudeTranslator(REPO)
    junk = [
        b"",
        b"not json",
        b"[1]",
        b'{"type":"novelty"}',
        b'{"type":"result","is_error":"x"}',
        b"\xff{",
        b"[" * 5000,
    ]
    for raw in junk:
        assert translator.feed(decode(raw)) == []


def test_a_result_that_does_not_say_so_is_no_success() -> None:
    translator = ClaudeTranslator(REPO)
    translator.feed(line(type="result", subtype="success", result="fine"))
    verdict = translator.verdict()
    assert verdict is not None
    assert not verdict.ok


def test_the_task_list_is_a_plan_once_it_was_taken() -> None:
    block = {"type": "tool_use", "id": "1", "name": "TodoWrite", "input": {"todos": [{"content": "a"}]}}
    result = {"type": "tool_result", "tool_use_id": "1", "content": "ok"}
    translator = ClaudeTranslator(REPO)
    assert translator.feed(line(type="assistant", message={"content": [block]})) == []
    events = translator.feed(line(type="user", message={"content": [result]}))
    assert events == [Plan((PlanStep("a", "pending"),))]


def test_a_subagents_task_list_is_a_tool_like_others() -> None:
    block = {"type": "tool_use", "id": "1", "name": "TodoWrite", "input": {"todos": [{"content": "a"}]}}
    events = ClaudeTranslator(REPO).feed(
        line(type="assistant", message={"content": [block]}, parent_tool_use_id="p")
    )
    assert [type(event) for event in events] == [ToolUse]


def test_tokens_and_cost_are_told_while_the_turn_runs() -> None:
    translator = ClaudeTranslator(REPO, Meter(1.0))
    start = {
        "type": "message_start",
        "message": {"usage": {"input_tokens": 5, "cache_read_input_tokens": 95}},
    }
    end = {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 20}}
    assert translator.feed(line(type="stream_event", event=start, parent_tool_use_id=None)) == []
    assert translator.feed(line(type="stream_event", event=end)) == [Usage(100, 20, None, 1)]
    told = {"subtype": "success", "request_id": "cost", "response": {"text": "Estimated cost:   $1.25\nmore"}}
    assert translator.feed(line(type="control_response", response=told)) == [Usage(100, 20, 0.25, 1)]
    assert translator.feed(line(type="control_response", response=told)) == []
    usage = {"input_tokens": 100, "output_tokens": 21}
    result = line(type="result", is_error=False, result="x", num_turns=1, total_cost_usd=1.5, usage=usage)
    assert translator.feed(result) == [Usage(100, 21, 0.5, 1)]


def test_a_cancelled_request_no_longer_asks() -> None:
    translator = ClaudeTranslator(REPO)
    ask = {"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "ls"}}
    assert translator.feed(line(type="control_request", request_id="r", request=ask))
    assert translator.asking
    translator.feed(line(type="control_cancel_request", request_id="r"))
    assert not translator.asking


def test_a_summary_is_one_short_line() -> None:
    use = {"type": "tool_use", "id": "1", "name": "Bash", "input": {"command": "echo a\n" + "b" * 500}}
    long = {"type": "tool_use", "id": "2", "name": "Bash", "input": {"command": "c" * 500}}
    odd = {"type": "tool_use", "id": "3", "name": "Bash", "input": ["not", "a", "mapping"]}
    events = ClaudeTranslator(REPO).feed(line(type="assistant", message={"content": [use, long, odd]}))
    summaries = [event.summary for event in events if isinstance(event, ToolUse)]
    assert summaries == ["echo a …", "c" * 119 + "…", ""]


def test_figures_may_be_null() -> None:
    nothing = dict.fromkeys(
        ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    )
    said = {"content": [{"type": "text", "text": "Done."}], "usage": {**nothing, "input_tokens": 3}}
    translator = ClaudeTranslator(REPO)
    assert translator.feed(line(type="assistant", message=said)) == [Text("Done.")]
    translator.feed(
        line(type="stream_event", event={"type": "message_start", "message": {"usage": {**nothing}}})
    )
    translator.feed(line(type="stream_event", event={"type": "message_delta", "usage": {**nothing}}))
    [usage] = translator.feed(line(type="result", is_error=False, result="Done.", usage=nothing))
    assert isinstance(usage, Usage)
    assert (usage.input_tokens, usage.output_tokens) == (0, 0)
    verdict = translator.verdict()
    assert verdict is not None
    assert (verdict.reason, verdict.text) == ("done", "Done.")
