"""What the dashboard shows of what the supervisor knows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from codebutler.config.chats import message_url
from codebutler.domain.model import Asked, TurnNote
from codebutler.observe.logs import LogLine
from codebutler.web.dashboard.dashboard import LogFilter, page_changes
from codebutler.web.dashboard.runs import TEXT_CHARS
from codebutler.web.dashboard.view import (
    MAX_ERRORS,
    MAX_RECENT,
    MAX_WORK,
    DashboardFacts,
    page_of,
)

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
WELL = {"state": "connected", "connections": 1, "reconnects": 2, "last_event_age_s": 33.0, "trouble": ""}


def repo(name: str = "shop", state: str = "running", problem: str = "", **more: Any) -> dict[str, Any]:
    worker = {"state": state, "pid": 7, "restarts": 1, "pss_bytes": 11 * 2**20 + 5, **more}
    turns = {"running": 1, "queued": 2, "waiting": 3, "parked": 1}
    place = {"path": f"/src/{name}", "channel_id": "C1"}
    used = {"runs": 9, "tokens": 950, "usd": 1.2, "minutes": 3.0}
    counts = {"turns": turns, "today": used, "budget": []}
    return {"name": name, **place, "worker": worker, **counts, "problem": problem}


def turn(state: str, text: str = "fix it", minutes: int = 5, **more: Any) -> TurnNote:
    at = (NOW - timedelta(minutes=minutes)).isoformat()
    return TurnNote(
        state=state, thread="17.000001", text=text, agent="claude", at=at, id=f"{state}{minutes}", **more
    )


def facts(*repos: dict[str, Any], **more: Any) -> DashboardFacts:
    status = {
        "supervisor": {"pid": 1, "version": "9", "uptime_s": 60.4},
        "slack": WELL,
        "repos": list(repos or [repo()]),
        "journal": {"pending": 4},
        "outbox": {"pending": 5},
    }
    built = DashboardFacts(
        status=status,
        turns={},
        repo_labels={"shop": ("claude", "#shop")},
        jobs=[],
        timers=[],
        errors=[],
        now=NOW,
        address=message_url,
    )
    return replace(built, **more)


def job(name: str, **more: Any) -> dict[str, Any]:
    states = {"next": None, "last": None, "last_ok": None, "running": False, "paused": ""}
    return {"name": name, "repo": "shop", "cron": "0 3 * * *", **states, **more}


def test_a_repository_is_shown_with_its_worker_its_channel_and_its_day() -> None:
    budget = [{"unit": "usd", "used": 1.2, "limit": 5.0}, {"unit": "turns", "used": 9, "limit": 3}]
    (shown,) = page_of(facts({**repo(), "budget": budget})).repos
    assert (shown.name, shown.agent, shown.channel) == ("shop", "claude", "#shop")
    assert shown.url == "https://slack.com/archives/C1"
    assert (shown.state, shown.pid, shown.restarts, shown.memory_mb) == ("running", 7, 1, 11)
    assert shown.load == "1 running, 3 waiting, 2 queued (1 parked)"
    assert shown.today == "9 of 3 runs, 950 tokens, $1.20 of $5.00"
    assert [(one.words, one.share) for one in shown.budget] == [
        ("$1.20 of $5.00", 0.24),
        ("9 of 3 runs", 1.0),
    ]


def test_what_waits_for_people_is_named_oldest_first_with_its_thread() -> None:
    push = Asked(id="a", card="1.2", text="🔐 **Bash** \\<x>\n```\ngit push\n```")
    which = Asked(id="q", card="1.2", text="🤔 Which?", is_question=True)
    turns = (
        turn("waiting", minutes=1, asked=(push, push)),
        turn("waiting", minutes=9, asked=(which,)),
        turn("interrupted", minutes=3),
        turn("parked", minutes=2, why="Your budget for today is used up: 3 of 3 turns."),
        turn("waiting", minutes=0),
        turn("done", minutes=30),
    )
    page = page_of(facts(turns={"shop": turns}))
    assert [need.what for need in page.needs] == [
        "asks: Which?",
        "was interrupted: continue or drop it",
        "paused: Your budget for today is used up: 3 of 3 turns.",
        "Bash <x> git push (and 1 more)",
        "waits for an answer",
    ]
    assert {need.url for need in page.needs} == {"https://slack.com/archives/C1/p17000001"}
    assert page.verdict.text == "5 things need you"
    assert page.verdict.waiting == 5


def test_work_is_what_runs_and_then_what_is_in_line_with_its_cost() -> None:
    turns = (
        turn("queued", minutes=20),
        turn("running", minutes=2, cost_usd=0.004),
        turn("running", "long " * 200, minutes=8, cost_usd=1.5),
    )
    page = page_of(facts(turns={"shop": turns, "gone": (turn("running"),)}))
    assert [(work.state, work.cost) for work in page.work] == [
        ("running", "$1.50"),
        ("running", "<$0.01"),
        ("queued", ""),
    ]
    assert len(page.work[0].text) == TEXT_CHARS
    assert page.verdict.state == "well"


def test_a_worker_that_makes_things_up_fills_no_page() -> None:
    huge = "x" * 1_000_000
    turns = tuple(
        TurnNote(state="running", thread=huge, text=huge, agent=huge, at=huge, id=huge) for _ in range(1000)
    )
    page = page_of(facts(turns={"shop": turns}))
    assert len(page.work) == MAX_WORK
    assert len(msgspec.json.encode(page)) < 50_000


def test_of_what_has_ended_the_latest_is_shown() -> None:
    ended = [turn(state, minutes=minutes) for minutes, state in enumerate(("done", "failed", "stopped") * 4)]
    page = page_of(facts(turns={"shop": (turn("running"), *ended)}))
    assert [each.state for each in page.recent] == [
        "done",
        "failed",
        "stopped",
        "done",
        "failed",
        "stopped",
        "done",
        "failed",
    ]
    assert len(page.recent) == MAX_RECENT


def test_trouble_comes_before_everything_else() -> None:
    broken = {**WELL, "state": "auth_failed", "trouble": "invalid_auth: run `codebutler setup`"}
    status = {**facts().status, "slack": broken}
    repos = [
        repo(),
        repo("a", "quarantined"),
        repo("b", "running", "its channel is archived"),
        repo("c", "sleeping"),
    ]
    page = page_of(facts(status={**status, "repos": repos}, turns={"shop": (turn("waiting"),)}))
    assert [(trouble.repo, trouble.text.partition(":")[0]) for trouble in page.troubles] == [
        ("", "Slack"),
        ("a", "its worker keeps failing and is tried again every ten minutes"),
        ("b", "its channel is archived"),
    ]
    assert page.verdict.text == "3 problems, 1 needs you"
    assert page.chats[0].state == "auth failed"
    assert not page.chats[0].is_well


def test_the_supervisor_is_shown_in_moments_that_stand_still() -> None:
    page = page_of(facts())
    later = facts(now=NOW + timedelta(seconds=1.3))
    status = {**later.status, "supervisor": {**later.status["supervisor"], "uptime_s": 61.7}}
    status["slack"] = {**WELL, "last_event_age_s": 34.3}
    assert page_of(replace(later, status=status)) == page
    assert page.system.since == "2026-01-01T11:59:00+00:00"
    assert (page.system.journal, page.system.outbox) == (4, 5)
    never = {**facts().status, "slack": {"state": "connecting", "trouble": ""}}
    assert page_of(facts(status=never)).chats[0].heard_at is None


def test_jobs_come_by_their_next_run_those_that_rest_last() -> None:
    soon, later = ((NOW + timedelta(hours=hours)).isoformat() for hours in (1, 2))
    jobs = [
        job("rests", next=soon, paused="by [@U1](person:U1)"),
        job("later", next=later, last=soon, last_ok=False),
        job("soon", next=soon, last_ok=True, running=True),
    ]
    shown = page_of(facts(jobs=jobs)).jobs
    assert [(one.name, one.state, one.last_ok) for one in shown] == [
        ("soon", "running", None),
        ("later", "", False),
        ("rests", "paused: by @U1", None),
    ]


def test_of_the_errors_the_last_are_shown() -> None:
    errors = [LogLine(at=number, tag="ERR", repo="", text=str(number)) for number in range(9)]
    assert [line.text for line in page_of(facts(errors=errors)).errors] == ["4", "5", "6", "7", "8"][
        -MAX_ERRORS:
    ]


def test_no_repository_and_nothing_to_do_is_well() -> None:
    page = page_of(facts(status={**facts().status, "repos": []}))
    assert (page.repos, page.verdict.text) == ((), "All is well")


def test_only_what_has_changed_is_told() -> None:
    before = page_of(facts(repo(), repo("two")))
    assert set(page_changes(None, before)) == {*before.__struct_fields__, "names"}
    assert page_changes(before, before) == {}
    moved = page_of(facts(repo(), repo("two", "sleeping")))
    told = page_changes(before, moved)
    assert set(told) == {"repos"}
    assert [each.name for each in told["repos"]] == ["two"]
    fewer = page_of(facts(repo("two"), repo("new")))
    told = page_changes(before, fewer)
    assert told["names"] == ["two", "new"]
    assert [each.name for each in told["repos"]] == ["new"]
    assert msgspec.json.encode(told)


def test_a_wish_is_for_lines_of_a_repository_from_a_level() -> None:
    def line(tag: str, repo: str = "") -> LogLine:
        return LogLine(at=0, tag=tag, repo=repo, text="")

    assert LogFilter().matches(line("MSG", "shop"))
    assert not LogFilter().matches(line("DBG"))
    assert LogFilter(level="debug").matches(line("DBG"))
    assert not LogFilter(level="warn").matches(line("INF"))
    assert LogFilter(level="error", repo="shop").matches(line("ERR", "shop"))
    assert not LogFilter(level="error", repo="shop").matches(line("ERR"))


def test_what_the_supervisor_and_its_journal_say_of_themselves_is_out_of_order() -> None:
    told = facts()
    status: dict[str, Any] = {
        **told.status,
        "supervisor": {**told.status["supervisor"], "trouble": "little room"},
        "journal": {"pending": 0, "trouble": "removed"},
    }
    page = page_of(replace(told, status=status))
    assert [trouble.text for trouble in page.troubles] == ["Supervisor: little room", "Journal: removed"]
