"""What people see of prose that is still being written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codebutler.text.redact import Redactor
from codebutler_worker.agents.answer import clean
from codebutler_worker.agents.backend import AgentEvent, Refusal, Text, Thinking, ToolUse, Writing
from codebutler_worker.present.progress import MOST_CHARS, MOST_LINES, TurnProgress, latest, reduce, running
from tests.shown import text_of


def test_it_grows_in_the_progress_message_and_goes_when_it_is_whole() -> None:
    view = reduce(TurnProgress(), Writing("I **looked** at\n\n<!channel> the"))
    text = text_of(running(view, 3, "t", "agent"))
    assert text.split("\n")[0].startswith("💬 agent is writing · ")
    assert "> I *looked* at\n> " in text
    assert text.endswith(" the…")
    assert "<!channel>" not in text
    longer = reduce(view, Writing("I looked at\n\n<!channel> the code."))
    assert longer.writing.endswith("the code.…")
    assert "is writing" not in text_of(running(reduce(longer, Text("All of it.")), 4, "t", "agent"))


@pytest.mark.parametrize("event", [Text("done"), ToolUse("1", "Bash", "ls"), Refusal("asking again")])
def test_what_comes_of_it_takes_its_place(event: AgentEvent) -> None:
    assert reduce(reduce(TurnProgress(), Writing("half")), event).writing == ""


def test_thinking_leaves_it() -> None:
    assert reduce(reduce(TurnProgress(), Writing("half")), Thinking("hm")).writing == "half…"


def test_that_it_thinks_is_shown_until_something_comes_of_it() -> None:
    view = reduce(reduce(TurnProgress(), ToolUse("1", "Bash", "ls")), Thinking(""))
    assert text_of(running(view, 7, "t", "agent")).startswith("💭 agent is thinking · 7s · 1 tool")
    for event, shown in (
        (Writing("I will"), "💬 agent is writing"),
        (Text("Found it."), "💬 Found it."),
        (ToolUse("2", "Bash", "make"), "🔧 `Bash: make`"),
        (Refusal("asking again"), "🔧 `Bash: ls`"),
    ):
        assert text_of(running(reduce(view, event), 7, "t", "agent")).startswith(shown)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("  \n ", ""),
        ("one  two\n\nthree", "one two\nthree…"),
        ("Before <<<SLACK:done>>> all of it", "Before…"),
        ("Before <<<sla", "Before…"),
        ("Before <<<", "Before…"),
        ("cat <<EOF", "cat <<EOF…"),
        ("cat <<<word", "cat <<<word…"),
    ],
)
def test_the_latest_prose_is_shown_without_envelopes(text: str, shown: str) -> None:
    assert latest(text) == shown


@given(st.text())
def test_there_is_never_much_of_it(text: str) -> None:
    shown = latest(text)
    assert shown.count("\n") < MOST_LINES
    assert len(shown) <= MOST_CHARS + MOST_LINES + 2


@pytest.mark.parametrize("secret", ["sk-proj-abcdefghijklmnopqrstuvwxyz012345", "a password of ours!"])
def test_no_secret_shows_however_little_of_it_is_written(secret: str) -> None:
    redactor = Redactor(["a password of ours!"])
    for end in range(12, len(secret) + 1):
        shown = clean(Writing(f"The key is {secret[:end]}"), redactor.redact)
        assert isinstance(shown, Writing)
        assert shown.text.startswith("The key is ")
        assert secret[:9] not in shown.text
