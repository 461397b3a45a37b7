"""What an agent says passes without secrets; what it asks leave for stays exactly what it is."""

from __future__ import annotations

from codebutler_worker.agents.answer import clean
from codebutler_worker.agents.backend import Approval, Question, Text, ToolUse


def redact(text: str) -> str:
    return text.replace("s3cret", "[redacted]")


def test_every_part_of_a_question_is_cleaned() -> None:
    asked = Question("q", "use s3cret?", ("s3cret", "b"), ("", "not s3cret"), several=True, of=2)
    cleaned = Question(
        "q", "use [redacted]?", ("[redacted]", "b"), ("", "not [redacted]"), several=True, of=2
    )
    assert clean(asked, redact) == cleaned


def test_texts_and_summaries_are_cleaned() -> None:
    assert clean(Text("s3cret"), redact) == Text("[redacted]")
    assert clean(ToolUse("t", "Bash", "echo s3cret"), redact) == ToolUse("t", "Bash", "echo [redacted]")


def test_the_input_that_is_decided_about_stays() -> None:
    cleaned = clean(Approval("a", "Bash", "echo s3cret", {"command": "echo s3cret"}), redact)
    assert cleaned == Approval("a", "Bash", "echo [redacted]", {"command": "echo s3cret"})
