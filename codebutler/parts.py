"""What a parent works with, opened and ready: tokens, files, logs, the sender, the workers."""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

from codebutler.clock import Clock
from codebutler.config.paths import Home
from codebutler.config.resolve import Resolved
from codebutler.config.secrets import secrets_of
from codebutler.control.listeners import Listeners
from codebutler.direct.acquaintance import Acquaintance
from codebutler.direct.book import Book
from codebutler.disk.backups import Backups, Keeper, open_or_restore
from codebutler.intake.journal import Journal
from codebutler.observe.audit import AuditLog
from codebutler.observe.logs import Logs
from codebutler.process.descriptors import Descriptors
from codebutler.process.tasks import Tasks
from codebutler.repos import RepoTable
from codebutler.services import Chat, ParentServices
from codebutler.slack.api import SlackApi
from codebutler.slack.channels import Channels
from codebutler.slack.download import Downloads
from codebutler.slack.people import People
from codebutler.slack.sender import Sender
from codebutler.slack.status import StatusBoard
from codebutler.supervisor.forkserver import ForkServer
from codebutler.supervisor.kit import Kit
from codebutler.supervisor.places import Places
from codebutler.supervisor.supervisor import Supervisor
from codebutler.text.redact import Redactor


@dataclass(frozen=True)
class Surroundings:
    """What a parent is built from."""

    home: Home
    env: Mapping[str, str]
    resolved: Resolved
    clock: Clock
    descriptors: Descriptors


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What a parent works with; who closes them is the composition root's business."""

    home: Home
    env: Mapping[str, str]
    clock: Clock
    api: SlackApi
    redactor: Redactor
    logs: Logs
    journal: Journal
    audit: AuditLog
    sender: Sender
    book: Book
    people: People
    acquaintance: Acquaintance
    services: ParentServices
    channels: Channels
    supervisor: Supervisor
    descriptors: Descriptors
    tasks: Tasks


async def open_parts(
    around: Surroundings,
    api: SlackApi,
    table: RepoTable,
    listeners: Listeners,
    people: People,
    stack: AsyncExitStack,
) -> Parts:
    """``stack`` closes everything again, in reverse order. Raises StoreError."""
    home, clock, config = around.home, around.clock, around.resolved.config
    # A demo's home is none that our own environment names; and programs are looked for in more than our own PATH.
    given = {"CODEBUTLER_HOME": str(home.root), "PATH": around.env.get("PATH", os.defpath)}
    spawner = ForkServer(given=given, files=around.descriptors.given)
    spawner.start()
    redactor = Redactor(secrets_of(config) | table.secrets(around.env))
    redact = redactor.redact
    logs = stack.enter_context(
        Logs(
            home.log_file,
            config.logs.level,
            redact,
            retention_days=config.logs.retention_days,
            people=people,
        )
    )
    audit = stack.enter_context(
        AuditLog(home.audit, clock, redact, retention_days=config.logs.retention_days)
    )
    backups = Backups(home.backups / "journal", home.journal)
    journal, restored = open_or_restore(
        partial(Journal.open, home.journal, clock), backups, home.journal, clock
    )
    await stack.enter_async_context(journal)
    await stack.enter_async_context(
        Keeper(backups, clock, partial(logs.record, "", "WRN"), journal.forget_old)
    )
    book = Book(journal)
    await book.load()
    sender = await stack.enter_async_context(Sender(api, clock, redact, detour=book, notes=journal))
    statuses = await stack.enter_async_context(StatusBoard(api, clock, redact))
    tasks = Tasks(lambda name, error: logs.record("", "ERR", f"{name} failed: {error!r}"))
    channels = Channels(clock)
    services = ParentServices(
        chat=Chat(sender, Downloads(api, clock), channels, statuses, people),
        journal=journal,
        audit=audit,
        logs=logs,
        listeners=listeners,
        tasks=tasks,
    )
    if restored is not None:
        await journal.open_gaps(table.by_channel(), restored.taken_at)
        services.restored(restored, table.by_channel())
    kit = Kit(spawner, services, clock, random.random, places=Places(around.descriptors.workers))
    supervisor = await stack.enter_async_context(Supervisor(kit))
    return Parts(
        home=home,
        env=around.env,
        clock=clock,
        api=api,
        redactor=redactor,
        logs=logs,
        journal=journal,
        audit=audit,
        sender=sender,
        book=book,
        people=people,
        acquaintance=Acquaintance(api, book, journal, api.clock),
        services=services,
        channels=channels,
        supervisor=supervisor,
        descriptors=around.descriptors,
        tasks=tasks,
    )
