"""Markdown in a terminal."""

from __future__ import annotations

import re

import pytest

from codebutler.cli.chatroom.markdown import LONGEST, code, render_line
from codebutler.cli.chatroom.state import ChatState, ShownLine, mark_blocks
from codebutler.cli.output import printable
from codebutler.protocol.control import Choice, Heard, Said

BOLD, ITALIC, LINE, CODE, FAINT, END = "\x1b[1m", "\x1b[3m", "\x1b[4m", "\x1b[36m", "\x1b[2m", "\x1b[0m"


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("plain text, a_snake_case and 2 * 3 * 4", "plain text, a_snake_case and 2 * 3 * 4"),
        ("# Title", f"\x1b[1;4mTitle{END}"),
        ("### Part ###", f"{BOLD}Part{END}"),
        ("#hashtag", "#hashtag"),
        ("**bold**, __too__, *as Slack*", f"{BOLD}bold{END}, {BOLD}too{END}, {BOLD}as Slack{END}"),
        ("_leaning_ ~~gone~~", f"{ITALIC}leaning{END} \x1b[9mgone{END}"),
        ("**a _b_ c**", f"{BOLD}a {ITALIC}b{END}{BOLD} c{END}"),
        ("run `ls **`", f"run {CODE}ls **{END}"),
        ("``a ` b``", f"{CODE}a ` b{END}"),
        ("- one", "• one"),
        ("  * [x] two", "  ☑ two"),
        ("- [ ] three", "☐ three"),
        ("1. first", "1. first"),
        ("> quoted `x`", f"{FAINT}│{END} quoted {CODE}x{END}"),
        ("---", f"{FAINT}{'─' * 40}{END}"),
        ("[docs](https://a.example/b_c_d)", f"docs ({LINE}https://a.example/b_c_d{END})"),
        ("<https://a.example|docs>", f"docs ({LINE}https://a.example{END})"),
        ("<https://a.example>", f"{LINE}https://a.example{END}"),
        (
            "[https://good.example](https://bad.example)",
            f"https://good.example ({LINE}https://bad.example{END})",
        ),
        ("**never closed", "**never closed"),
        ("", ""),
    ],
)
def test_a_line_is_shown_as_it_is_meant(line: str, shown: str) -> None:
    assert render_line(line) == shown


@pytest.mark.parametrize("sign", ["`", "*", "_", "[", "**", "<https://", "- ", "# ", "[a](", "~~x "])
def test_nothing_in_a_line_takes_long_or_is_lost(sign: str) -> None:
    line = sign * (LONGEST // len(sign))
    told = re.sub(r"\x1b\[[\d;]*m", "", render_line(line))
    assert len(told) <= len(line)
    assert render_line("x" * LONGEST + "**y**") == "x" * LONGEST + "**y**"


@pytest.mark.parametrize(
    "hostile", ["\x1b[2Jx", "**\x1b]0;title\x07**", "`\x1b[31m`", "\x9b31m", "[a\x1b](\x1b[1m)", "\u202etxt"]
)
def test_no_escape_of_the_text_survives(hostile: str) -> None:
    for shown in (render_line(printable(hostile)), code(printable(hostile))):
        assert re.sub(r"\x1b\[[\d;]+m", "", shown).isprintable()


def test_code_blocks_are_told_apart_while_they_are_written() -> None:
    lines = ["Look:", "```py", "# a comment, no heading", "``` not the end", "```", "**Done.**"]
    styles = ["markdown", "fence", "code", "code", "fence", "markdown"]
    assert [line.style for line in mark_blocks(lines)] == styles
    room = ChatState()
    told = [
        line
        for size in range(2, len(lines) + 1)
        for line in room.on_reply(Heard(kind="writing", text="\n".join(lines[:size])))
    ]
    told += room.on_reply(Heard(kind="text", text="\n".join(lines)))
    assert [line.text for line in told] == lines
    assert [line.style for line in told] == styles


def test_a_programs_output_is_no_markdown() -> None:
    room = ChatState()
    room.on_reply(Said(text="⏳ Running…", ref="1.2"))
    assert room.on_reply(Said(text="```\n* *a* `b`\n```\n✅ exit code 0", ref="1.2")) == [
        ShownLine("* *a* `b`", "code"),
        ShownLine("✅ exit code 0", "markdown"),
    ]


def test_a_card_that_approves_nothing_is_markdown() -> None:
    card = Said(
        text="📝 **1 file changed**",
        kind="card",
        ref="1.2",
        choices=(Choice(label="Undo", action_id="codebutler.undo", value="t1"),),
    )
    assert ChatState().on_reply(card)[0] == ShownLine("📝 **1 file changed**", "markdown")


def test_what_is_to_be_decided_is_shown_as_it_is() -> None:
    card = Said(
        text="Permission needed: `Bash`\n```\necho `rm -rf x`\n```\n**`rm`**",
        kind="card",
        ref="1.2",
        choices=(Choice(label="Allow", action_id="codebutler.allow", value="a1"),),
    )
    lines = ChatState().on_reply(card)
    assert {line.style for line in lines} == {"plain"}
    assert "**`rm`**" in [line.text for line in lines]
