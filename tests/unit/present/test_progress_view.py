"""Events to view to message."""

from __future__ import annotations

import re

import pytest

from codebutler.text.wording import amount, one_line, ordinal, span, thousands
from codebutler_worker.agents.backend import (
    Approval,
    Finished,
    Plan,
    Question,
    Refusal,
    Started,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    Usage,
)
from codebutler_worker.present.notices import failed, interrupted
from codebutler_worker.present.progress import TurnProgress, collapsed, in_line, reduce, running
from codebutler_worker.tools.tool import PlanStep
from tests.shown import blocks_of, text_of


def seen(*events: object) -> TurnProgress:
    view = TurnProgress()
    for event in events:
        view = reduce(view, event)  # type: ignore[arg-type]  # any event
    return view


def test_who_is_waited_for_is_said_first() -> None:
    view = TurnProgress(activity="Bash: ls", is_tool=True, tools=1, waits="approval")
    assert (
        text_of(running(view, 5, "t", "claude"))
        == "✋ claude is waiting for your approval · 5s · 1 tool call"
    )


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
    assert seen(event) == TurnProgress()


def test_the_message_shows_activity_plan_and_waiting() -> None:
    view = seen(
        Thinking("hm"),
        ToolUse("1", "Bash", "npm `x` <!channel>"),
        Plan(tuple(PlanStep(f"step {number}", "pending") for number in range(10))),
        Refusal("rate limited, retrying"),
        Usage(1, 2),
    )
    message = running(view, 75, "turn-1", "claude")
    assert text_of(message).startswith("🔧 `Bash: npm 'x' ")
    assert "<!channel>" not in text_of(message)
    assert "· 1m15s · 1 tool" in text_of(message)
    assert "… and 2 more" in text_of(message)
    assert "⏳ rate limited, retrying" in text_of(message)
    stop = blocks_of(message)[1]["elements"][0]
    assert (stop["action_id"], stop["value"]) == ("codebutler.stop", "turn-1")


def test_a_plan_is_shown_with_its_states() -> None:
    steps = (PlanStep("read", "done"), PlanStep("fix", "in_progress"), PlanStep("test", "pending"))
    text = text_of(running(seen(Plan(steps)), 5, "t", "claude"))
    assert text.split("\n")[1:] == ["✓ read", "▸ fix", "· test"]


@pytest.mark.parametrize(("done", "total"), [(0, 9), (5, 9), (9, 9), (30, 40), (2, 100), (40, 40)])
def test_of_a_long_plan_what_is_worked_on_is_shown(done: int, total: int) -> None:
    steps = [
        PlanStep(f"s{n}", "done" if n < done else "in_progress" if n == done else "pending")
        for n in range(total)
    ]
    lines = text_of(running(seen(Plan(tuple(steps))), 5, "t", "claude")).split("\n")[1:]
    assert len(lines) <= 10
    assert done == total or f"▸ s{done}" in lines
    hidden = sum(
        int(word)
        for line in lines
        if " done" in line or "more" in line
        for word in line.split()
        if word.isdigit()
    )
    assert hidden + sum(" s" in line for line in lines) == total


def test_the_cost_so_far_is_shown_else_the_tokens() -> None:
    view = seen(ToolUse("1", "Bash", "ls"), Usage(12_000, 345, None, 1))
    assert text_of(running(view, 5, "t", "claude")) == "🔧 `Bash: ls` · 5s · 1 tool call · 12.3k tokens"
    paid = reduce(view, Usage(12_000, 345, 0.12, 1))
    assert text_of(running(paid, 5, "t", "claude")) == "🔧 `Bash: ls` · 5s · 1 tool call · $0.12"
    assert text_of(collapsed("done", paid, 6)) == "✅ Done · 1 tool call"
    assert text_of(collapsed("failed", paid, 6)) == "❌ 6s · 1 tool call · $0.12"


@pytest.mark.parametrize(
    ("place", "text"),
    [
        (1, "⏳ Next in line."),
        (2, "⏳ 2nd in line."),
        (9, "⏳ 9th in line."),
        (10, "⏳ Far back (10th or later) in line."),
    ],
)
def test_who_waits_is_told_how_many_are_before(place: int, text: str) -> None:
    message = in_line(place, "turn-1")
    assert text_of(message) == text
    assert blocks_of(message)[1]["elements"][0]["value"] == "turn-1"


def test_the_message_stays_below_what_a_section_takes() -> None:
    view = seen(
        ToolUse("1", "B" * 5000, "x" * 5000),
        Plan(tuple(PlanStep("&" * 500, "done") for _ in range(50))),
        Approval("a", "Bash", "&" * 900, {}),
        Question("q", "&" * 900),
    )
    text = blocks_of(running(view, 1, "t", "claude"))[0]["text"]["text"]
    assert 2600 < len(text) <= 3000
    assert not re.search(r"&(?!amp;|lt;|gt;)", text)


@pytest.mark.parametrize(
    ("outcome", "line"),
    [
        ("done", "✅ Done · 3 tool calls"),
        ("failed", "❌ 34s · 3 tool calls"),
        ("stopped", "🛑 34s · 3 tool calls"),
    ],
)
def test_it_shrinks_to_one_line(outcome: str, line: str) -> None:
    view = seen(*(ToolUse(str(number), "Bash", "") for number in range(3)))
    message = collapsed(outcome, view, 34.2)  # type: ignore[arg-type]  # one of the outcomes
    assert (text_of(message), blocks_of(message)) == (line, ())


def test_a_request_is_quoted_harmlessly() -> None:
    assert "<!channel>" not in text_of(interrupted("t", "<!channel>\nhello", None))
    assert "<@U1>" not in text_of(failed("t", "no <@U1>", resumable=True))


def test_only_what_met_a_limit_can_be_continued() -> None:
    assert blocks_of(failed("t", "no", resumable=False)) == ()
    assert blocks_of(failed("t", "no", resumable=True))[1]["elements"][0]["action_id"] == "codebutler.retry"


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
    assert amount("usd", usd) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (999, "999"), (1000, "1.0k"), (999_949, "999.9k"), (999_950, "1.0M"), (2_340_000, "2.3M")],
)
def test_thousands(number: int, text: str) -> None:
    assert thousands(number) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1, "1st"),
        (2, "2nd"),
        (3, "3rd"),
        (4, "4th"),
        (11, "11th"),
        (12, "12th"),
        (21, "21st"),
        (113, "113th"),
    ],
)
def test_ordinal(number: int, text: str) -> None:
    assert ordinal(number) == text


def test_one_line() -> None:
    assert one_line(" a \n b\t c ") == "a b c"
    assert one_line("x" * 20, 10) == "xxxxxxxxx…"
