"""Every tool with its result, for those who want to see it."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from codebutler.chat.layout import Section
from codebutler.chat.slack.render import mrkdwn
from codebutler.text.redact import Redactor
from codebutler_worker.present.progress import RESULT_CHARS, joined, tool_result


def test_the_call_and_what_it_answered() -> None:
    assert (
        tool_result("Bash: ls", "a\nb\n", ok=True, redact=Redactor().redact) == "✓ `Bash: ls`\n```\na\nb\n```"
    )
    assert tool_result("Edit: a.py", "  \n", ok=True, redact=Redactor().redact) == "✓ `Edit: a.py`"
    assert tool_result("Bash: false", "exit 1", ok=False, redact=Redactor().redact).startswith(
        "✗ `Bash: false`"
    )


def test_a_long_result_is_cut_and_says_so() -> None:
    assert tool_result("Bash", "line\n" * 100, ok=True, redact=Redactor().redact).endswith("line\n…\n```")
    assert len(tool_result("Bash", "x" * 5000, ok=True, redact=Redactor().redact)) < RESULT_CHARS + 50


def test_no_secret_and_no_mention_is_shown() -> None:
    key = "sk-ant-api03-" + "a1b2c3d4" * 8
    shown = tool_result(
        "Bash: env",
        f"{'x' * (RESULT_CHARS - 20)}{' '}{key}\n<!channel> <@U0ANA>",
        ok=True,
        redact=Redactor().redact,
    )
    assert "sk-ant" not in shown
    shown = mrkdwn(Section(shown))
    assert "<!" not in shown
    assert "<@" not in shown


@given(st.text(max_size=300), st.text(max_size=1500), st.booleans())
def test_whatever_a_tool_answers_stays_in_its_block(label: str, text: str, ok: bool) -> None:
    shown = tool_result(label, text, ok=ok, redact=str)
    assert shown.count("```") in (0, 2)
    assert not re.search(r"<[@!#]", mrkdwn(Section(shown)))
    assert shown.count("\n") < 25 or "\r" in text


def test_what_was_left_out_is_counted() -> None:
    assert joined(["a", "b"], 0) == "a\nb"
    assert joined(["a"], 7) == "a\n… and 7 more, too many to show"
