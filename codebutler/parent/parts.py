"""The parent's common base, opened: logs, the journal, the served repositories, the workers' reports; and which host
each repository is on.

Each gateway has its own registry file. So a move is noted for all gateways, and each gateway that begins to lead writes
it into its own registry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from datetime import datetime
from functools import partial
from pathlib import Path

import msgspec
from msgspec import Struct, field, structs
from msgspec.structs import replace

from codebutler.chat.listeners import Listeners
from codebutler.chat.people import People
from codebutler.config.paths import Home
from codebutler.config.programs import is_session
from codebutler.config.registry import Registry, RepoEntries, find
from codebutler.config.registry import replace as replaced
from codebutler.config.resolve import secrets_of
from codebutler.config.schema import Config
from codebutler.domain.clock import Clock
from codebutler.domain.errors import CodeButlerError, ConfigError, StoreError
from codebutler.domain.model import TurnNote
from codebutler.domain.refs import NO_PERSON, ConversationRef, MessageRef, PersonRef
from codebutler.intake.direct import DirectThreads
from codebutler.intake.journal import Journal
from codebutler.intake.records import Entry, Kept, Notes
from codebutler.intake.repos import Repo, Repos, RepoTable
from codebutler.observe.audit import AuditLog
from codebutler.observe.hosted_runs import HostedRuns
from codebutler.observe.logs import Logs
from codebutler.observe.metrics import EventCounts
from codebutler.observe.otlp import Collector
from codebutler.observe.tracing import Tracing
from codebutler.parent.spending import Ledgers, Record, Spending
from codebutler.platform.backups import Backups, DailyBackups, Restored, open_or_restore
from codebutler.platform.processes import Descriptors
from codebutler.platform.signals import Stopping
from codebutler.platform.tasks import Observers, Tasks
from codebutler.protocol.messages import Budget
from codebutler.schedule.files import ToldJobs
from codebutler.text.redact import Redactor
from codebutler.text.wording import today
from codebutler.web.server import DashboardAddress

NOTE = "home.turns"


class Budgets:
    """Each repository's use today against its daily limits, as its worker last reported it."""

    def __init__(self) -> None:
        self.told: dict[str, Budget] = {}
        """Each worker's newest report."""

    def today(self, repo: str, now: datetime) -> Budget | None:
        """Today's use, which is nothing if the day began after the report. None if nothing was reported."""
        told = self.told.get(repo)
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
        """``3 of 10 runs, $1.20 of $5.00``; "" if nothing was reported."""
        told = self.today(repo, now)
        if told is None:
            return ""
        return today(msgspec.to_builtins(told.used), {one.unit: one.limit for one in told.limits})


class LatestTurns:
    """The newest turns of each repository, as its worker last reported them. They outlive the workers and this process:
    ``restore`` reads those of an earlier supervisor. ``on_change`` is called after each change."""

    def __init__(self, notes: Notes, on_change: Callable[[], None]) -> None:
        self._notes = notes
        self._on_change = on_change
        self._turns: dict[str, tuple[TurnNote, ...]] = {}
        self._unkept = False

    @property
    def by_repo(self) -> Mapping[str, tuple[TurnNote, ...]]:
        """The newest turns of every repository."""
        return self._turns

    def tell(self, repo: str, turns: tuple[TurnNote, ...]) -> None:
        """A worker reports its newest turns."""
        if self._turns.get(repo) != turns:
            self._turns[repo] = turns
            self._unkept = True
            self._on_change()

    def awaits(self, repo: Repo, thread: MessageRef) -> bool:
        """Whether a card in the thread waits for an answer, or a program for input."""
        return any(
            turn.state == "waiting" or (turn.state == "running" and is_session(repo.config, turn.agent))
            for turn in self._turns.get(repo.name, ())
            if turn.thread == thread
        )

    async def restore(self) -> None:
        """Read the turns that an earlier supervisor stored. Raises StoreError, msgspec.DecodeError."""
        kept = await self._notes.note(NOTE)
        self._turns = {
            **msgspec.json.decode(kept or "{}", type=dict[str, tuple[TurnNote, ...]]),
            **self._turns,
        }

    async def keep(self) -> None:
        """Store the turns for the next supervisor. Raises StoreError."""
        if self._unkept:
            self._unkept = False
            await self._notes.keep_note(NOTE, msgspec.json.encode(self._turns).decode())


class Given(Struct, frozen=True):
    """What a parent is built from. ``serves_hosts``: it serves the repositories of hosts, not this machine's, and
    another gateway may have led before. ``journal`` opens the journal's file. ``notes``: those that the next gateway
    needs, None where the journal is enough."""

    home: Home
    env: Mapping[str, str]
    config: Config
    clock: Clock
    descriptors: Descriptors
    stopping: Stopping
    serves_hosts: bool = False
    journal: Callable[[Path, Clock], Journal] = Journal.open
    notes: Notes | None = None


class Signals(Struct, frozen=True):
    """Connects parts made at different times: something that App Home shows has ``changed``; a worker found a
    turn of a channel ``interrupted``."""

    changed: Observers[()] = field(default_factory=Observers[()])
    interrupted: Observers[ConversationRef] = field(default_factory=Observers[ConversationRef])


class Reloads:
    """Has the configuration on disk read again, for code that has changed it."""

    def __init__(self) -> None:
        self._asked: asyncio.Queue[asyncio.Future[None]] = asyncio.Queue()

    async def ask(self) -> None:
        """Returns once it is in force. Raises CodeButlerError."""
        done = asyncio.get_running_loop().create_future()
        self._asked.put_nowait(done)
        await done

    async def serve(self, reload: Callable[[], Awaitable[object]]) -> None:
        """Carry out requests for a reload, until cancelled."""
        while True:
            done = await self._asked.get()
            try:
                await reload()
            except CodeButlerError as error:
                if not done.done():
                    done.set_exception(error)
            else:
                if not done.done():
                    done.set_result(None)


class Parts(Struct, frozen=True, kw_only=True):
    """The composition root closes them. ``restored``: the journal is a backup. ``notes``: what the next gateway needs,
    too."""

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
    spending: Spending
    ledgers: Ledgers
    hosted_runs: HostedRuns | None
    notes: Notes
    told_jobs: ToldJobs
    tracing: Tracing | None = None
    budgets: Budgets = field(default_factory=Budgets)
    reloads: Reloads = field(default_factory=Reloads)
    counts: EventCounts = field(default_factory=EventCounts)
    dashboard: DashboardAddress = field(default_factory=DashboardAddress)

    def traced(self, deliver: Callable[[Entry], None]) -> Callable[[Entry], None]:
        """``deliver``; if there are traces, within the context of the event's trace."""
        if (tracing := self.tracing) is None:
            return deliver
        return lambda entry: deliver(
            structs.replace(entry, trace=tracing.delivered(entry.event, entry.received_at))
        )


async def open_parts(given: Given, stack: AsyncExitStack) -> Parts:
    """``stack`` closes everything in reverse order. Raises ConfigError, StoreError."""
    home, clock, config, signals = given.home, given.clock, given.config, Signals()
    if given.notes is not None:
        await adopt(Registry(home), given.notes)
    table = await asyncio.to_thread(RepoTable.read, home, given.env, of_hosts=given.serves_hosts)
    redactor = Redactor(secrets_of(config) | table.secrets(given.env))
    people = People(clock)
    kept_days = config.logs.retention_days
    logs = stack.enter_context(
        Logs(home.log_file, config.logs.level, redactor.redact, retention_days=kept_days, named=people.named)
    )
    audit = stack.enter_context(
        AuditLog(home.audit, clock, redactor.redact, retention_days=config.logs.retention_days)
    )
    backups = Backups(home.backups / "journal", home.journal)
    opening = partial(given.journal, home.journal, clock)
    journal, restored = open_or_restore(opening, backups, home.journal, clock)
    await stack.enter_async_context(journal)
    warn = partial(logs.record, "", "WRN")
    await stack.enter_async_context(DailyBackups(backups, clock, warn, journal.forget_old))
    direct = DirectThreads(journal)
    await direct.load()
    repos = Repos(table, lambda: direct.channels)
    notes = given.notes or journal
    spending = Spending(lambda: repos.table, clock, logs.record, notes)
    await spending.load()
    hosted_runs = _hosted_runs(home, logs.record, stack) if given.serves_hosts else None
    told_jobs = ToldJobs(notes)
    await told_jobs.load(each.entry.name for each in table.served if each.entry.host)
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
        repos=repos,
        spending=spending,
        ledgers=Ledgers(lambda: repos.table, clock, logs.record, hosted_runs),
        hosted_runs=hosted_runs,
        tracing=await _tracing(config.tracing.endpoint, clock, warn, stack),
        turns=LatestTurns(journal, signals.changed.tell),
        listeners=Listeners(people.called, redactor.redact),
        notes=notes,
        told_jobs=told_jobs,
    )


def _hosted_runs(home: Home, record: Record, stack: AsyncExitStack) -> HostedRuns | None:
    """None if it cannot be used: runs are not shown then, and no message waits for that."""
    try:
        hosted = HostedRuns(home.hosted_runs)
    except StoreError as error:
        record("", "ERR", f"runs on hosts are missing from the ledger: {error}")
        return None
    stack.callback(hosted.close)
    return hosted


async def _tracing(
    endpoint: str, clock: Clock, warn: Callable[[str], None], stack: AsyncExitStack
) -> Tracing | None:
    """None without an endpoint, and without OpenTelemetry, which is logged."""
    if not endpoint:
        return None
    try:
        # It loads OpenTelemetry: not on the event loop.
        collector = await asyncio.to_thread(Collector, endpoint, warn)
    except ConfigError as error:
        warn(str(error))
        return None
    stack.push_async_callback(asyncio.to_thread, collector.close)
    return Tracing(collector.export, clock)


class RepoHosts(Struct, frozen=True, kw_only=True):
    """Where a repository is: ``host``, "" = as registered; ``before``: the hosts it was on. ``to``: the host it is
    being moved to; ``left``: the host whose undelivered events are being taken over. ``force``: do not wait for running
    agents; ``key`` and ``user``: of the request."""

    host: str = ""
    before: tuple[str, ...] = ()
    to: str = ""
    left: str = ""
    force: bool = False
    key: str = ""
    user: PersonRef = NO_PERSON

    @property
    def is_moving(self) -> bool:
        """Whether a move has begun and is not finished."""
        return bool(self.to or self.left)

    def moved(self, old: str) -> RepoHosts:
        """The note once the repository has left ``old``."""
        before = (*(each for each in self.before if each not in (old, self.to)), old)
        return replace(self, host=self.to, before=before, to="", left=old)


def place_of(notes: Notes, repo: str) -> Kept[RepoHosts]:
    """The note of a repository."""
    return Kept(notes, f"host of {repo}", RepoHosts())


async def adopt(registry: Registry, notes: Notes) -> None:
    """Write the moves that other gateways made into this one's registry. Raises StoreError, CodeButlerError."""
    for entry in registry.load():
        if entry.host:
            known = await place_of(notes, entry.name).open()
            if entry.host in known.before:
                registry.update(partial(placed, name=entry.name, host=known.host))


def placed(entries: RepoEntries, name: str, host: str) -> RepoEntries:
    """The entries, with that repository on ``host``. Raises RegistryError."""
    entry = find(entries, name)
    return replaced(entries, replace(entry, path=f"{host}:{entry.path.partition(':')[2]}"))
