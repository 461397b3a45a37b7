"""A store, and rows to put into it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from codebutler_worker.store.opening import open_store
from codebutler_worker.store.rows import (
    MessageRow,
    OutboxRow,
    TurnRow,
    message_id,
)
from codebutler_worker.store.unit_of_work import Store
from tests.clock import ManualClock


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / ".codebutler" / "store.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[Store]:
    async with open_store(path, ManualClock()) as opened:
        yield opened


def a_message(ts: str, turn_id: str | None = None) -> MessageRow:
    return MessageRow(
        id=message_id("C1", ts),
        from_id="U1",
        channel_id="C1",
        content=f"text of {ts}",
        timestamp="2026-01-01T00:00:00+00:00",
        platform_msg_id=ts,
        thread=ts,
        turn_id=turn_id,
    )


def a_turn(turn_id: str, conversation: str = "C1:1.0") -> TurnRow:
    return TurnRow(
        id=turn_id,
        conversation=conversation,
        channel_id="C1",
        thread="1.0",
        agent="claude",
        created_at="2026-01-01T00:00:00+00:00",
    )


def an_operation(op_id: str) -> OutboxRow:
    return OutboxRow(op_id=op_id, conversation="C1:1.0", kind="post", payload="{}", created_at="2026")
