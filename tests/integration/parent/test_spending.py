"""What the parent knows of all repositories' use: from their stores, whatever was told, and whoever restarts."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from codebutler.config.registry import RepoEntry
from codebutler.config.schema import Config, RepoSettings
from codebutler.config.section import BudgetSection
from codebutler.domain.errors import CodeButlerError
from codebutler.intake.repos import RepoTable, Served
from codebutler.parent.spending import REST_S, Spending
from codebutler.platform.tasks import beside
from codebutler.protocol.messages import DayUse, TotalUse
from codebutler_worker.store.opening import open_store
from codebutler_worker.store.rows import TurnRow
from codebutler_worker.store.unit_of_work import UnitOfWork, iso
from tests.clock import ManualClock

NAMES = ("shop", "blog", "docs")
UTC_ZONE = Config(budget=BudgetSection(timezone="UTC"))


class Desk:
    """Three repositories, and what the parent knows of them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = ManualClock()
        self.warned: list[tuple[str, ...]] = []
        self.names: tuple[str, ...] = NAMES
        self.told = asyncio.Event()
        self.spending = self.renewed()
        for name in NAMES:
            (path / name).mkdir()

    def renewed(self) -> Spending:
        """That of a supervisor that has just started."""
        made = Spending(lambda: self.table, self.clock, lambda *told: self.warned.append(told))
        made.changed.add(self.told.set)
        return made

    @property
    def table(self) -> RepoTable:
        entries = [RepoEntry(name=name, path=str(self.path / name)) for name in self.names]
        return RepoTable(tuple(Served(entry, UTC_ZONE, (), trusted=True) for entry in entries), (), UTC_ZONE)

    def total(self, name: str = "shop") -> TotalUse:
        settings = RepoSettings(name=name, path="", channel_id="C1", config=UTC_ZONE)
        return self.spending.total(settings)

    async def ran(
        self, name: str, run: str, usd: float, days_ago: float = 0, agent: str = "claude", state: str = "done"
    ) -> None:
        began = iso(self.clock.now() - timedelta(days=days_ago))
        turn = TurnRow(
            id=run,
            conversation="C1:1.0",
            channel_id="C1",
            thread="1.0",
            agent=agent,
            created_at=began,
            started_at=began,
            state="done",
            cost_usd=usd,
        )

        def work(uow: UnitOfWork) -> None:
            uow.turns.add(replace(turn, state=state))  # type: ignore[arg-type]  # one of its words

        async with open_store(self.path / name / ".codebutler" / "store.db", ManualClock()) as store:
            await store.run(work)

    async def heard(self) -> None:
        """Until what was told has been read."""
        async with asyncio.timeout(10):
            await self.told.wait()
        self.told.clear()


@pytest.fixture
async def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path)
    await desk.clock.advance(16 * 86_400 + 3600)
    return desk


def used(runs: int, usd: float) -> DayUse:
    return DayUse(runs=runs, usd=usd)


async def test_the_sum_is_that_of_all_others_on_the_day_and_in_the_month(desk: Desk) -> None:
    await desk.ran("shop", "own", 100)
    await desk.ran("blog", "a", 1)
    await desk.ran("blog", "b", 2, days_ago=3)
    await desk.ran("docs", "c", 4, state="running")
    await desk.ran("docs", "before this month", 8, days_ago=30)
    await desk.ran("docs", "no model", 16, agent="run")
    await desk.spending.load()
    assert desk.total() == TotalUse(
        day=used(2, 5.0),
        until="2026-01-18T00:00:00.000000+00:00",
        month=used(3, 7.0),
        month_until="2026-02-01T00:00:00.000000+00:00",
    )
    assert desk.total("docs").day == used(2, 101.0)
    assert desk.spending.week("blog") == used(2, 3.0)
    assert not [*desk.path.glob("*/.codebutler/store.db-wal")]


async def test_two_that_end_at_once_are_both_counted_and_a_restart_forgets_neither(desk: Desk) -> None:
    await desk.spending.load()
    async with beside(desk.spending.run(), name="spending"):
        await asyncio.gather(desk.ran("blog", "a", 1), desk.ran("docs", "b", 2))
        for name in ("blog", "docs", "blog", "no longer registered"):
            desk.spending.reported(name)
        await desk.heard()
        assert desk.total().day == used(2, 3.0)
    desk.spending = desk.renewed()
    await desk.spending.load()
    assert desk.total().day == used(2, 3.0)


class Book(dict[str, str]):
    """The notes that the next gateway finds."""

    async def note(self, name: str) -> str:
        return self.get(name, "")

    async def keep_note(self, name: str, value: str) -> None:
        self[name] = value


async def test_what_hosts_say_is_counted_and_known_to_the_next_gateway(desk: Desk) -> None:
    book, today = Book(), desk.clock.now().date()
    entries = [RepoEntry(name=name, path=f"laptop:{name}") for name in ("there", "elsewhere")]
    remote = tuple(Served(entry, UTC_ZONE, (), trusted=True) for entry in entries)

    def renewed() -> Spending:
        table = replace(desk.table, served=(*desk.table.served, *remote))
        made = Spending(lambda: table, desk.clock, lambda *told: None, book)
        made.changed.add(desk.told.set)
        return made

    await desk.ran("blog", "a", 1)
    desk.spending = renewed()
    await desk.spending.load()
    days = {today.isoformat(): used(1, 4.0), (today - timedelta(days=2)).isoformat(): used(1, 8.0)}
    await desk.spending.take("there", days)
    await desk.spending.take("there", days)
    assert desk.told.is_set()
    assert (desk.total().day, desk.total().month) == (used(2, 5.0), used(3, 13.0))
    assert desk.total("there").day == used(1, 1.0)
    with pytest.raises(CodeButlerError, match="cannot read the usage"):
        await desk.spending.take("elsewhere", {"yesterday": used(9, 9.0)})
    desk.spending = renewed()
    await desk.spending.load()
    assert (desk.total().day, desk.total().month) == (used(2, 5.0), used(3, 13.0))
    assert desk.spending.week("there") == used(2, 12.0)


async def test_a_new_day_begins_empty_and_the_month_goes_on(desk: Desk) -> None:
    await desk.ran("blog", "a", 1)
    await desk.spending.load()
    async with beside(desk.spending.run(), name="spending"):
        await desk.clock.advance(23 * 3600)
        await desk.heard()
        assert (desk.total().day, desk.total().month) == (used(0, 0), used(1, 1.0))
        assert desk.total().until == "2026-01-19T00:00:00.000000+00:00"
        await desk.ran("blog", "b", 2)
        # It began yesterday and ends today.
        await desk.ran("docs", "c", 4, days_ago=1)
        await desk.clock.advance(REST_S)
        desk.spending.reported("blog")
        desk.spending.reported("docs")
        await desk.heard()
        assert (desk.total().day, desk.total().month) == (used(1, 2.0), used(3, 7.0))


async def test_a_run_counts_at_once_and_those_right_after_it_together(desk: Desk) -> None:
    await desk.spending.load()
    async with beside(desk.spending.run(), name="spending"):
        await desk.ran("blog", "a", 1)
        desk.spending.reported("blog")
        await desk.heard()
        assert desk.total().day == used(1, 1.0)
        await desk.ran("blog", "b", 2)
        desk.spending.reported("blog")
        await desk.ran("blog", "c", 4)
        desk.spending.reported("blog")
        assert desk.total().day == used(1, 1.0)
        await desk.clock.advance(REST_S)
        await desk.heard()
        assert desk.total().day == used(3, 7.0)


async def test_a_store_that_cannot_be_read_is_told_once_and_read_again(desk: Desk) -> None:
    await desk.ran("blog", "a", 1)
    store = desk.path / "blog" / ".codebutler" / "store.db"
    kept = store.read_bytes()
    store.write_bytes(b"rubbish" * 1000)
    await desk.spending.load()
    assert desk.total().day == used(0, 0)
    assert [told[:2] for told in desk.warned] == [("blog", "WRN")]
    store.write_bytes(kept)
    async with beside(desk.spending.run(), name="spending"):
        desk.spending.reported("blog")
        await desk.heard()
    assert desk.total().day == used(1, 1.0)
    assert len(desk.warned) == 1


async def test_a_removed_repository_counts_no_longer(desk: Desk) -> None:
    await desk.ran("blog", "a", 1)
    await desk.spending.load()
    desk.names = ("shop", "docs")
    assert desk.total().day == used(0, 0)


async def test_no_claim_is_more_than_a_message_may_say(desk: Desk) -> None:
    await desk.ran("blog", "a", 1e300)
    await desk.ran("docs", "b", 1e300)
    await desk.spending.load()
    assert desk.total().day == used(2, 1e15)
