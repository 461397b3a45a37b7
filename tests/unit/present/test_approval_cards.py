"""The cards on which agents ask: exact, whole, and harmless."""

from __future__ import annotations

from typing import Any

from codebutler.chat.layout import Section
from codebutler.chat.slack.render import CARD_CHARS, SECTION_CHARS, mrkdwn
from codebutler.domain.message import ApprovalCard, Message, PermissionRequest
from codebutler_worker.present.calls import ShownCall, call_shown, plan_shown
from tests.shown import blocks_of, text_of


def approval_card(requests: list[PermissionRequest]) -> Message:
    return Message(card=ApprovalCard(tuple(requests)))


def buttons(card: Message) -> list[tuple[str, str]]:
    """(label, value) of every button, row by row."""
    elements: list[Any] = [one for block in blocks_of(card) for one in block.get("elements", [])]
    return [(element["text"]["text"], element["value"]) for element in elements]


def approval_text(tool: str, given: dict[str, Any], workdir: str) -> str:
    """A call that fits one section."""
    (text,) = call_shown(tool, given, workdir).texts
    return mrkdwn(Section(text))


def inside(shown: ShownCall) -> str:
    """What stands in the code blocks of all parts together."""
    return "".join(text.split("```")[1].removeprefix("\n").removesuffix("\n") for text in shown.texts)


def sections(card: Message) -> list[str]:
    return [block["text"]["text"] for block in blocks_of(card) if block["type"] == "section"]


def test_a_shell_command_is_shown_exactly_and_escaped() -> None:
    text = approval_text("Bash", {"command": "a < b\n  && c"}, "/repo")
    assert "```\na &lt; b\n  &amp;&amp; c\n```" in text
    assert "`/repo`" in text


def test_everything_of_the_input_is_shown() -> None:
    text = approval_text("Bash", {"command": "ls", "dangerouslyDisableSandbox": True}, "/repo")
    assert "dangerouslyDisableSandbox: true" in text
    text = approval_text("mcp__shop__buy", {"dry_run": False, "note": "a\nb: 1", "items": [1, "x"]}, "/repo")
    assert '```\ndry_run: false\nnote: a\n  b: 1\nitems: [1, "x"]\n```' in text


def test_what_a_call_says_of_itself_is_said_in_words() -> None:
    given = {"command": "make", "description": "Build <it>", "timeout": 120000, "run_in_background": True}
    assert approval_text("Bash", given, "/repo") == (
        "🔐 Permission needed: `Bash` · Build &lt;it&gt;\n```\nmake\n```\n"
        "in `/repo` · time limit 2m00s · runs in the background"
    )
    given = {"command": "make", "description": "", "run_in_background": False}
    assert approval_text("Bash", given, "/repo") == "🔐 Permission needed: `Bash`\n```\nmake\n```\nin `/repo`"
    edit = {"file_path": "a", "old_string": "x", "new_string": "y", "replace_all": False}
    assert "replace" not in approval_text("Edit", edit, "/repo")
    assert approval_text("Edit", {**edit, "replace_all": True}, "/repo").endswith(
        "· replaces every occurrence"
    )


def test_what_only_looks_like_a_remark_is_shown_as_it_is() -> None:
    text = approval_text("Bash", {"command": "ls", "description": ["x"], "timeout": "no"}, "/repo")
    assert '```\nls\ndescription: ["x"]\ntimeout: no\n```' in text
    assert "replace_all: false" in approval_text("Write", {"file_path": "a", "replace_all": False}, "/repo")


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


def test_a_long_command_is_shown_whole_in_parts() -> None:
    command = "\n".join(f"step {number} | tee step-{number}.log && echo done" for number in range(150))
    shown = call_shown("Bash", {"command": command}, "/repo")
    assert (len(shown.texts), shown.hidden) == (3, 0)
    assert inside(shown).count("\n") == command.count("\n") - 2
    assert all(part in "".join(shown.texts) for part in ("… part 2 of 3:", "… part 3 of 3:"))
    assert [one for one in command.split("\n") if one not in inside(shown)] == []
    card = approval_card([PermissionRequest(id="id", texts=shown.texts, scope="exactly this command")])
    assert len(sections(card)) == 3
    assert all(block.get("expand") for block in blocks_of(card) if block["type"] == "section")
    assert sections(card)[-1].endswith("exactly this command.")


def test_one_endless_word_is_cut_and_shows_it() -> None:
    shown = call_shown("Bash", {"command": "x" * 5000}, "/repo")
    assert inside(shown) == "x" * 2400 + "…" + "x" * 2400 + "…" + "x" * 200


def test_what_is_left_out_is_told_and_the_card_still_fits() -> None:
    shown = call_shown("Bash", {"command": "<" * 9000, "description": "<" * 9000}, "/repo" * 99)
    assert shown.hidden == 9000 - inside(shown).count("<")
    assert f"⚠️ {shown.hidden:,} more characters are in the file below." in shown.texts[-1]
    card = approval_card([PermissionRequest(id="id", texts=shown.texts, scope="exactly this command")])
    assert all(len(text) <= SECTION_CHARS for text in sections(card))
    assert sum(map(len, sections(card))) <= 11_000
    assert len(text_of(card)) <= CARD_CHARS
    assert text_of(card).count("```") % 2 == 0


def test_a_secret_is_taken_out_before_the_parts_are_cut() -> None:
    for place in range(2360, 2400):
        shown = call_shown(
            "Bash",
            {"command": "x" * place + "s3cret" + "y" * 99},
            "/",
            lambda text: text.replace("s3cret", "*"),
        )
        assert "s3cret" not in inside(shown).replace("…", "")


def test_a_mention_in_a_command_reaches_nobody() -> None:
    assert "<!channel>" not in approval_text("Bash", {"command": "echo <!channel>"}, "/repo")


def test_a_closed_card_has_no_buttons() -> None:
    card = approval_card([PermissionRequest(id="a", texts=("touch a",), verdict="✅ Allowed by Ana.")])
    assert buttons(card) == []
    assert text_of(card) == "touch a\n✅ Allowed by Ana."


def test_several_requests_are_decided_one_by_one_or_together() -> None:
    items = [
        PermissionRequest(id=name, texts=(f"touch {name}",), scope="exactly this command")
        for name in ("a", "b", "c")
    ]
    card = approval_card(items)
    assert [value for label, value in buttons(card) if label == "Deny"] == ["a", "b", "c"]
    assert buttons(card)[-1] == ("Allow all 3", "a,b,c")


def test_what_is_decided_leaves_the_button_for_all() -> None:
    items = [
        PermissionRequest(id="a", texts=("touch a",), verdict="✅ Allowed by Ana."),
        PermissionRequest(id="b", texts=("b",)),
        PermissionRequest(id="c", texts=("c",)),
    ]
    card = approval_card(items)
    assert buttons(card)[-1] == ("Allow all 2", "b,c")
    assert "a" not in [value for _, value in buttons(card)]
    assert "Allowed by Ana" in sections(card)[0]


def test_who_is_still_needed_is_said_and_no_session_is_offered() -> None:
    card = approval_card([PermissionRequest(id="a", texts=("git push",), needed=3, votes=("Ana", "\\<Ben>"))])
    assert "👥 3 approvals needed; 2 given: Ana, &lt;Ben&gt;." in text_of(card)
    assert [label for label, _ in buttons(card)] == ["Allow", "Deny", "Deny with a reason…"]


def test_a_long_plan_is_shown_in_parts_and_a_cut_is_told() -> None:
    plan = "\n\n".join(f"{n}. **Step** {n} <!channel> " + "words " * 60 for n in range(400))
    shown = plan_shown(plan)
    card = approval_card([PermissionRequest(id="a", texts=shown.texts, is_plan=True)])
    assert [label for label, _ in buttons(card)] == ["Approve", "Keep planning", "Say what to change…"]
    assert "more characters are in the file below" in sections(card)[-1]
    assert shown.hidden
    assert not plan_shown("short").hidden
    assert "*Step* 1 " in sections(card)[0]
    assert "<!channel>" not in "".join(sections(card))
    assert all(len(text) <= SECTION_CHARS for text in sections(card))


def test_an_empty_plan_says_so() -> None:
    assert "did not say" in plan_shown("").texts[0]
