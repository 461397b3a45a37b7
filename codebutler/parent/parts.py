"""What everything in a parent works with, opened: logs, the journal, what is served."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial

from codebutler.chat.slack.people import People
from codebutler.config.paths import Home
from codebutler.config.schema import Config
from codebutler.config.secrets import secrets_of
from codebutler.control.listeners import Listeners
from codebutler.domain.clock import Clock
from codebutler.intake.journal import Journal
from codebutler.intake.repos import Repos, RepoTable
from codebutler.observe.audit import AuditLog
from codebutler.observe.logs import Logs
from codebutler.parent.apphome.turns import LatestTurns
from codebutler.parent.direct.book import Book
from codebutler.platform.backups import Backups, DailyBackups, Restored, open_or_restore
from codebutler.platform.descriptors import Descriptors
from codebutler.platform.tasks import Observers, Tasks
from codebutler.text.redact import Redactor


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
    book: Book
    repos: Repos
    turns: LatestTurns
    listeners: Listeners

    def cleaned(self, text: str) -> str:
        """Without secrets, its links leading to where messages really stand."""
        return self.book.relinked(self.redactor.redact(text))


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
    book = Book(journal)
    await book.load()
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
        book=book,
        repos=Repos(table, lambda: book.channels),
        turns=LatestTurns(journal, signals.changed.tell),
        listeners=Listeners(people.called, redactor.redact),
    )
