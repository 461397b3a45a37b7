"""What everything in a parent works with, opened: logs, the journal, what is served, what workers last told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

import msgspec

from codebutler.chat.people import People
from codebutler.config.paths import Home
from codebutler.config.programs import is_session
from codebutler.config.schema import Config
from codebutler.config.secrets import secrets_of
from codebutler.control.listeners import Listeners
from codebutler.domain.clock import Clock
from codebutler.domain.model import TurnNote
from codebutler.intake.direct import DirectThreads
from codebutler.intake.journal import Journal
from codebutler.intake.records import Notes
from codebutler.intake.repos import Repo, Repos, RepoTable
from codebutler.observe.audit import AuditLog
from codebutler.observe.logs import Logs
from codebutler.platform.backups import Backups, DailyBackups, Restored, open_or_restore
from codebutler.platform.descriptors import Descriptors
from codebutler.platform.tasks import Observers, Tasks
from codebutler.protocol.messages import Budget
from codebutler.text.amounts import today
from codebutler.text.redact import Redactor

NOTE = "home.turns"


class Budgets:
    """What each repository has used today of its daily limits, as its worker told last."""

    def __init__(self) -> None:
        self._told: dict[str, Budget] = {}

    def keep(self, repo: str, budget: Budget) -> None:
        """A worker's newest word."""
        self._told[repo] = budget

    def today(self, repo: str, now: datetime) -> Budget | None:
        """What is used today; of a day that has begun since nothing is used yet. None where nobody has told."""
        told = self._told.get(repo)
        if told is None:
            return None
        try:
            is_over = datetime.fromisoformat(told.until) <= now
        except (ValueError, TypeError):  # a worker is less trusted
            return None
        if not is_over:
            return told
        unused = tuple(msgspec.structs.replace(one, used=0.0) for one in told.limits)
        return Budget(limits=unused, until=told.until)

    def words(self, repo: str, now: datetime) -> str:
        """``3 of 10 runs, $1.20 of $5.00``; "" where nobody has told."""
        told = self.today(repo, now)
        if told is None:
            return ""
        return today(msgspec.to_builtins(told.used), {one.unit: one.limit for one in told.limits})


class LatestTurns:
    """The newest turns of each repository, as its worker told them last. They outlive the workers, and us: ``restore``
    reads what an earlier life kept. ``on_change`` is told of each change."""

    def __init__(self, notes: Notes, on_change: Callable[[], None]) -> None:
        self._notes = notes
        self._on_change = on_change
        self._turns: dict[str, tuple[TurnNote, ...]] = {}
        self._unkept = False

    @property
    def by_repo(self) -> Mapping[str, tuple[TurnNote, ...]]:
        """Those of every repository."""
        return self._turns

    def tell(self, repo: str, turns: tuple[TurnNote, ...]) -> None:
        """A worker tells its newest turns."""
        if self._turns.get(repo) != turns:
            self._turns[repo] = turns
            self._unkept = True
            self._on_change()

    def awaits(self, repo: Repo, thread_ts: str) -> bool:
        """Whether a card in the thread waits for an answer, or a program for what is typed."""
        return any(
            turn.state == "waiting" or (turn.state == "running" and is_session(repo.config, turn.agent))
            for turn in self._turns.get(repo.name, ())
            if turn.thread_ts == thread_ts
        )

    async def restore(self) -> None:
        """Raises StoreError, msgspec.DecodeError."""
        kept = await self._notes.note(NOTE)
        self._turns = {
            **msgspec.json.decode(kept or "{}", type=dict[str, tuple[TurnNote, ...]]),
            **self._turns,
        }

    async def keep(self) -> None:
        """On disk, for the next life. Raises StoreError."""
        if self._unkept:
            self._unkept = False
            await self._notes.keep_note(NOTE, msgspec.json.encode(self._turns).decode())


@dataclass(frozen=True)
class Given:
    """What a parent is built from."""

    home: Home
    env: Mapping[str, str]
    config: Config
    clock: Clock
    descriptors: Descriptors


@dataclass(frozen=True)
class Signals:
    """What some parts tell and others hear: that something is ``changed`` which App Home shows, the channel of a turn
    that a worker finds ``interrupted``."""

    changed: Observers[()] = field(default_factory=Observers[()])
    interrupted: Observers[str] = field(default_factory=Observers[str])


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Who closes them is the composition root's business. ``restored``: the journal is a backup."""

    given: Given
    signals: Signals
    clock: Clock
    people: People
    redactor: Redactor
    logs: Logs
    journal: Journal
    restored: Restored | None
    audit: AuditLog
    tasks: Tasks
    direct: DirectThreads
    repos: Repos
    turns: LatestTurns
    listeners: Listeners
    budgets: Budgets = field(default_factory=Budgets)

    def cleaned(self, text: str) -> str:
        """Without secrets, its links leading to where messages really stand."""
        return self.direct.relinked(self.redactor.redact(text))


async def open_parts(given: Given, stack: AsyncExitStack) -> Parts:
    """``stack`` closes everything again, in reverse order. Raises ConfigError, StoreError."""
    home, clock, config, signals = given.home, given.clock, given.config, Signals()
    table = RepoTable.read(home, given.env)
    redactor = Redactor(secrets_of(config) | table.secrets(given.env))
    people = People(clock)
    kept_days = config.logs.retention_days
    logs = stack.enter_context(
        Logs(home.log_file, config.logs.level, redactor.redact, retention_days=kept_days, people=people)
    )
    audit = stack.enter_context(
        AuditLog(home.audit, clock, redactor.redact, retention_days=config.logs.retention_days)
    )
    backups = Backups(home.backups / "journal", home.journal)
    opening = partial(Journal.open, home.journal, clock)
    journal, restored = open_or_restore(opening, backups, home.journal, clock)
    await stack.enter_async_context(journal)
    warn = partial(logs.record, "", "WRN")
    await stack.enter_async_context(DailyBackups(backups, clock, warn, journal.forget_old))
    direct = DirectThreads(journal)
    await direct.load()
    return Parts(
        given=given,
        signals=signals,
        clock=clock,
        people=people,
        redactor=redactor,
        logs=logs,
        journal=journal,
        restored=restored,
        audit=audit,
        tasks=Tasks(lambda name, error: logs.record("", "ERR", f"{name} failed: {error!r}")),
        direct=direct,
        repos=Repos(table, lambda: direct.channels),
        turns=LatestTurns(journal, signals.changed.tell),
        listeners=Listeners(people.called, redactor.redact),
    )
