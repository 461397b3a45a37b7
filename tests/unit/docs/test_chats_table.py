"""The page on chats says of each platform what its chat says it can do."""

from __future__ import annotations

import re
from collections.abc import Mapping

from codebutler.chat.platform import PLATFORMS
from codebutler.chat.port import CAPABILITIES, Capabilities
from codebutler.chat.slack.api import SlackApi
from codebutler.chat.telegram.api import BotApi
from codebutler.chat.telegram.chat import TelegramChat
from tests.notes import Notes
from tests.telegram.server import TOKEN
from tests.unit.docs.pages import ROOT

PAGE = ROOT / "docs" / "explanation" / "chats.md"
ROWS = {
    "history": "history of a channel or thread",
    "look_up": "finding our own message again",
    "streams": "answers that grow while they are written",
    "ephemeral": "a reply for one person alone",
    "status_line": "a status line under a thread",
    "forms": "forms",
    "home": "a home page for each person",
}


def table() -> dict[str, dict[str, str]]:
    """What a row says of each column."""
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in re.findall(r"^\|.*\|$", PAGE.read_text(), re.MULTILINE)
    ]
    head, _, *rows = lines
    return {name: dict(zip(head[1:], cells, strict=True)) for name, *cells in rows}


def capabilities() -> Mapping[str, Capabilities]:
    """By platform."""
    return {
        "Slack": SlackApi("xoxb-1").capabilities,
        "Telegram": TelegramChat(BotApi(TOKEN), Notes()).capabilities,
    }


def test_every_capability_has_a_row_that_says_what_happens_without_it() -> None:
    rows = table()
    assert set(ROWS) == CAPABILITIES
    for row in ROWS.values():
        assert len(rows[row]["without it"]) > 20, row


def test_each_platform_has_what_its_column_says() -> None:
    rows, known = table(), capabilities()
    assert set(known) == set(PLATFORMS)
    for chat, has in known.items():
        for capability, row in ROWS.items():
            answer = re.match(r"yes|no", rows[row][chat])
            assert answer is not None, (row, chat)
            assert (answer[0] == "yes") is (getattr(has, capability) is not None), (row, chat)
