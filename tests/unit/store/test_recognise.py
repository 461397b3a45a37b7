"""What a file is, told from its tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from codebutler.domain.errors import StoreError, StoreTooNewError
from codebutler.platform.sqlitefile import StoredContents
from codebutler_worker.store.opening import BASE, LEGACY, recognise

PATH = Path("store.db")
OLD = {
    "messages": frozenset({"id", "from_jid", "chat", "content", "timestamp"}),
    "sessions": frozenset({"chat_jid", "session_id", "updated_at"}),
}
NEW = {
    "messages": frozenset(
        {"id", "from_id", "channel_id", "content", "timestamp", "is_voice", "acked", "platform_msg_id"}
    ),
    "sessions": frozenset({"channel_id", "session_id", "updated_at"}),
}


@pytest.mark.parametrize(
    ("contents", "expected"),
    [
        (StoredContents({}, None), BASE),
        (StoredContents({}, ""), BASE),
        (StoredContents(OLD, None), LEGACY),
        (StoredContents({"messages": OLD["messages"]}, None), LEGACY),
        (StoredContents({"sessions": OLD["sessions"]}, None), LEGACY),
        (StoredContents({**OLD, "other": frozenset({"x"})}, None), LEGACY),
        (StoredContents(NEW, None), "0002"),
        (StoredContents(OLD, "0001"), "0001"),
        (StoredContents(NEW, "0003"), "0003"),
    ],
)
def test_a_known_file_is_recognised(contents: StoredContents, expected: str) -> None:
    assert recognise(PATH, contents) == expected


@pytest.mark.parametrize(
    "tables",
    [
        {"recipes": frozenset({"name"})},
        {"messages": frozenset({"id", "body"})},
        {"messages": NEW["messages"]},
    ],
)
def test_a_foreign_file_is_refused(tables: dict[str, frozenset[str]]) -> None:
    with pytest.raises(StoreError, match="not a CodeButler store: move it away"):
        recognise(PATH, StoredContents(tables, None))


def test_a_newer_revision_is_refused() -> None:
    with pytest.raises(StoreTooNewError, match=r"revision 0044\): update this one"):
        recognise(PATH, StoredContents(NEW, "0044"))
