"""What is remembered, in a real store."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from codebutler_worker.store.opening import open_store
from codebutler_worker.store.rows import FactRow, MemoryChangeRow, MemoryLineRow, MemoryReviewRow, TurnRow
from codebutler_worker.store.unit_of_work import UnitOfWork
from tests.clock import ManualClock

CHANGE = MemoryChangeRow(
    id="1",
    conversation="C1:1.1",
    channel_id="C1",
    thread="1.1",
    changes='[["", "a"]]',
    created_at="2026-01-01",
)
LINE = MemoryLineRow(line="a", channel_id="C1", thread="1.1", added_at="2026-01-01")
FACT = FactRow(scope="repo", key="k", value="v", channel_id="C1", thread="1.1", updated_at="2026-01-01")


def turn(number: int, conversation: str, state: str = "done") -> TurnRow:
    return TurnRow(
        id=f"t{number}",
        conversation=conversation,
        channel_id="C1",
        thread="1.1",
        agent="claude",
        created_at="2026-01-01T00:00",
        state=state,  # type: ignore[arg-type] # one of the states
        started_at=f"2026-01-02T00:0{number}",
        finished_at=f"2026-01-02T00:0{number}" if state == "done" else None,
    )


async def test_changes_move_on_and_the_newest_come_first(tmp_path: Path) -> None:
    async with open_store(tmp_path / "store.db", ManualClock()) as store:

        def work(uow: UnitOfWork) -> None:
            uow.memories.add(CHANGE)
            uow.memories.add(replace(CHANGE, id="2", user_id="U1", message_op_id="op"))
            uow.memories.update("2", state="dropped")

        await store.run(work)
        found = await store.run(lambda uow: uow.memories.find(newest=5))
        assert found == [replace(CHANGE, id="2", user_id="U1", message_op_id="op", state="dropped"), CHANGE]
        assert await store.run(lambda uow: uow.memories.get("1")) == CHANGE
        assert await store.run(lambda uow: uow.memories.get("3")) is None


async def test_a_line_knows_where_it_comes_from_until_it_is_gone(tmp_path: Path) -> None:
    async with open_store(tmp_path / "store.db", ManualClock()) as store:
        await store.run(lambda uow: uow.memory_lines.add(LINE, known="replace"))
        await store.run(lambda uow: uow.memory_lines.add(replace(LINE, thread="2.2"), known="replace"))
        assert await store.run(lambda uow: uow.memory_lines.find()) == [replace(LINE, thread="2.2")]
        await store.run(lambda uow: uow.memory_lines.delete(line=("a", "b")))
        assert await store.run(lambda uow: uow.memory_lines.find()) == []


async def test_facts_are_kept_by_scope_and_key(tmp_path: Path) -> None:
    async with open_store(tmp_path / "store.db", ManualClock()) as store:

        def work(uow: UnitOfWork) -> None:
            uow.facts.add(FACT, known="replace")
            uow.facts.add(replace(FACT, value="w"), known="replace")
            uow.facts.add(replace(FACT, scope="U1", value="mine"), known="replace")
            uow.facts.add(replace(FACT, key="b"), known="replace")
            uow.facts.delete(scope="repo", key="no such")

        await store.run(work)
        assert [row.key for row in await store.run(lambda uow: uow.facts.find(scope="repo"))] == ["b", "k"]
        assert await store.run(lambda uow: uow.facts.get("repo", key="k")) == replace(FACT, value="w")
        await store.run(lambda uow: uow.facts.delete(scope="repo", key="k"))
        assert await store.run(lambda uow: uow.facts.get("repo", key="k")) is None
        assert await store.run(lambda uow: uow.facts.get("U1", key="k")) == replace(
            FACT, scope="U1", value="mine"
        )


async def test_what_nobody_has_gone_over_is_found_until_somebody_has(tmp_path: Path) -> None:
    async with open_store(tmp_path / "store.db", ManualClock()) as store:

        def work(uow: UnitOfWork) -> None:
            for number, conversation in enumerate(["C1:a", "C1:b", "C1:a"]):
                uow.turns.add(turn(number, conversation))
            uow.turns.add(turn(5, "C1:c", "failed"))

        await store.run(work)
        look = "2026-01-01"
        assert await store.run(lambda uow: uow.memories.unreviewed(look)) == [
            ("C1:b", "2026-01-02T00:01"),
            ("C1:a", "2026-01-02T00:02"),
        ]
        assert await store.run(lambda uow: uow.memories.unreviewed("2026-01-03")) == []
        reviewed = MemoryReviewRow("C1:a", "2026-01-02T00:02")
        await store.run(lambda uow: uow.memory_reviews.add(reviewed, known="replace"))
        await store.run(
            lambda uow: uow.memory_reviews.add(MemoryReviewRow("C1:b", "2026-01-01"), known="replace")
        )
        assert await store.run(lambda uow: uow.memories.unreviewed(look)) == [("C1:b", "2026-01-02T00:01")]
        reviewed = MemoryReviewRow("C1:a", "2026-01-02T00:02")
        assert await store.run(lambda uow: uow.memory_reviews.get("C1:a")) == reviewed
        assert await store.run(lambda uow: uow.memory_reviews.get("C1:z")) is None
