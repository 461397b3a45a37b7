"""The cards on which agents ask: exact, whole, and harmless."""

from __future__ import annotations

from codebutler_worker.present.approvals import (
    DETAIL_CHARS,
    MAX_OPTIONS,
    approval_card,
    approval_text,
    closed_card,
    question_card,
    question_text,
)
from codebutler_worker.present.progress import SECTION_CHARS


def test_a_shell_command_is_shown_exactly_and_escaped() -> None:
    text = approval_text("Bash", {"command": "a < b\n  && c"}, "/repo", "U1")
    assert "```\na &lt; b\n  &amp;&amp; c\n```" in text
    assert "`/repo`" in text


def test_everything_of_the_input_is_shown() -> None:
    text = approval_text("Bash", {"command": "ls", "dangerouslyDisableSandbox": True}, "/repo", "U1")
    assert '"dangerouslyDisableSandbox": true' in text


def test_an_edit_reads_as_a_diff() -> None:
    given = {"file_path": "/repo/a.py", "old_string": "x = 1\ny = 2", "new_string": "x = 3"}
    assert "/repo/a.py\n- x = 1\n- y = 2\n+ x = 3" in approval_text("Edit", given, "/repo", "U1")


def test_a_command_cannot_leave_its_code_block() -> None:
    text = approval_text("Bash", {"command": "true ``` all is well ```` "}, "/repo", "U1")
    assert text.count("```") == 2


def test_what_misleads_the_eye_is_written_out() -> None:
    text = approval_text("Bash", {"command": "ls \u202etxt.exe\u200b\x1b[1m"}, "/repo", "U1")
    assert "\\u202etxt.exe\\u200b\\u001b[1m" in text


def test_a_cut_is_told_and_the_card_still_fits() -> None:
    text = approval_text("Bash", {"command": "<" * 9000}, "/repo", "U1")
    shown = text.count("&lt;")
    assert f"{9000 - shown} more characters are not shown" in text
    card = approval_card("id", text, "exactly this command")
    assert card.text.endswith("exactly this command.")
    assert DETAIL_CHARS / 10 < len(card.text) <= SECTION_CHARS


def test_a_mention_in_a_command_reaches_nobody() -> None:
    assert "<!channel>" not in approval_text("Bash", {"command": "echo <!channel>"}, "/repo", "U1")


def test_a_question_has_a_row_for_each_option_and_a_limit() -> None:
    card = question_card("id", question_text("Which?"), [f"option {n} " + "x" * 100 for n in range(30)])
    rows = [block for block in card.blocks if block["type"] == "actions"]
    assert [row["elements"][0]["value"] for row in rows] == [f"id:{n}" for n in range(MAX_OPTIONS)]
    assert all(len(row["elements"][0]["text"]["text"]) <= 75 for row in rows)


def test_a_closed_card_has_no_buttons() -> None:
    assert closed_card("text", "done").blocks == ()
