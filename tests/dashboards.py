"""A dashboard on a real port, over a parent that is told what it knows."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from codebutler.chat.port import HistoryPage
from codebutler.chat.terminal import Speaker
from codebutler.config.chats import message_url
from codebutler.config.registry import RepoEntry
from codebutler.config.schema import Config
from codebutler.config.section import DashboardSection
from codebutler.domain.clock import Clock, SystemClock
from codebutler.domain.errors import CodeButlerError
from codebutler.domain.model import Event, Operation, Post, TurnNote
from codebutler.domain.refs import MessageRef
from codebutler.intake.intake import Outcome
from codebutler.intake.repos import Served
from codebutler.observe.chain import AuditAct
from codebutler.observe.ledger import Period
from codebutler.observe.logs import LineFormatter, Ring
from codebutler.platform.files import PrivateDir
from codebutler.platform.tasks import beside
from codebutler.protocol.capabilities import LedgerRow
from codebutler.protocol.conversations import (
    AskDiff,
    AskFound,
    AskThread,
    FoundTold,
    Question,
    RunChanges,
    ThreadTold,
    Told,
)
from codebutler.schedule.jobs import Hook
from codebutler.supervisor.queues import T
from codebutler.text.markup import Addresses
from codebutler.text.redact import Redactor
from codebutler.web.dashboard.actions import DashboardActions, Keys
from codebutler.web.dashboard.changes import ChangeReviews
from codebutler.web.dashboard.conversations import Conversations
from codebutler.web.dashboard.dashboard import Dashboard, Pages, Sources
from codebutler.web.dashboard.ledger import LedgerPage
from codebutler.web.server import DashboardAddress, Hooks, WebServer

DEADLINE_S = 30
TODAY = date(2026, 2, 14)
"""The last day of the page of costs."""
CONNECTED = {
    "state": "connected",
    "connections": 1,
    "reconnects": 0,
    "last_event_age_s": None,
    "trouble": "",
    "catching_up": False,
}


class Knowing:
    """The parent: ``repos``, ``turns``, ``jobs``, ``timers`` and ``slack`` are what it knows, ``done`` is what it was
    told to do, ``audit`` its audit log."""

    def __init__(self) -> None:
        self.repos: list[dict[str, Any]] = [repo("shop")]
        self.turns: dict[str, tuple[TurnNote, ...]] = {}
        self.jobs: list[dict[str, Any]] = []
        self.timers: list[dict[str, Any]] = []
        self.done: list[tuple[str, ...]] = []
        self.audit: list[AuditAct] = []
        self.slack: dict[str, Any] = dict(CONNECTED)
        self.looks = 0
        self._started_s = time.monotonic()

    async def status(self) -> dict[str, Any]:
        self.looks += 1
        return {
            "supervisor": {
                "pid": 4711,
                "version": "0.1.0",
                "uptime_s": 11_000.0 + time.monotonic() - self._started_s,
            },
            "slack": self.slack,
            "repos": self.repos,
            "journal": {"pending": 0},
            "outbox": {"pending": 2},
        }

    def wake(self, name: str) -> None:
        self.done.append(("wake", name))

    def restart(self, name: str) -> None:
        self.done.append(("restart", name))

    async def manage(self, action: str, name: str) -> str:
        self.done.append((action, name))
        return f"{name}: {action}"

    async def cancel_timer(self, timer_id: str, repo: str) -> str:
        self.done.append(("cancel", repo, timer_id))
        return f"The timer {timer_id} is cancelled."

    def served_as(self) -> Mapping[str, tuple[str, str]]:
        return {each["name"]: ("claude", each["name"]) for each in self.repos}


class Thread:
    """The chat and the intake, as comments get there: ``posted`` and ``heard`` are what did."""

    def __init__(self) -> None:
        self.posted: list[tuple[str, Post]] = []
        self.heard: list[Event] = []
        self.outcome: Outcome = "accepted"
        self.down = ""

    def trouble(self, channel: str) -> str:
        return f"{channel} is gone"

    async def submit(self, channel: str, op_id: str, operation: Operation, *, unsure: bool) -> MessageRef:
        assert isinstance(operation, Post)
        self.posted.append((channel, operation))
        return MessageRef("9.1")

    async def history(
        self, channel: str, *, thread: MessageRef | None = None, since_s: float = 0.0, cursor: str = ""
    ) -> HistoryPage:
        raise AssertionError(channel)

    async def accept(self, event: Event) -> Outcome:
        self.heard.append(event)
        return self.outcome


class Worker:
    """Who knows what runs changed (``runs``) and what was said (``threads``), by the IDs of runs; ``found`` by
    repository. ``asked`` are the repositories that were asked."""

    def __init__(self) -> None:
        self.runs: dict[str, RunChanges] = {}
        self.threads: dict[str, ThreadTold] = {}
        self.found: dict[str, FoundTold] = {}
        self.asked: list[str] = []

    async def ask(self, repo: str, question: Question, kind: type[T], /) -> T:
        self.asked.append(repo)
        told: Told
        match question:
            case AskDiff(turn=run):
                told = self.runs.get(run) or RunChanges(request_id="", problem="unknown run")
            case AskThread(turn=run):
                told = self.threads.get(run) or ThreadTold(request_id="", problem="unknown run")
            case AskFound():
                if repo not in self.found:
                    raise CodeButlerError("the worker is not running")
                told = self.found[repo]
        assert isinstance(told, kind)
        return told


class NoHooks:
    """There is none to be called."""

    hooks: Mapping[str, Hook] = {}

    async def called(self, hook: Hook, body: object, key: str) -> Outcome:
        raise AssertionError(hook)


class Watched:
    """One dashboard: what it is told, its log, and where it is."""

    def __init__(self, home: Path, port: int, clock: Clock | None = None) -> None:
        self.home = home
        self.known = Knowing()
        self.redactor = Redactor()
        self.runs: list[LedgerRow] = []
        self.ring = Ring(LineFormatter(self.redactor.redact).describe)
        self.logger = logging.getLogger(f"dashboard-{id(self)}")
        self.logger.propagate = False
        self.logger.setLevel(logging.DEBUG)
        self.logger.addHandler(self.ring)
        self.clock = clock = clock or SystemClock()
        sources = Sources(
            status=self.known.status,
            repo_labels=self.known.served_as,
            turns=lambda: self.known.turns,
            jobs=lambda: self.known.jobs,
            timers=lambda: self.known.timers,
            ring=self.ring,
            addresses=self._addresses,
            redact=self.redactor.redact,
        )
        place = PrivateDir(home, follow_links=True, create=True)
        keys = Keys(place, clock, secrets.token_urlsafe, self.redactor.learn)
        self.worker, self.thread = Worker(), Thread()
        speaker = Speaker(self.thread.accept, self.thread, lambda _: self.thread.down, clock)
        reviews = ChangeReviews(
            find_repo=self._served,
            workers=self.worker,
            speaker=speaker,
            redact=self.redactor.redact,
            addresses=self._addresses,
        )
        acts = DashboardActions(
            find_repo=self._served,
            turns=lambda: self.known.turns,
            speaker=speaker,
            workers=self.known,
            schedule=self.known,
            audit=self.known.audit.append,
        )
        conversations = Conversations(
            served=lambda: [
                served for name in self.known.served_as() if (served := self._served(name)) is not None
            ],
            workers=self.worker,
            name_people=lambda text: text.replace("U01", "Ana"),
            redact=self.redactor.redact,
            addresses=self._addresses,
        )
        ledger = LedgerPage(
            names=lambda: [each["name"] for each in self.known.repos],
            days=lambda days: Period(TODAY - timedelta(days=days - 1), TODAY + timedelta(days=1), UTC),
            rows=self._rows,
            person_name=lambda user: {"U0ANA": "Ana"}.get(user, user),
            redact=self.redactor.redact,
            addresses=self._addresses,
        )
        self.dashboard = Dashboard(sources, Pages(reviews, acts, conversations, ledger), keys, clock)
        self.front = WebServer(
            DashboardSection(port=port), Hooks(NoHooks(), clock), self.dashboard, DashboardAddress()
        )

    def log(self, text: str, tag: str = "INF", repo: str = "") -> None:
        """A line of the log."""
        self.logger.log(
            logging.ERROR if tag == "ERR" else logging.INFO, "%s", text, extra={"tag": tag, "repo": repo}
        )

    async def _rows(self, during: Period, names: Iterable[str]) -> list[LedgerRow]:
        first, until = during.ends
        wanted = {*names}
        return [row for row in self.runs if row.repo in wanted and first <= row.at < until]

    async def _addresses(self) -> Addresses:
        return partial(message_url, home="https://acme.slack.com/")

    def _served(self, name: str) -> Served | None:
        if name not in self.known.served_as():
            return None
        config = msgspec.convert({"slack": {"channelID": "C0123456"}}, Config)
        entry = RepoEntry(name=name, path=f"/src/{name}", channel_id="C0123456")
        return Served(entry, config, (), trusted=True)


@asynccontextmanager
async def watched(home: Path, port: int = 0) -> AsyncIterator[Watched]:
    """A dashboard that listens while the block lasts."""
    built = Watched(home, port)
    async with beside(built.front.run(), name="front"):
        async with asyncio.timeout(DEADLINE_S):
            await built.front.listening.wait()
        yield built


def repo(name: str, state: str = "running", problem: str = "", **turns: int) -> dict[str, Any]:
    """A row of `codebutler status`."""
    pid, pss = (4712, 11 * 2**20) if state in ("running", "starting") else (None, None)
    return {
        "name": name,
        "path": f"/src/{name}",
        "channel_id": "C0123456",
        "worker": {"state": state, "pid": pid, "restarts": 0, "pss_bytes": pss},
        "turns": {"running": 0, "queued": 0, "waiting": 0, "parked": 0} | turns,
        "today": {"runs": 0, "tokens": 0, "usd": 0.0, "minutes": 0.0},
        "budget": [],
        "problem": problem,
    }


def turn(state: str, text: str, minutes: int = 5, **more: Any) -> TurnNote:
    """A turn that came to be so, so long ago."""
    at = (datetime.now(UTC) - timedelta(minutes=minutes)).isoformat()
    thread = f"17{minutes:08d}.000001"
    return TurnNote(state=state, thread=thread, text=text, agent="claude", at=at, id=thread, **more)
