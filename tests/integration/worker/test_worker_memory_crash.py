"""A change of the memory that was under way when the worker died."""

from __future__ import annotations

from pathlib import Path

import pytest

from codebutler_worker.store.opening import open_store
from codebutler_worker.store.rows import ChangeState, DeferredRow, MemoryChangeRow
from codebutler_worker.store.unit_of_work import UnitOfWork
from tests.clock import ManualClock
from tests.worker_kit import CHANNEL, USER, settings, worker


@pytest.mark.parametrize(
    ("state", "written"),
    [("wanted", ""), ("wanted", "- a\n"), ("wanted", "- a\n- b\n"), ("made", "- a\n- b\n")],
)
async def test_a_change_that_a_crash_cut_short_is_made_once_and_told(
    tmp_path: Path, state: ChangeState, written: str
) -> None:
    async with open_store(tmp_path / ".codebutler" / "store.db", ManualClock()) as store:

        def left_behind(uow: UnitOfWork) -> None:
            change = MemoryChangeRow(
                id="1",
                conversation=f"{CHANNEL}:100.1",
                channel_id=CHANNEL,
                thread="100.1",
                changes='[["", "a"], ["", "b"]]',
                created_at="2026-01-01T00:00:00.000000+00:00",
                state=state,
                user_id=USER,
            )
            uow.memories.add(change)
            uow.deferred.add(
                DeferredRow(
                    id="e1",
                    name="memory",
                    conversation=change.conversation,
                    user_id=USER,
                    created_at=change.created_at,
                    argument="asked 1",
                    thread="100.1",
                )
            )

        await store.run(left_behind)
    (tmp_path / ".codebutler" / "memory.md").write_text(written)
    async with worker(settings(tmp_path)) as parent:
        await parent.post_with("🧠 Done. `!memory undo` undoes it.\n• a\n• b")
        assert (tmp_path / ".codebutler" / "memory.md").read_text() == "- a\n- b\n"
        assert len(parent.posts) == 1
