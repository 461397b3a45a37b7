"""``!costs``: what it says in a channel and in a direct message."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

from codebutler.observe.ledger import Period
from codebutler.parent.apphome_page import RepoCard, home
from codebutler.parent.commands.answers import costs_directly, summary
from codebutler.parent.commands.asked import AskedDirectly
from codebutler.parent.spending import Ledgers
from codebutler.protocol.capabilities import LedgerRow
from codebutler.protocol.messages import DayUse
from tests.integration.parent.test_spending import Desk

NOW = datetime(2026, 2, 14, 12, tzinfo=UTC)
WEEK = Period(date(2026, 2, 8), date(2026, 2, 15), UTC)


def row(run: str, user: str = "U0ANA", usd: float | None = 1.0, day: int = 14, **more: object) -> LedgerRow:
    said = {
        "repo": "shop", "run": run, "at": f"2026-02-{day:02}T09:00:00+00:00", "ended": "", "user": user, "job": "",
        "agent": "claude", "model": "", "session": "", "outcome": "done", "input_tokens": 1000, "output_tokens": 0,
        "cost_usd": usd, "duration_s": 60.0, "files": 0, "commits": (), "checks": "", "channel": "C1", "thread": "",
        "link": "",
    }  # fmt: skip
    return LedgerRow(**(said | more))  # type: ignore[arg-type]  # its fields


def test_a_week_by_person_agent_and_day() -> None:
    rows = [
        row("t1"),
        row("t2", usd=0.5, day=13),
        row("t3", "U0BEN", usd=3.0, agent="kimi"),
        row("t4", "operator", usd=None, job="*nightly*", agent="kimi"),
        row("", "", usd=0.01, agent="(memory)"),
    ]
    assert summary(rows, WEEK).splitlines() == [
        "**Last 7 days:** 4 runs, 5.0k tokens, $4.51, 5 min",
        "**By person:** [@U0BEN](person:U0BEN) $3.00 (1 run) · [@U0ANA](person:U0ANA) $1.50 (2 runs) · "
        r"(memory) $0.01 (0 runs) · job \*nightly\* $0.00 (1 run)",
        r"**By agent:** kimi $3.00 (2 runs) · claude $1.50 (2 runs) · (memory) $0.01 (0 runs)",
        "**By day:** Fri 13 Feb $0.50 (1 run) · Sat 14 Feb $4.01 (3 runs)",
    ]


def test_nothing_is_said_so_and_very_many_are_cut() -> None:
    assert "No runs here in this period." in summary([], WEEK)
    many = summary([row(f"t{number}", f"U0{number:02}") for number in range(40)], WEEK)
    assert many.splitlines()[1].endswith("… and 30 more")


async def test_the_rows_are_those_of_runs_that_asked_a_model(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    await desk.ran("shop", "model", 1)
    await desk.ran("shop", "shell", 0, agent="run")
    await desk.ran("blog", "other", 2)
    await desk.ran("shop", "old", 4, days_ago=9)
    ledgers = Ledgers(lambda: desk.table, desk.clock, lambda *told: desk.warned.append(told))
    assert ledgers.names == ["shop", "blog", "docs"]
    assert [each.run for each in await ledgers.rows(ledgers.days(7), ["shop"])] == ["model"]
    assert [each.run for each in await ledgers.rows(ledgers.days(1), ledgers.names)] == ["model", "other"]
    assert await ledgers.rows(ledgers.days(7), ["nobody's"]) == []


CARDS = [
    RepoCard("shop", "C1", "running", week=DayUse(runs=2, tokens=300, usd=1.5)),
    RepoCard("blog", "C2", "sleeping", week=DayUse(runs=1, tokens=100, usd=2.0)),
    RepoCard("docs", "C3", "sleeping"),
]


def test_a_direct_message_is_about_all_that_one_may_use() -> None:
    assert costs_directly(AskedDirectly({}, CARDS, NOW)).splitlines() == [
        "Last 7 days: 3 runs, 400 tokens, $3.50",
        "**shop** 2 runs, 300 tokens, $1.50",
        "**blog** 1 run, 100 tokens, $2.00",
    ]


def test_app_home_has_the_week_of_each_repository_that_was_used() -> None:
    parts = [part.markdown for part in home(CARDS, "", NOW)]
    at = parts.index("Last 7 days")
    assert parts[at + 1].splitlines() == [
        r"Total: 3 runs, 400 tokens, $3.50",
        r"[#C2](channel:C2) 1 run, 100 tokens, $2.00",
        r"[#C1](channel:C1) 2 runs, 300 tokens, $1.50",
    ]
    assert "Last 7 days" not in [part.markdown for part in home(CARDS[2:], "", NOW)]
