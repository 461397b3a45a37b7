"""Events to view to message."""

from __future__ import annotations

import re

import pytest

from codebutler_worker.agents.backend import (
    Approval,
    Finished,
    Limit,
    Plan,
    PlanStep,
    Question,
    Started,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    Usage,
)
from codebutler_worker.present.lines import money, one_line, span
from codebutler_worker.present.notices import failed, interrupted
from codebutler_worker.present.progress import collapsed, running
from codebutler_worker.present.reducer import View, reduce


def seen(*events: object) -> View:
    view = View()
    for event in events:
        view = reduce(view, event)  # type: ignore[arg-type]  # any event
    return view


def test_tools_are_counted_and_the_last_is_remembered() -> None:
    view = seen(
        ToolUse("1", "Bash", "ls"),
        ToolResult("1", True, ""),
        ToolUse("2", "Edit", "a.py"),
        Text("Now testing."),
    )
    assert (view.tools, view.last_tool, view.activity) == (2, "Edit: a.py", "Now testing.")


@pytest.mark.parametrize(
    "event", [Started("s"), Text("  "), ToolResult("1", True, "x"), Finished(True, "", "done")]
)
def test_what_shows_nothing_changes_nothing(event: object) -> None:
    assert seen(event) == View()


def test_the_message_shows_activity_plan_and_waiting() -> None:
    view = seen(
        Thinking("hm"),
        ToolUse("1", "Bash", "npm `x` <!channel>"),
        Plan(tuple(PlanStep(f"step {number}", "pending") for number in range(10))),
        Limit("rate limited, retrying"),
        Usage(1, 2),
    )
    message = running(view, 75, "turn-1", "claude")
    assert message.text.startswith("🔧 `Bash: npm 'x' ")
    assert "<!channel>" not in message.text
    assert "· 1m15s · 1 tool" in message.text
    assert "… and 2 more" in message.text
    assert "⏳ rate limited, retrying" in message.text
    stop = message.blocks[1]["elements"][0]
    assert (stop["action_id"], stop["value"]) == ("codebutler.stop", "turn-1")


def test_the_message_stays_below_what_a_section_takes() -> None:
    view = seen(
        ToolUse("1", "B" * 5000, "x" * 5000),
        Plan(tuple(PlanStep("&" * 500, "done") for _ in range(50))),
        Approval("a", "Bash", "&" * 900, {}),
        Question("q", "&" * 900),
    )
    text = running(view, 1, "t", "claude").blocks[0]["text"]["text"]
    assert 2900 < len(text) <= 3000
    assert not re.search(r"&(?!amp;|lt;|gt;)", text)


@pytest.mark.parametrize(
    ("outcome", "line"),
    [("done", "✅ 34s · 3 tools"), ("failed", "❌ 34s · 3 tools"), ("stopped", "🛑 34s · 3 tools")],
)
def test_it_shrinks_to_one_line(outcome: str, line: str) -> None:
    view = seen(*(ToolUse(str(number), "Bash", "") for number in range(3)))
    message = collapsed(outcome, view, 34.2)  # type: ignore[arg-type]  # one of the outcomes
    assert (message.text, message.blocks) == (line, ())


def test_a_request_is_quoted_harmlessly() -> None:
    assert "<!channel>" not in interrupted("t", "<!channel>\nhello", None).text
    assert "<@U1>" not in failed("t", "no <@U1>", resumable=True).text


def test_only_what_met_a_limit_can_be_continued() -> None:
    assert failed("t", "no", resumable=False).blocks == ()
    assert failed("t", "no", resumable=True).blocks[1]["elements"][0]["action_id"] == "codebutler.retry"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0s"), (0.4, "0s"), (34, "34s"), (59.6, "1m00s"), (125, "2m05s"), (3725, "1h02m")],
)
def test_span(seconds: float, text: str) -> None:
    assert span(seconds) == text


@pytest.mark.parametrize(
    ("usd", "text"), [(0, "$0.00"), (0.12, "$0.12"), (0.004, "<$0.01"), (12.5, "$12.50")]
)
def test_money(usd: float, text: str) -> None:
    assert money(usd) == text


def test_one_line() -> None:
    assert one_line(" a \n b\t c ") == "a b c"
    assert one_line("x" * 20, 10) == "xxxxxxxxx…"
