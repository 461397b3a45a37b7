"""A run's row in the ledger: written with its end, completed by what it left behind, and never lost."""

from __future__ import annotations

from datetime import UTC, date
from pathlib import Path

from codebutler.observe.ledger import Period, read, used
from codebutler.protocol.capabilities import LedgerRow
from codebutler_worker.agents.backend import Finished, Started, Usage
from tests.integration.worker.test_worker_changes import (
    CHECK,
    button,
    card,
    changed,
    edit,
    fails,
    git,
    press,
    told,
)
from tests.integration.worker.test_worker_undo import command, repo
from tests.worker_kit import USER, settings, worker

__all__ = ["repo"]
EVER = Period(date(2020, 1, 1), date(2030, 1, 1), UTC)
FIRST_DAY = Period(date(2026, 1, 1), date(2026, 1, 2), UTC)


def rows(path: Path) -> list[LedgerRow]:
    return read("shop", path, EVER)


async def test_the_row_is_there_with_the_end_of_the_run(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.says("work", "100.1")
        run = await parent.run(0)
        assert rows(tmp_path) == []
        ended = Finished(True, "Done.", "done", Usage(12, 34, 0.12, 3), 0.12)
        run.does(Started("session-1", model="sonnet"), ended)
        await parent.post_with("Done.")
        (row,) = rows(tmp_path)
        assert (row.user, row.agent, row.model, row.session) == (USER, "claude", "sonnet", "session-1")
        assert (row.outcome, row.input_tokens, row.output_tokens, row.cost_usd) == ("done", 12, 34, 0.12)
        assert row.link.endswith("/p1001")


async def test_files_commits_and_checks_follow(repo: Path) -> None:
    git(repo, "config", "user.name", "Ana")
    git(repo, "config", "user.email", "ana@example.com")
    async with worker(told(repo, CHECK)) as parent:
        await changed(parent, 0, repo / "app.py", "print('changed')\n", "100.1")
        shown = await card(parent)
        check = await parent.run(1)
        check.does(Started("s"), Finished(True, "ok", "done", exit_code=0))
        await edit(parent, "passed")
        await parent.until(parent.is_idle, flow=True)
        (row,) = rows(repo)
        assert (row.files, row.commits, row.checks) == (1, (), "passed")
        press(parent, button(shown, "Commit"), "101.2")
        await parent.post_with("✅ Committed")
        press(parent, button(shown, "Commit"), "101.3")
        await parent.post_with("That is already committed")
        (row,) = rows(repo)
        assert [commit[:7] for commit in row.commits] == [git(repo, "rev-parse", "--short=7", "HEAD")]


async def test_an_agents_own_commits_and_failed_checks_are_in_it(repo: Path) -> None:
    git(repo, "config", "user.name", "Ana")
    git(repo, "config", "user.email", "ana@example.com")
    async with worker(told(repo, CHECK)) as parent:
        parent.says("write it", "100.1")
        run = await parent.run(0)
        (repo / "new.py").write_text("1\n")
        git(repo, "add", "new.py")
        git(repo, "commit", "-qm", "Add new")
        run.finish("Wrote it.")
        await card(parent)
        fails(await parent.run(1))
        await edit(parent, "failed")
        (row, *_) = rows(repo)
        assert (row.files, row.checks) == (1, "failed")
        assert [commit[:7] for commit in row.commits] == [git(repo, "rev-parse", "--short=7", "HEAD")]


async def test_a_quiet_house_counts_files_as_well(repo: Path) -> None:
    async with worker(settings(repo, changes="off")) as parent:
        await changed(parent, 0, repo / "app.py", "print('changed')\n", "100.1")
        await parent.until(lambda: rows(repo)[0].files, flow=True)
        assert rows(repo)[0].files == 1


async def test_what_a_killed_run_had_used_stays_without_a_budget_too(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.says("work", "100.1")
        run = await parent.run(0)
        run.does(Started("session-1"), Usage(100, 20, 0.5, 2))
        await parent.clock.advance(6)
        await parent.until(
            lambda: any(use.usd == 0.5 for day in used(tmp_path, FIRST_DAY).values() for use in day.values()),
            flow=True,
        )
    async with worker(settings(tmp_path)) as parent:
        await parent.post_with("The machine stopped")
        (row,) = rows(tmp_path)
        assert (row.outcome, row.cost_usd, row.input_tokens) == ("interrupted", 0.5, 100)
        command(parent, "continue", "100.2", "100.1")
        (await parent.run(0)).finish()
        await parent.until(lambda: len(rows(tmp_path)) == 2, flow=True)
        assert [(row.outcome, row.cost_usd) for row in rows(tmp_path)] == [
            ("interrupted", 0.5),
            ("done", 0.12),
        ]
