"""The parent's composition root: the one place that knows which concrete parts a supervisor is made of."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

from codebutler.apphome.publisher import AppHome
from codebutler.apphome.vain import Vain
from codebutler.clock import Clock, SystemClock
from codebutler.config.paths import Home
from codebutler.config.provenance import Provenance
from codebutler.config.registry import Registry
from codebutler.config.resolve import Resolved, resolve_global
from codebutler.config.secrets import secrets_of
from codebutler.config.zones import zone_of
from codebutler.control.listeners import Listeners, OverheardRouter
from codebutler.control.operator import Operator
from codebutler.dashboard.dashboard import Dashboard, Sources
from codebutler.dashboard.keys import Keys
from codebutler.direct.acquaintance import Acquaintance
from codebutler.direct.book import Book
from codebutler.direct.door import DirectDoor
from codebutler.direct.router import DirectRouter, Known
from codebutler.disk.backups import Backups, Keeper, open_or_restore
from codebutler.errors import RegistryError
from codebutler.intake.entry import EventRouter
from codebutler.intake.intake import Intake, Repo
from codebutler.intake.journal import Journal
from codebutler.observe.audit import AuditLog
from codebutler.observe.logs import Logs
from codebutler.parent import Parent, Parts
from codebutler.process import killpoints
from codebutler.process.notify import notifying
from codebutler.process.stopping import Stopping
from codebutler.process.tasks import Tasks, beside
from codebutler.process.threads import hand_over_soon
from codebutler.repos import RepoTable, with_env_file
from codebutler.routing.audited import AuditedRouter
from codebutler.routing.holding import HoldingRouter
from codebutler.routing.router import LocalRouter
from codebutler.schedule.calls import HookDesk
from codebutler.schedule.desk import ScheduleDesk
from codebutler.schedule.files import Found, JobFiles
from codebutler.schedule.router import Around, ScheduleRouter
from codebutler.schedule.scheduler import Scheduler
from codebutler.schedule.sources import job_sources
from codebutler.schedule.voice import Voice
from codebutler.schedule.watch import Watchers
from codebutler.services import Chat, ParentServices
from codebutler.slack.api import SlackApi
from codebutler.slack.catchup import CatchUp, Shelf
from codebutler.slack.channels import ChannelMoved, Channels
from codebutler.slack.connection import Care, SlackConnection
from codebutler.slack.download import Downloads
from codebutler.slack.echo import Echo
from codebutler.slack.endpoint import check_app_token, check_bot_token
from codebutler.slack.homecoming import Homecoming
from codebutler.slack.interactive import FormAsked, PressedInVain
from codebutler.slack.payloads import HomeOpened, Notice
from codebutler.slack.reasons import Reasons
from codebutler.slack.sender import Sender
from codebutler.slack.status import StatusBoard
from codebutler.supervisor.forkserver import ForkServer
from codebutler.supervisor.kit import Kit
from codebutler.supervisor.lock import SupervisorLock
from codebutler.supervisor.orphans import kill_orphans
from codebutler.supervisor.supervisor import Supervisor
from codebutler.text.redact import Redactor
from codebutler.web.front import Front
from codebutler.web.hooks import Hooks


@dataclass(frozen=True)
class Surroundings:
    """What a parent is built from."""

    home: Home
    env: Mapping[str, str]
    resolved: Resolved
    clock: Clock


@dataclass(frozen=True)
class Inlet:
    """Where what Slack tells goes."""

    intake: Intake
    router: HoldingRouter
    apphome: AppHome
    reasons: Reasons
    vain: Vain


async def supervise(home: Home, env: Mapping[str, str], stopping: Stopping | None = None) -> None:
    """Serve every registered repository until ``stopping`` asks; SIGTERM and SIGINT do.

    Raises ConfigError, LockHeldError, ChatAuthError and StoreError, each with one line that says what to do.
    """
    home.ensure()
    resolved = resolve_global(home, env)
    check_bot_token(resolved.config.slack.bot_token)
    check_app_token(resolved.config.slack.app_token)
    hand_over_soon()
    killpoints.watch("parent", env)
    stopping = stopping or Stopping()
    env = with_env_file(home, env)
    with SupervisorLock(home.lock), stopping.on_signals():
        async with AsyncExitStack() as stack:
            await _serve(Surroundings(home, env, resolved, SystemClock()), stack, stopping)


async def _serve(around: Surroundings, stack: AsyncExitStack, stopping: Stopping) -> None:
    slack = around.resolved.config.slack
    listeners = Listeners()
    api = await stack.enter_async_context(SlackApi(slack.bot_token, slack.api_base_url))
    table = RepoTable.read(around.home, around.env)
    parts = await _parts(around, api, table, listeners, stack)
    listeners.redact = parts.redactor.redact
    parent = Parent(parts, table)
    local = OverheardRouter(LocalRouter(parts.supervisor), listeners)
    audited = AuditedRouter(local, parts.audit, around.clock, parts.services.nothing_starts)
    voice = Voice(parts.sender, listeners)
    scheduler, desk, own_words = _schedule(around, parts, parent, voice, audited)
    listeners.add(scheduler)
    apphome = _apphome(around, api, parts, parent)
    intake, router = _door(around, parts, parent, own_words, apphome)
    operator = Operator(
        parent=parent,
        workers=parts.supervisor,
        intake=intake,
        sender=parts.sender,
        listeners=listeners,
        jobs=desk,
    )
    vain = Vain(apphome, parts.sender, parts.tasks)
    reasons = Reasons(api, intake, parts.services.notice, parts.tasks, vain.pressed)
    connection = _connection(around, api, parts, parent, Inlet(intake, router, apphome, reasons, vain))

    def status() -> str:
        return f"repositories: {len(parent.table.served)}, Slack {connection.status.state}"

    if ended := await asyncio.to_thread(kill_orphans):
        parts.logs.record("", "WRN", f"ended {ended} processes that an earlier supervisor had left")
    await stack.enter_async_context(beside(audited.run(), name="audit"))
    calls = HookDesk(parts.journal, voice, intake)
    front = parent.front = _front(around, parts, parent, apphome, desk, Hooks(calls, around.clock))
    watchers = Watchers(parent.path_of, scheduler.changed)
    stack.push_async_callback(watchers.close)
    outside = partial(_use, calls, front, watchers)
    await stack.enter_async_context(beside(apphome.run(), name="app-home"))
    await stack.enter_async_context(beside(front.run(), name="front"))
    await stack.enter_async_context(beside(scheduler.run(intake, outside), name="schedule"))
    async with notifying(around.env, around.clock, stopping, status):
        await parent.serve(intake, connection, operator, stopping)


def _door(
    around: Surroundings, parts: Parts, parent: Parent, own_words: EventRouter, apphome: AppHome
) -> tuple[Intake, HoldingRouter]:
    """The door for events, and the router behind it."""
    known = Known(parts.book, parent.repos, apphome.cards, partial(_down, parts.supervisor), parts.services)
    direct = DirectRouter(own_words, known, parts.sender, parts.journal, parts.tasks, around.clock)
    router = HoldingRouter(direct)
    intake = Intake(
        repos=parent.repos,
        journal=parts.journal,
        router=router,
        refusals=parts.services,
        clock=around.clock,
    )
    intake.awaits = apphome.awaits
    intake.direct = DirectDoor(parts.book, parent.repos, intake)
    return intake, router


def _connection(
    around: Surroundings, api: SlackApi, parts: Parts, parent: Parent, inlet: Inlet
) -> SlackConnection:
    clock, rng = around.clock, random.Random()  # noqa: S311 - back-off
    shelf = Shelf(intake=inlet.intake, journal=parts.journal, router=inlet.router)
    catch_up = CatchUp(parts.sender, shelf, clock, rng, parent.listened)
    echo = Echo(parts.sender, parts.journal, catch_up.channels, clock)
    homecoming = Homecoming(
        parts.sender,
        parts.journal,
        clock,
        catch_up.channels,
        lambda: catch_up.is_busy or parts.supervisor.is_starting,
    )
    parts.services.on_interrupted = homecoming.interrupted
    care = Care(catch_up, echo, homecoming, partial(_heed, inlet, parts.channels))
    app_token = around.resolved.config.slack.app_token
    return SlackConnection(api, app_token, inlet.intake, care, clock, rng)


def _apphome(around: Surroundings, api: SlackApi, parts: Parts, parent: Parent) -> AppHome:
    cleaned, url = partial(_cleaned, parts), parts.sender.workspace_url
    apphome = AppHome(api, parts.journal, parent.home_of, around.clock, cleaned, url)
    parts.services.on_overview = apphome.overview
    parts.channels.on_change = apphome.changed
    return apphome


def _cleaned(parts: Parts, text: str) -> str:
    return parts.book.relinked(parts.redactor.redact(text))


def _schedule(
    around: Surroundings, parts: Parts, parent: Parent, voice: Voice, router: EventRouter
) -> tuple[Scheduler, ScheduleDesk, ScheduleRouter]:
    clock = around.clock
    provenance = Provenance(Registry(around.home))
    files = JobFiles(lambda: job_sources(around.home, parent.table, around.env, provenance))
    scheduler = Scheduler(parts.journal, voice, files.look, clock, parts.tasks)
    desk = ScheduleDesk(scheduler, clock, zone_of(""))
    place = Around(lambda channel: _name(parent.repos().get(channel)), clock.now())
    return scheduler, desk, ScheduleRouter(router, desk, voice, parts.journal, parts.tasks, place)


def _front(
    around: Surroundings, parts: Parts, parent: Parent, apphome: AppHome, desk: ScheduleDesk, hooks: Hooks
) -> Front:
    """The port, and what is looked at there."""
    sources = Sources(
        known=parent,
        turns=lambda: apphome.turns,
        jobs=desk.rows,
        ring=parts.logs.ring,
        workspace_url=parts.sender.workspace_url,
        clean=partial(_cleaned, parts),
    )
    keys = Keys(around.home.open(), around.clock, secrets.token_urlsafe, parts.redactor.learn)
    dashboard = Dashboard(sources, keys, around.clock)
    return Front(around.resolved.config.dashboard, hooks, dashboard)


def _use(calls: HookDesk, front: Front, watchers: Watchers, found: Found) -> None:
    calls.hooks = found.hooks
    front.use(found.hooks)
    watchers.use(found.jobs.values())


def _heed(inlet: Inlet, channels: Channels, notice: Notice) -> None:
    match notice:
        case HomeOpened(user=user):
            inlet.apphome.opened(user)
        case PressedInVain():
            inlet.vain.pressed(notice)
        case FormAsked():
            inlet.reasons.asked(notice)
        case ChannelMoved():
            channels.moved(notice)


def _down(supervisor: Supervisor, repo: str) -> str:
    try:
        return supervisor.down(repo)
    except RegistryError:
        return ""  # it is being removed just now


def _name(repo: Repo | None) -> str:
    return "" if repo is None else repo.name


async def _parts(
    around: Surroundings, api: SlackApi, table: RepoTable, listeners: Listeners, stack: AsyncExitStack
) -> Parts:
    """``stack`` closes everything again, in reverse order."""
    home, clock, config = around.home, around.clock, around.resolved.config
    # A demo's home is none that our own environment names.
    spawner = ForkServer(given={"CODEBUTLER_HOME": str(home.root)})
    spawner.start()
    redactor = Redactor(secrets_of(config) | table.secrets(around.env))
    redact = redactor.redact
    logs = stack.enter_context(
        Logs(home.log_file, config.logs.level, redact, retention_days=config.logs.retention_days)
    )
    audit = stack.enter_context(AuditLog(home.audit, clock, redact))
    backups = Backups(home.backups / "journal", home.journal)
    journal, restored = open_or_restore(
        partial(Journal.open, home.journal, clock), backups, home.journal, clock
    )
    await stack.enter_async_context(journal)
    await stack.enter_async_context(Keeper(backups, clock, partial(logs.record, "", "WRN")))
    book = Book(journal)
    await book.load()
    sender = await stack.enter_async_context(Sender(api, clock, redact, detour=book, notes=journal))
    statuses = await stack.enter_async_context(StatusBoard(api, clock, redact))
    tasks = Tasks(lambda name, error: logs.record("", "ERR", f"{name} failed: {error!r}"))
    channels = Channels(clock)
    services = ParentServices(
        chat=Chat(sender, Downloads(api, clock), channels, statuses),
        journal=journal,
        audit=audit,
        logs=logs,
        listeners=listeners,
        tasks=tasks,
    )
    if restored is not None:
        await journal.open_gaps(table.by_channel(), since=restored.taken_at)
        services.restored(restored, table.by_channel())
    supervisor = await stack.enter_async_context(Supervisor(Kit(spawner, services, clock, random.random)))
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
        acquaintance=Acquaintance(api, book, journal, clock),
        services=services,
        channels=channels,
        supervisor=supervisor,
        tasks=tasks,
    )
