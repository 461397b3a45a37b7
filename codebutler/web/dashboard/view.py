"""What the page shows, made of what the supervisor knows. Pure.

Nothing here is escaped: the page makes text of it, never markup. Moments are ISO 8601; the browser says how long ago.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from msgspec import Struct

from codebutler.domain.model import Asked, TurnNote
from codebutler.observe.ring import LogLine
from codebutler.text.amounts import amount, load, today, used_of
from codebutler.text.markup import ANY_WORKSPACE, message_url
from codebutler.text.markup import words as words_of

MAX_NEEDS = 50
MAX_WORK = 50
MAX_RECENT = 8
MAX_JOBS = 50
MAX_ERRORS = 5
TEXT_CHARS = 200
WORD_CHARS = 80
MAX_TURNS = 100
"""Of one repository: what is beyond these a worker made up."""
SEEN_S = 10
"""The last sign of a chat is told no finer than that: not everything is to change with every look."""
NEEDS = ("waiting", "interrupted", "parked")
ENDED = ("done", "failed", "stopped")
DOWN = {
    "quarantined": "its worker keeps failing and is tried again every ten minutes",
    "stopped": "its worker is stopped",
}

CHATS = (("slack", "Slack"), ("telegram", "Telegram"))
"""As the status names them, and as people do."""

State = Literal["well", "waits", "trouble"]


class VerdictView(Struct, frozen=True, kw_only=True):
    """The whole page in a line; ``waiting`` is how many things want a person."""

    state: State
    text: str
    waiting: int


class ChatView(Struct, frozen=True, kw_only=True):
    """The connection to one chat. ``heard_at``: when it last gave a sign of life, None before the first."""

    name: str
    state: str
    is_well: bool
    trouble: str
    connections: int
    reconnects: int
    heard_at: str | None
    catching_up: bool


class SystemView(Struct, frozen=True, kw_only=True):
    """The supervisor itself; ``journal`` and ``outbox`` are what is not handed on yet."""

    pid: int
    version: str
    since: str
    journal: int
    outbox: int


class Trouble(Struct, frozen=True, kw_only=True):
    """Something out of order; ``repo`` is "" where it is about all."""

    repo: str
    text: str


class TurnItem(Struct, frozen=True, kw_only=True):
    """A turn: ``what`` it wants of people or does, ``text`` what was asked, ``url`` its thread ("" if unknown)."""

    key: str
    repo: str
    state: str
    what: str
    text: str
    agent: str
    since: str
    cost: str
    url: str


class BudgetView(Struct, frozen=True, kw_only=True):
    """One limit of the day: ``$1.20 of $5.00`` and the share of it, 0 to 1. The words are among those of ``today``."""

    words: str
    share: float


class RepoView(Struct, frozen=True, kw_only=True):
    """A repository and its worker. ``memory_mb``: proportional set size, None without a process or where that cannot be
    known. ``load``: how many runs there are of each kind, "" for none; ``today``: what they have used."""

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


class JobView(Struct, frozen=True, kw_only=True):
    """Something that runs by the clock."""

    key: str
    repo: str
    name: str
    when: str
    next: str | None
    last: str | None
    last_ok: bool | None
    state: str


class LineView(Struct, frozen=True, kw_only=True):
    """A line of the log."""

    at: str
    tag: str
    repo: str
    text: str


class DashboardPage(Struct, frozen=True, kw_only=True):
    """Everything that is shown, but the log."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardFacts:
    """What is known: the object of `codebutler status`, the newest turns and the channel's name and agent by
    repository, the rows of `codebutler jobs`, the log's last errors."""

    status: Mapping[str, Any]
    turns: Mapping[str, tuple[TurnNote, ...]]
    served: Mapping[str, tuple[str, str]]
    jobs: Sequence[Mapping[str, Any]]
    errors: Sequence[LogLine]
    now: datetime


def page_of(facts: DashboardFacts) -> DashboardPage:
    """The page as it is now."""
    repos = facts.status["repos"]
    chats = tuple(_chat(name, facts.status[key], facts.now) for key, name in CHATS if key in facts.status)
    troubles = tuple(_troubles(facts.status, chats, repos))
    placed = [(row, turn) for row in repos for turn in facts.turns.get(row["name"], ())[:MAX_TURNS]]
    needs = [_need(row, turn) for row, turn in placed if turn.state in NEEDS]
    ended = [_turn(row, turn, turn.state) for row, turn in placed if turn.state in ENDED]
    work = [_turn(row, turn, turn.state) for row, turn in placed if turn.state in ("running", "queued")]
    return DashboardPage(
        verdict=verdict(len(troubles), len(needs)),
        system=_system(facts),
        chats=chats,
        troubles=troubles,
        needs=tuple(sorted(needs, key=lambda turn: turn.since)[:MAX_NEEDS]),
        work=tuple(sorted(work, key=lambda turn: (turn.state != "running", turn.since))[:MAX_WORK]),
        recent=tuple(sorted(ended, key=lambda turn: turn.since, reverse=True)[:MAX_RECENT]),
        repos=tuple(_repo(row, facts.served.get(row["name"], ("", ""))) for row in repos),
        jobs=tuple(sorted(map(_job, facts.jobs), key=_soonest)[:MAX_JOBS]),
        errors=tuple(line_view(line) for line in facts.errors[-MAX_ERRORS:]),
    )


def verdict(troubles: int, waiting: int) -> VerdictView:
    """What matters most, in a line."""
    if troubles:
        problems = "1 problem" if troubles == 1 else f"{troubles} problems"
        besides = "" if not waiting else ", 1 needs you" if waiting == 1 else f", {waiting} need you"
        return VerdictView(state="trouble", text=f"{problems}{besides}", waiting=waiting)
    if waiting:
        what = "1 thing needs" if waiting == 1 else f"{waiting} things need"
        return VerdictView(state="waits", text=f"{what} you", waiting=waiting)
    return VerdictView(state="well", text="All is well", waiting=0)


def line_view(line: LogLine) -> LineView:
    """A line of the log as the page gets it."""
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
        since=_before(facts.now, supervisor["uptime_s"], 1),
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
        heard_at=None if age_s is None else _before(now, age_s, SEEN_S),
        catching_up=bool(chat.get("catching_up")),
    )


def _before(now: datetime, seconds: float, step_s: int) -> str:
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
        if problem := row.get("problem") or DOWN.get(row["worker"]["state"], ""):
            yield Trouble(repo=row["name"], text=problem)


def _need(row: Mapping[str, Any], turn: TurnNote) -> TurnItem:
    match turn.state:
        case "interrupted":
            what = "was interrupted: continue or drop it"
        case "parked":
            what = f"paused: {_cut(turn.why)}" if turn.why else "paused: try now or drop it"
        case _:
            what = _asks(turn.asked)
    return _turn(row, turn, what)


def _asks(asked: Sequence[Asked]) -> str:
    if not asked:
        return "waits for an answer"
    words = _plain(asked[0].text)
    if asked[0].is_question:
        words = f"asks: {words}" if words else "asks"
    more = f" (and {len(asked) - 1} more)" if len(asked) > 1 else ""
    return f"{words or 'needs approval'}{more}"


def _plain(markdown: str) -> str:
    """A card's text in a line, without its marks."""
    return _cut(words_of(markdown[: TEXT_CHARS * 10]).lstrip("🔐🤔⚠️ "))


def _cut(text: str) -> str:
    line = " ".join(text[: TEXT_CHARS * 10].split())
    return line if len(line) <= TEXT_CHARS else f"{line[: TEXT_CHARS - 1]}…"


def _turn(row: Mapping[str, Any], turn: TurnNote, what: str) -> TurnItem:
    channel = row["channel_id"]
    return TurnItem(
        key=f"{row['name']}/{(turn.id or turn.thread_ts)[:WORD_CHARS]}",
        repo=row["name"],
        state=turn.state,
        what=what,
        text=_cut(turn.text) or "…",
        agent=turn.agent[:WORD_CHARS],
        since=turn.at[:WORD_CHARS],
        cost="" if turn.cost_usd is None else amount("usd", turn.cost_usd),
        url=message_url(channel, turn.thread_ts[:WORD_CHARS]) if channel and turn.thread_ts else "",
    )


def _repo(row: Mapping[str, Any], served: tuple[str, str]) -> RepoView:
    agent, channel_name = served
    worker, turns, channel = row["worker"], row["turns"], row["channel_id"]
    pss = worker.get("pss_bytes")
    return RepoView(
        name=row["name"],
        path=row["path"],
        agent=agent,
        channel=f"#{channel_name.removeprefix('#')}" if channel_name else channel,
        url=f"{ANY_WORKSPACE}{channel}" if channel else "",
        state=worker["state"],
        pid=worker["pid"],
        restarts=worker["restarts"],
        memory_mb=None if pss is None else round(pss / 2**20),
        load=load(**turns) if any(turns.values()) else "",
        today=today(row["today"], {one["unit"]: one["limit"] for one in row["budget"]}),
        budget=tuple(map(_budget, row["budget"])),
        problem=row.get("problem", ""),
    )


def _budget(one: Mapping[str, Any]) -> BudgetView:
    share = one["used"] / one["limit"] if one["limit"] > 0 else 1.0
    words = used_of(one["unit"], one["used"], one["limit"])
    return BudgetView(words=words, share=round(min(1.0, max(0.0, share)), 3))


def _job(row: Mapping[str, Any]) -> JobView:
    paused = f"paused: {_plain(row['paused'])}" if row["paused"] else ""
    return JobView(
        key=f"{row['repo']}/{row['name']}",
        repo=row["repo"],
        name=row["name"],
        when=row["cron"],
        next=None if paused else row["next"],
        last=row["last"],
        last_ok=row["last_ok"] if row["last"] else None,
        state="running" if row["running"] else paused,
    )


def _soonest(job: JobView) -> tuple[float, str]:
    return (datetime.fromisoformat(job.next).timestamp() if job.next else math.inf, job.key)
