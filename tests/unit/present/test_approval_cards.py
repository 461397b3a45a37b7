"""The cards on which agents ask: exact, whole, and harmless."""

from __future__ import annotations

from typing import Any

from codebutler_worker.present.approvals import (
    DETAIL_CHARS,
    Item,
    approval_card,
    approval_text,
    is_cut,
    plan_texts,
)
from codebutler_worker.present.progress import SECTION_CHARS, Message


def buttons(card: Message) -> list[tuple[str, str]]:
    """(label, value) of every button, row by row."""
    elements: list[Any] = [one for block in card.blocks for one in block.get("elements", [])]
    return [(element["text"]["text"], element["value"]) for element in elements]


def sections(card: Message) -> list[str]:
    return [block["text"]["text"] for block in card.blocks if block["type"] == "section"]


def test_a_shell_command_is_shown_exactly_and_escaped() -> None:
    text = approval_text("Bash", {"command": "a < b\n  && c"}, "/repo")
    assert "```\na &lt; b\n  &amp;&amp; c\n```" in text
    assert "`/repo`" in text


def test_everything_of_the_input_is_shown() -> None:
    text = approval_text("Bash", {"command": "ls", "dangerouslyDisableSandbox": True}, "/repo")
    assert '"dangerouslyDisableSandbox": true' in text


def test_an_edit_reads_as_a_diff() -> None:
    given = {"file_path": "/repo/a.py", "old_string": "x = 1\ny = 2", "new_string": "x = 3"}
    assert "/repo/a.py\n- x = 1\n- y = 2\n+ x = 3" in approval_text("Edit", given, "/repo")


def test_a_command_cannot_leave_its_code_block() -> None:
    text = approval_text("Bash", {"command": "true ``` all is well ```` "}, "/repo")
    assert text.count("```") == 2


def test_what_misleads_the_eye_is_written_out() -> None:
    text = approval_text("Bash", {"command": "ls \u202etxt.exe\u200b\x1b[1m"}, "/repo")
    assert "\\u202etxt.exe\\u200b\\u001b[1m" in text
    # What is drawn as nothing, or as a space, can be the name of another program.
    text = approval_text(
        "Bash", {"command": "ls\u3164 a\u2800b\u00a0c\u034fd\U000e0100e Ünï 日本 👍\ufe0f"}, "/repo"
    )
    assert "ls\\u3164 a\\u2800b\\u00a0c\\u034fd\\ue0100e Ünï 日本 👍\ufe0f" in text


def test_a_cut_is_told_and_the_card_still_fits() -> None:
    text = approval_text("Bash", {"command": "<" * 9000}, "/repo")
    shown = text.count("&lt;")
    assert f"{9000 - shown} more characters are not shown" in text
    card = approval_card([Item("id", (text,), "exactly this command")])
    assert card.text.endswith("exactly this command.")
    assert DETAIL_CHARS / 10 < len(sections(card)[0]) <= SECTION_CHARS


def test_a_mention_in_a_command_reaches_nobody() -> None:
    assert "<!channel>" not in approval_text("Bash", {"command": "echo <!channel>"}, "/repo")


def test_a_closed_card_has_no_buttons() -> None:
    card = approval_card([Item("a", ("touch a",), verdict="✅ Allowed by Ana.")])
    assert buttons(card) == []
    assert card.text == "touch a\n✅ Allowed by Ana."


def test_several_requests_are_decided_one_by_one_or_together() -> None:
    items = [Item(name, (f"touch {name}",), "exactly this command") for name in ("a", "b", "c")]
    card = approval_card(items)
    assert [value for label, value in buttons(card) if label == "Deny"] == ["a", "b", "c"]
    assert buttons(card)[-1] == ("Allow all 3", "a,b,c")


def test_what_is_decided_leaves_the_button_for_all() -> None:
    items = [Item("a", ("touch a",), verdict="✅ Allowed by Ana."), Item("b", ("b",)), Item("c", ("c",))]
    card = approval_card(items)
    assert buttons(card)[-1] == ("Allow all 2", "b,c")
    assert "a" not in [value for _, value in buttons(card)]
    assert "Allowed by Ana" in sections(card)[0]


def test_who_is_still_needed_is_said_and_no_session_is_offered() -> None:
    card = approval_card([Item("a", ("git push",), needed=3, votes=("Ana", "&lt;Ben&gt;"))])
    assert "👥 3 people have to allow this; 2 did: Ana, &lt;Ben&gt;." in card.text
    assert [label for label, _ in buttons(card)] == ["Allow", "Deny", "Deny with a reason…"]


def test_a_long_plan_is_shown_in_parts_and_a_cut_is_told() -> None:
    plan = "\n\n".join(f"{n}. **Step** {n} <!channel> " + "words " * 60 for n in range(400))
    texts = plan_texts(plan)
    card = approval_card([Item("a", texts, is_plan=True)])
    assert [label for label, _ in buttons(card)] == ["Approve", "Keep planning", "Say what to change…"]
    assert "more characters are in the file below" in sections(card)[-1]
    assert is_cut(plan)
    assert not is_cut("short")
    assert "*Step* 1 " in sections(card)[0]
    assert "<!channel>" not in "".join(sections(card))
    assert all(len(text) <= SECTION_CHARS for text in sections(card))


def test_an_empty_plan_says_so() -> None:
    assert "did not say" in plan_texts("")[0]
