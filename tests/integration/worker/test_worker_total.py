"""The budget of all repositories together, as one of their workers holds to it."""

from __future__ import annotations

from pathlib import Path

from codebutler.config.schema import RepoSettings
from codebutler.config.section import TotalLimit
from codebutler.protocol.messages import Budget, DayUse, TotalUse
from codebutler_worker.agents.backend import Started, Usage
from tests.integration.worker.test_worker_budget import TO_MIDNIGHT_S, ZONE, budgeted, held, told, uses
from tests.integration.worker.test_worker_parking import buttons
from tests.shown import text_of
from tests.worker_kit import worker

UNTIL, MONTH_UNTIL = "2026-01-01T01:00:00+00:00", "2026-01-01T01:00:00+00:00"
"""The manual clock begins in the last hour of the zone's year."""
NEXT_UNTIL, NEXT_MONTH_UNTIL = "2026-01-02T01:00:00+00:00", "2026-02-01T01:00:00+00:00"


def limited(path: Path, **limits: float) -> RepoSettings:
    assert ZONE == "Etc/GMT+1"
    return budgeted(path, total=TotalLimit(**limits))  # type: ignore[arg-type]  # counts are whole numbers


def others(usd: float, runs: int = 1, *, until: str = UNTIL, month_until: str = MONTH_UNTIL) -> TotalUse:
    use = DayUse(runs=runs, usd=usd)
    return TotalUse(day=use, until=until, month=use, month_until=month_until)


async def test_what_others_used_before_it_started_counts(tmp_path: Path) -> None:
    async with worker(limited(tmp_path, usd_per_day=5), total=others(5.0)) as parent:
        parent.says("write the letter", "100.1")
        card = await held(parent, "100.1")
        assert "The total budget for today is used up: $5.00 of $5.00." in text_of(card)
        assert "budget.total.usdPerDay" in text_of(card)
        assert list(buttons(card)) == ["Try now", "Drop"]
        assert parent.backend.runs == []


async def test_own_and_others_use_count_together(tmp_path: Path) -> None:
    async with worker(limited(tmp_path, turns_per_day=3), total=others(0, 1)) as parent:
        await uses(parent, "100.1", Usage())
        parent.channel.send(others(0, 2))
        parent.says("more", "200.1")
        card = await held(parent, "200.1")
        assert "The total budget for today is used up: 3 of 3 runs." in text_of(card)


async def test_a_new_day_makes_room_before_the_parent_tells_of_it(tmp_path: Path) -> None:
    async with worker(limited(tmp_path, usd_per_day=5), total=others(5.0)) as parent:
        parent.says("write the letter", "100.1")
        await held(parent, "100.1")
        await parent.clock.advance(TO_MIDNIGHT_S + 10)
        (await parent.run(0)).finish()
        await parent.until(lambda: parent.reactions("100.1") == ["white_check_mark"], flow=True)


async def test_a_month_is_held_to_until_the_next_one(tmp_path: Path) -> None:
    here = limited(tmp_path, usd_per_month=5)
    async with worker(here, total=others(4.5)) as parent:
        await parent.clock.advance(TO_MIDNIGHT_S + 10)
        parent.channel.send(others(4.5, until=NEXT_UNTIL, month_until=NEXT_MONTH_UNTIL))
        await uses(parent, "100.1", Usage(cost_usd=0.6))
        # It counts what it used itself on earlier days of the month.
        await parent.clock.advance(3 * 86_400)
        parent.says("more", "200.1")
        card = await held(parent, "200.1")
        assert "The total budget for this month is used up: $5.10 of $5.00." in text_of(card)
        assert "Resumes automatically at 01:00 UTC on 01 February" in text_of(card)


async def test_a_running_turn_is_ended_when_others_use_up_the_rest(tmp_path: Path) -> None:
    async with worker(limited(tmp_path, usd_per_day=5), total=others(1.0)) as parent:
        parent.says("build it", "100.1")
        run = await parent.run(0)
        run.does(Started("session-1"), Usage(1, 1, 0.5, 1))
        parent.channel.send(others(4.6))
        await parent.clock.advance(6)
        card = (await parent.until(lambda: told(parent), flow=True))[0]
        assert "The total budget for today is used up: $5.10 of $5.00." in text_of(card)


async def test_what_is_used_here_is_told_at_once(tmp_path: Path) -> None:
    async with worker(limited(tmp_path, usd_per_day=5), total=others(0)) as parent:
        parent.says("work", "100.1")
        run = await parent.run(0)
        # Time stands still.
        await parent.until(lambda: any(use.used.runs == 1 for use in parent.said(Budget)))
        run.finish(usage=Usage(cost_usd=0.25))
        await parent.until(lambda: any(use.used.usd == 0.25 for use in parent.said(Budget)))


async def test_without_a_total_nothing_is_held(tmp_path: Path) -> None:
    async with worker(limited(tmp_path), total=others(1e9)) as parent:
        await uses(parent, "100.1", Usage())
        assert told(parent) == []
