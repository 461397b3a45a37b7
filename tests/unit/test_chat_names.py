"""The core knows no chat: only a platform's own folder names it, its formats, its ids or its emoji."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHATS = {
    "slack": re.compile(
        r"slack|mrkdwn|block[ _]?kit|hourglass_flowing_sand|white_check_mark|raised_hand|octagonal_sign|[\"']eyes[\"']",
        re.I,
    ),
    "telegram": re.compile(r"telegram|bot[ _]api", re.I),
}
ID = re.compile(r"(.*_)?ts")
"""What Slack calls its ids, as the name of anything of ours."""
HOME = {
    "slack": ("codebutler/chat/slack/", "codebutler/workspace/"),
    "telegram": ("codebutler/chat/telegram/",),
}
EXEMPT = {
    "codebutler/config/chats.py": "the configuration's own sections",
    "codebutler/config/schema.py": "a field of the configuration for each section",
    "codebutler/config/resolve.py": "the environment's names for their keys",
    "codebutler/chat/platform.py": "the list of platforms",
    "codebutler/cli/serve.py": "`codebutler workspace` says whose API it speaks",
    "codebutler/text/envelopes.py": "the marks of envelopes, a public promise to agents in every chat",
    "codebutler/text/redact.py": "what secrets look like, of every service",
    "workers/codebutler_worker/agents/running.py": "tells agents those marks",
}


def named(path: str, text: str) -> list[str]:
    """What a file names that is not its own."""
    found = [
        f"{path}:{number}: {line.strip()}"
        for chat, words in CHATS.items()
        if not path.startswith(HOME[chat])
        for number, line in enumerate(text.splitlines(), start=1)
        if words.search(line)
    ]
    if path.startswith(HOME["slack"]):
        return found
    return found + [f"{path}:{number}: {name}" for number, name in identifiers(text) if ID.fullmatch(name)]


def identifiers(text: str) -> list[tuple[int, str]]:
    """Everything that has a name in it, with its line."""
    return [
        (getattr(node, "lineno", 0), name)
        for node in ast.walk(ast.parse(text))
        for kind in ("id", "attr", "arg", "name")
        if isinstance(name := getattr(node, kind, None), str)
    ]


def sources() -> dict[str, str]:
    rooms = [path for room in ("codebutler", "workers") for path in (ROOT / room).rglob("*.py")]
    return {str(path.relative_to(ROOT)): path.read_text() for path in sorted(rooms)}


def test_only_a_platforms_own_folder_names_it() -> None:
    found = [
        line
        for path, text in sources().items()
        if not path.startswith(tuple(EXEMPT))
        for line in named(path, text)
    ]
    assert found == []


@pytest.mark.parametrize("exempt", EXEMPT)
def test_what_is_exempt_still_has_to_be(exempt: str) -> None:
    assert any(named(path, text) for path, text in sources().items() if path.startswith(exempt))


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("workers/codebutler_worker/present/cards.py", '"""Slack: boxes in one group."""'),
        ("workers/codebutler_worker/present/cards.py", 'kind = "mrkdwn"'),
        ("workers/codebutler_worker/present/cards.py", "mark = 'white_check_mark'"),
        ("codebutler/chat/delivery/sender.py", "def sent(self, thread_ts: str) -> None: ..."),
        ("codebutler/chat/delivery/sender.py", "post(event.ts)"),
        ("codebutler/chat/delivery/sender.py", "post(ts=1)"),
        ("codebutler/chat/slack/api.py", "# as in Telegram"),
        ("codebutler/chat/telegram/chat.py", "ts = known.thread"),
    ],
)
def test_what_was_there_once_would_be_found(path: str, line: str) -> None:
    assert named(path, line)
