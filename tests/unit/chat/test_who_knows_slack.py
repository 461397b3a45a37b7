"""How Slack writes its messages is known where they are rendered, and nowhere else."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
MARKS = re.compile(
    r"mrkdwn|block kit|\bblock_id\b|[\"']type[\"']: ?[\"'](?:section|actions|divider|context|header)"
    r"|[\"']blocks[\"']|<@\{",
    re.IGNORECASE,
)
HOME = ("codebutler/chat/slack/", "tests/memory_chat.py", "codebutler/workspace/")
"""The scripted chat tells its history as Slack does."""


def test_nobody_else_writes_or_reads_slacks_messages() -> None:
    files = [path for room in ("codebutler", "workers") for path in (ROOT / room).rglob("*.py")]
    assert len(files) > 400
    found = {}
    for path in files:
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith(HOME) and (marks := MARKS.findall(path.read_text(encoding="utf-8"))):
            found[name] = marks
    assert found == {}
