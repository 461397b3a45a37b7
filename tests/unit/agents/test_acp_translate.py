"""What the protocol's updates come to: the real Kimi Code's as it wrote them, and what others may write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from acp.schema import RequestPermissionRequest, SessionNotification

from codebutler_worker.agents.acp.link import decode
from codebutler_worker.agents.acp.translate import (
    MOST_CALLS,
    MOST_CHARS,
    AcpTranslator,
    is_choice,
    option_for,
)
from codebutler_worker.agents.backend import (
    AgentEvent,
    Approval,
    Question,
    Text,
    ToolResult,
    ToolUse,
)

GOLDEN = Path(__file__).parents[2] / "golden" / "kimi" / "acp.jsonl"
REPO = Path("/home/you/scratch/repo")


def recorded() -> list[AgentEvent]:
    """The whole recorded stream as one turn's events."""
    translator = AcpTranslator(REPO)
    events: list[AgentEvent] = []
    for line in GOLDEN.read_bytes().splitlines():
        message = msgspec.json.decode(line)
        match message.get("method"):
            case "session/update":
                events += translator.feed(SessionNotification.model_validate(message["params"]))
            case "session/request_permission":
                request = RequestPermissionRequest.model_validate(message["params"])
                events += translator.asked(f"ask-{message['id']}", request)
    return [*events, *translator.flush()]


def test_what_kimi_code_did_is_told() -> None:
    events = recorded()
    shell = {"command": "touch acp1.txt", "description": "t"}
    [approval] = [event for event in events if isinstance(event, Approval)]
    assert approval == Approval("ask-0", "Bash", "touch acp1.txt", shell)
    uses = [event for event in events if isinstance(event, ToolUse)]
    assert [(use.name, use.summary) for use in uses[:2]] == [
        ("Bash", "touch acp1.txt"),
        ("Write", "acp2.txt"),
    ]
    results = [event for event in events if isinstance(event, ToolResult)]
    assert [result.id for result in results] == [use.id for use in uses]
    assert results[0].text == "Command executed successfully."
    [question] = [event for event in events if isinstance(event, Question)]
    assert (question.text, question.options) == ("Which?", ("A", "B"))
    texts = [event.text for event in events if isinstance(event, Text)]
    assert texts[:2] == ["Hello over ACP.Running.", "done tools"]


def test_each_call_is_told_before_it_is_asked_about_and_before_its_result() -> None:
    told: set[str] = set()
    for event in recorded():
        if isinstance(event, ToolUse):
            told.add(event.id)
        if isinstance(event, ToolResult):
            assert event.id in told
        if isinstance(event, Approval):
            assert told


def update(translator: AcpTranslator, **given: Any) -> list[AgentEvent]:
    params = {"sessionId": "s", "update": given}
    return translator.feed(SessionNotification.model_validate(params))


def said(text: str, message: str | None = None) -> dict[str, Any]:
    return {
        "sessionUpdate": "agent_message_chunk",
        "content": {"type": "text", "text": text},
        "messageId": message,
    }


def test_another_message_is_another_block() -> None:
    translator = AcpTranslator(REPO)
    assert update(translator, **said("one ", "1")) == []
    assert update(translator, **said("two", "1")) == []
    assert update(translator, **said("three", "2")) == [Text("one two")]
    assert translator.flush() == [Text("three")]
    assert translator.answer.text == "one two\n\nthree"
    assert translator.flush() == []


def test_a_call_without_input_is_told_when_the_next_thing_happens() -> None:
    translator = AcpTranslator(REPO)
    assert (
        update(translator, sessionUpdate="tool_call", toolCallId="c", title="Search the web", kind="fetch")
        == []
    )
    assert translator.busy
    assert update(translator, **said("Meanwhile.")) == [ToolUse("c", "Fetch", "Search the web", {})]
    done = update(translator, sessionUpdate="tool_call_update", toolCallId="c", status="completed")
    assert done == [ToolResult("c", ok=True, text="")]
    assert not translator.busy


def test_a_working_directory_alone_tells_nothing_of_a_call() -> None:
    translator = AcpTranslator(REPO)
    call = {"toolCallId": "c", "title": "bash", "kind": "execute"}
    assert update(translator, sessionUpdate="tool_call", rawInput={"cwd": "/x"}, **call) == []
    told = update(translator, sessionUpdate="tool_call_update", rawInput={"command": "ls"}, **call)
    assert told == [ToolUse("c", "bash", "ls", {"command": "ls"})]


def test_what_a_mad_agent_says_has_bounds() -> None:
    translator = AcpTranslator(REPO)
    for at in range(MOST_CALLS + 5):
        update(translator, sessionUpdate="tool_call", toolCallId=f"c{at}", title="Do", kind="other")
    for _ in range(5):
        update(translator, **said("x" * (MOST_CHARS // 4)))
    told = translator.flush()
    assert [len(event.text) for event in told if isinstance(event, Text)] == [MOST_CHARS]
    done = update(
        translator, sessionUpdate="tool_call_update", toolCallId=f"c{MOST_CALLS + 4}", status="completed"
    )
    assert done == []


def test_only_dollars_are_counted() -> None:
    translator = AcpTranslator(REPO)
    update(translator, sessionUpdate="usage_update", used=1, size=2, cost={"amount": 3, "currency": "EUR"})
    assert translator.cost_usd is None
    update(translator, sessionUpdate="usage_update", used=1, size=2, cost={"amount": 3, "currency": "usd"})
    assert translator.cost_usd == 3


def request(*kinds: str, title: str = "Do", text: str = "") -> RequestPermissionRequest:
    content = [{"type": "content", "content": {"type": "text", "text": text}}] if text else []
    return RequestPermissionRequest.model_validate(
        {
            "sessionId": "s",
            "toolCall": {"toolCallId": "c", "title": title, "content": content},
            "options": [
                {"optionId": f"o{at}", "name": f"n{at}", "kind": kind} for at, kind in enumerate(kinds)
            ],
        }
    )


@pytest.mark.parametrize(
    ("kinds", "allow", "text", "chosen"),
    [
        (("allow_always", "allow_once", "reject_once"), True, "", "o1"),
        (("allow_always", "allow_once", "reject_once"), False, "no", "o2"),
        # Never one that the agent would remember.
        (("allow_always", "reject_always"), True, "", None),
        (("allow_once", "reject_always"), False, "", "o1"),
        (("allow_once",), False, "", None),
        (("allow_once", "allow_once", "reject_once"), True, "n1", "o1"),
        (("allow_once", "allow_once", "reject_once"), True, "something else", "o2"),
        (("allow_once", "allow_once", "reject_once"), False, "n1", "o2"),
        (("allow_once", "allow_once"), True, "something else", None),
    ],
)
def test_an_answer_is_the_option_that_says_it(
    kinds: tuple[str, ...], allow: bool, text: str, chosen: str | None
) -> None:
    assert option_for(request(*kinds), allow=allow, text=text) == chosen


def test_a_plan_is_asked_about_as_one() -> None:
    asked = request("allow_once", "reject_once", "reject_once", title="ExitPlanMode", text="# Plan\n1. it")
    assert not is_choice(asked)
    *_, approval = AcpTranslator(REPO).asked("a", asked)
    assert approval == Approval("a", "ExitPlanMode", "", {"plan": "# Plan\n1. it"})


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"x",
        b"[]",
        b'"x"',
        b"{}",
        b"[" * 5000,
        b'{"id": [1], "result": 1}',
        b'{"id": {"a": 1}, "method": "m"}',
        b'{"id": 1, "error": "e"}',
        b'{"id": 1, "error": {"code": "x"}}',
        b'{"id": 1, "error": {"code": 1, "message": 2}}',
        b'{"method": 7}',
        b"\xff\xfe",
    ],
)
def test_what_is_no_message_is_none(line: bytes) -> None:
    assert decode(line) is None


def test_messages_are_messages() -> None:
    for line in (b'{"id": 1, "result": null}', b'{"id": "a", "error": {}}', b'{"method": "m"}'):
        assert decode(line) == msgspec.json.decode(line)


@pytest.mark.parametrize("half", [b"\\ud83d", b"\xf0\x9f"])
def test_half_a_character_does_not_cost_the_message(half: bytes) -> None:
    assert decode(b'{"id": 1, "method": "m", "params": "a' + half + b'"}') == {
        "id": 1,
        "method": "m",
        "params": "a\ufffd",
    }
