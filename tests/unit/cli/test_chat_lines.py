"""Lines to messages, and what a chat keeps for the next one."""

from __future__ import annotations

from pathlib import Path

import pytest

from codebutler.cli.chatroom.conversation import (
    HISTORY_FILE,
    MAX_CHARS,
    MAX_TYPED,
    ChatHistory,
    read_history,
    write_history,
)
from codebutler.cli.chatroom.keyboard import MessageLines
from codebutler.config.paths import Home
from codebutler.domain.refs import MessageRef


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["one"], "one"),
        (["one \\", "two"], "one \ntwo"),
        (["one\\\\"], "one\\\\"),
        (["```", "code \\", "", "```"], "```\ncode \n\n```"),
        (["see ```x``` here"], "see ```x``` here"),
        (["a paste\nof two"], "a paste\nof two"),
        (["a paste\n```py", "x", "  ```"], "a paste\n```py\nx\n  ```"),
    ],
)
def test_a_message_is_whole_when_nothing_says_that_it_goes_on(lines: list[str], message: str) -> None:
    typed = MessageLines()
    for line in lines[:-1]:
        assert typed.add(line) is None
        assert typed.is_open
    assert typed.add(lines[-1]) == message
    assert not typed.is_open


def test_what_was_begun_can_be_taken_as_it_is() -> None:
    typed = MessageLines()
    typed.add("```")
    assert typed.finish() == "```"
    assert typed.finish() == ""


def test_the_newest_messages_are_kept_once_each() -> None:
    kept = ChatHistory().with_typed("a").with_typed("b").with_typed("a")
    assert kept.typed == ("b", "a")
    for number in range(MAX_TYPED + 5):
        kept = kept.with_typed(str(number))
    assert len(kept.typed) == MAX_TYPED
    assert kept.typed[-1] == str(MAX_TYPED + 4)
    long = kept.with_typed("x" * (MAX_CHARS + 1))
    assert long.typed == ("x" * (MAX_CHARS + 1),)


def test_the_diary_is_for_its_owner_and_no_reason_to_fail(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    assert read_history(home) == ChatHistory()
    write_history(home, ChatHistory().with_typed("héllo\nthere").with_thread("sample", "1.1"))
    assert read_history(home) == ChatHistory(typed=("héllo\nthere",), threads={"sample": MessageRef("1.1")})
    file = home.root / HISTORY_FILE
    assert file.stat().st_mode & 0o777 == 0o600
    for broken in (b"{", b'{"typed": 7}', b"x" * 2**20):
        file.write_bytes(broken)
        assert read_history(home) == ChatHistory()
