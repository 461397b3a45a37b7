"""The data of the page, built from what the supervisor knows. Pure. Nothing is escaped here: the page renders it as
text, never as markup. Times are ISO 8601; the browser shows how long ago."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

from msgspec import Struct

from codebutler.config.chats import SECTIONS
from codebutler.domain.model import TurnNote
from codebutler.domain.refs import NOWHERE
from codebutler.observe.logs import LogLine
from codebutler.text.markup import Addresses
from codebutler.text.wording import load, today, used_of
from codebutler.web.dashboard.runs import (
    ATTENTION_STATES,
    ENDED_STATES,
    JobView,
    TurnItem,
    job_views,
    turn_item,
)

MAX_NEEDS = 50
MAX_WORK = 50
MAX_RECENT = 8
MAX_ERRORS = 5
MAX_TURNS = 100
"""Per repository: a worker that reports more is making it up."""
SEEN_S = 10
"""A chat's last sign of life is rounded to this, so that not everything changes with every update."""
DOWN_TEXTS = {
    "quarantined": "its worker keeps failing and is tried again every ten minutes",
    "stopped": "its worker is stopped",
}

CHATS = tuple((each.key, each.title) for each in SECTIONS)
"""The name in the status, and the display name."""

State = Literal["well", "waits", "trouble"]


class VerdictView(Struct, frozen=True, kw_only=True):
    """The whole page in one line; ``waiting`` counts the things that need a person."""

    state: State
    text: str
    waiting: int


class ChatView(Struct, frozen=True, kw_only=True):
    """The connection to one chat. ``heard_at``: its last sign of life, None before the first."""

    name: str
    state: str
    is_well: bool
    trouble: str
    connections: int
    reconnects: int
    heard_at: str | None
    catching_up: bool


class SystemView(Struct, frozen=True, kw_only=True):
    """The supervisor itself; ``journal`` and ``outbox`` count what is still to be handed on."""

    pid: int
    version: str
    since: str
    journal: int
    outbox: int


class Trouble(Struct, frozen=True, kw_only=True):
    """A problem; ``repo`` is "" if it concerns everything."""

    repo: str
    text: str


class BudgetView(Struct, frozen=True, kw_only=True):
    """One daily limit: ``$1.20 of $5.00`` and the share used, 0 to 1. The text is also part of ``today``."""

    words: str
    share: float


class RepoView(Struct, frozen=True, kw_only=True):
    """A repository and its worker. ``memory_mb``: proportional set size, None without a process or if unknown.
    ``load``: how many runs of each kind, "" for none; ``today``: what they have used; ``tend``: what can be done about
    its worker; ``host``: the machine that it is on, in a cluster."""

    name: str
    path: str
    agent: str
    channel: str
    url: str
    state: str
    pid: int | None
    restarts: int
    memory_mb: int | None
    load: str
    today: str
    budget: tuple[BudgetView, ...]
    problem: str
    host: str
    tend: Literal["", "start", "restart"]


class LineView(Struct, frozen=True, kw_only=True):
    """A line of the log."""

    at: str
    tag: str
    repo: str
    text: str


class DashboardPage(Struct, frozen=True, kw_only=True):
    """Everything shown except the log."""

    verdict: VerdictView
    system: SystemView
    chats: tuple[ChatView, ...]
    troubles: tuple[Trouble, ...]
    needs: tuple[TurnItem, ...]
    work: tuple[TurnItem, ...]
    recent: tuple[TurnItem, ...]
    repos: tuple[RepoView, ...]
    jobs: tuple[JobView, ...]
    errors: tuple[LineView, ...]


class DashboardFacts(Struct, frozen=True, kw_only=True):
    """The input: the object of `codebutler status`, the newest turns and the channel's name and agent by repository,
    the rows of `codebutler jobs`, the log's last errors, where messages can be seen."""

    status: Mapping[str, Any]
    turns: Mapping[str, tuple[TurnNote, ...]]
    repo_labels: Mapping[str, tuple[str, str]]
    jobs: Sequence[Mapping[str, Any]]
    timers: Sequence[Mapping[str, Any]]
    errors: Sequence[LogLine]
    now: datetime
    address: Addresses


def page_of(facts: DashboardFacts) -> DashboardPage:
    """The page as it is now."""
    repos = facts.status["repos"]
    chats = tuple(_chat(name, facts.status[key], facts.now) for key, name in CHATS if key in facts.status)
    troubles = tuple(_troubles(facts.status, chats, repos))
    pairs = [(row, turn) for row in repos for turn in facts.turns.get(row["name"], ())[:MAX_TURNS]]
    items = [turn_item(row, turn, facts.address) for row, turn in pairs]
    needs = [item for item in items if item.state in ATTENTION_STATES]
    ended = [item for item in items if item.state in ENDED_STATES]
    work = [item for item in items if item.state in ("running", "queued")]
    return DashboardPage(
        verdict=verdict(len(troubles), len(needs)),
        system=_system(facts),
        chats=chats,
        troubles=troubles,
        needs=tuple(sorted(needs, key=lambda turn: turn.since)[:MAX_NEEDS]),
        work=tuple(sorted(work, key=lambda turn: (turn.state != "running", turn.since))[:MAX_WORK]),
        recent=tuple(sorted(ended, key=lambda turn: turn.since, reverse=True)[:MAX_RECENT]),
        repos=tuple(_repo(facts, row) for row in repos),
        jobs=job_views(facts.jobs, facts.timers),
        errors=tuple(line_view(line) for line in facts.errors[-MAX_ERRORS:]),
    )


def verdict(troubles: int, waiting: int) -> VerdictView:
    """The most important facts in one line."""
    if troubles:
        problems = "1 problem" if troubles == 1 else f"{troubles} problems"
        besides = "" if not waiting else ", 1 needs you" if waiting == 1 else f", {waiting} need you"
        return VerdictView(state="trouble", text=f"{problems}{besides}", waiting=waiting)
    if waiting:
        what = "1 thing needs" if waiting == 1 else f"{waiting} things need"
        return VerdictView(state="waits", text=f"{what} you", waiting=waiting)
    return VerdictView(state="well", text="All is well", waiting=0)


def line_view(line: LogLine) -> LineView:
    """A line of the log as sent to the page."""
    return LineView(
        at=datetime.fromtimestamp(line.at).astimezone().isoformat(),
        tag=line.tag,
        repo=line.repo,
        text=line.text,
    )


def _system(facts: DashboardFacts) -> SystemView:
    supervisor = facts.status["supervisor"]
    return SystemView(
        pid=supervisor["pid"],
        version=supervisor["version"],
        since=_rounded_time(facts.now, supervisor["uptime_s"], 1),
        journal=facts.status["journal"]["pending"],
        outbox=facts.status["outbox"]["pending"],
    )


def _chat(name: str, chat: Mapping[str, Any], now: datetime) -> ChatView:
    state, trouble, age_s = (
        chat.get("state", "connecting"),
        chat.get("trouble", ""),
        chat.get("last_event_age_s"),
    )
    return ChatView(
        name=name,
        state=state.replace("_", " "),
        is_well=state == "connected" and not trouble,
        trouble=trouble,
        connections=chat.get("connections", 0),
        reconnects=chat.get("reconnects", 0),
        heard_at=None if age_s is None else _rounded_time(now, age_s, SEEN_S),
        catching_up=bool(chat.get("catching_up")),
    )


def _rounded_time(now: datetime, seconds: float, step_s: int) -> str:
    moment = (now - timedelta(seconds=seconds)).timestamp()
    return datetime.fromtimestamp(round(moment / step_s) * step_s, now.tzinfo).isoformat()


def _troubles(
    status: Mapping[str, Any], chats: Iterable[ChatView], repos: Iterable[Mapping[str, Any]]
) -> Iterable[Trouble]:
    for part in ("supervisor", "journal"):
        if trouble := status[part].get("trouble"):
            yield Trouble(repo="", text=f"{part.capitalize()}: {trouble}")
    for chat in chats:
        if not chat.is_well:
            yield Trouble(repo="", text=f"{chat.name}: {chat.trouble or chat.state}")
    for row in repos:
        if problem := row.get("problem") or DOWN_TEXTS.get(row["worker"]["state"], ""):
            yield Trouble(repo=row["name"], text=problem)


def _repo(facts: DashboardFacts, row: Mapping[str, Any]) -> RepoView:
    worker, turns, channel = row["worker"], row["turns"], row["channel_id"]
    agent, shown = facts.repo_labels.get(row["name"], ("", channel))
    pss = worker.get("pss_bytes")
    return RepoView(
        name=row["name"],
        path=row["path"],
        agent=agent,
        channel=shown,
        url=facts.address(channel, NOWHERE) if channel else "",
        state=worker["state"],
        pid=worker["pid"],
        restarts=worker["restarts"],
        memory_mb=None if pss is None else round(pss / 2**20),
        load=load(**turns) if any(turns.values()) else "",
        today=today(row["today"], {one["unit"]: one["limit"] for one in row["budget"]}),
        budget=tuple(map(_budget, row["budget"])),
        problem=row.get("problem", ""),
        host=row.get("host", ""),
        tend=_worker_action(worker["state"]) if row["name"] in facts.repo_labels else "",
    )


def _worker_action(state: str) -> Literal["", "start", "restart"]:
    match state:
        case "running":
            return "restart"
        case "sleeping" | "backoff" | "quarantined" | "stopped":
            return "start"
    return ""


def _budget(one: Mapping[str, Any]) -> BudgetView:
    share = one["used"] / one["limit"] if one["limit"] > 0 else 1.0
    words = used_of(one["unit"], one["used"], one["limit"])
    return BudgetView(words=words, share=round(min(1.0, max(0.0, share)), 3))
