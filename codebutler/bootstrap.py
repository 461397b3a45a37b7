"""The parent's composition root: the one place that knows which concrete parts a supervisor is made of.

Read it from ``_serve`` down: what everybody works with, the way out to Slack, the way in from it, the pages that show
how everything stands. Each part is whole once it is made; who is to hear of something that is made later hears it from
``Signals``.
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

from codebutler.apphome.publisher import AppHome, HomeSources
from codebutler.apphome.vain import Vain
from codebutler.chat.delivery.channels import Channels
from codebutler.chat.delivery.handed import begin_anew
from codebutler.chat.delivery.sender import Sender
from codebutler.chat.port import ChannelMoved
from codebutler.chat.slack.catchup import CatchUp, Shelf
from codebutler.chat.slack.connection import Care, SlackConnection
from codebutler.chat.slack.endpoint import check_app_token, check_bot_token
from codebutler.chat.slack.interactive import FormAsked, PressedInVain
from codebutler.chat.slack.payloads import HomeOpened, Notice
from codebutler.chat.slack.presence import Heartbeat
from codebutler.chat.slack.reasons import Reasons
from codebutler.chat.status import StatusBoard
from codebutler.clock import SystemClock
from codebutler.commands.asked import Resources
from codebutler.commands.step import ParentCommands
from codebutler.config.paths import Home
from codebutler.config.provenance import Provenance
from codebutler.config.registry import Registry
from codebutler.config.resolve import resolve_global
from codebutler.config.zones import zone_of
from codebutler.control.chat import Mouth
from codebutler.dashboard.dashboard import Dashboard, Sources
from codebutler.dashboard.keys import Keys
from codebutler.direct.acquaintance import Acquaintance
from codebutler.direct.door import DirectDoor
from codebutler.direct.step import DirectMessages, Known
from codebutler.dispatch.audit import AuditFirst
from codebutler.dispatch.dispatcher import Dispatcher
from codebutler.dispatch.held import HeldBack
from codebutler.intake.absence_notice import AbsenceNotice
from codebutler.intake.intake import Intake, Threads
from codebutler.observe.audit import maintain
from codebutler.parent.cards import Cards
from codebutler.parent.configuration import Configuration
from codebutler.parent.life import Life
from codebutler.parent.notes import ConfigNotes
from codebutler.parent.operator import Operator, Parent
from codebutler.parent.parts import Given, Parts, open_parts
from codebutler.parent.services import ParentServices
from codebutler.parent.status import Status
from codebutler.process import killpoints
from codebutler.process.allocator import give_back_what_is_large
from codebutler.process.cores import leave_no_core
from codebutler.process.descriptors import raise_limit
from codebutler.process.notify import notifying
from codebutler.process.stopping import Stopping
from codebutler.process.tasks import beside
from codebutler.process.threads import hand_over_soon
from codebutler.repos import with_env_file
from codebutler.schedule.calls import HookDesk
from codebutler.schedule.desk import ScheduleDesk
from codebutler.schedule.files import Found, JobFiles
from codebutler.schedule.scheduler import Scheduler
from codebutler.schedule.sources import job_sources
from codebutler.schedule.voice import Voice
from codebutler.schedule.watch import Watchers
from codebutler.service.search_path import login_shell, supervisors_path
from codebutler.supervisor.forkserver import ForkServer, kill_orphans
from codebutler.supervisor.lock import SupervisorLock
from codebutler.supervisor.port import Places, Shared
from codebutler.supervisor.supervisor import Supervisor
from codebutler.web.front import Front
from codebutler.web.hooks import Hooks


@dataclass(frozen=True, kw_only=True)
class Out:
    """The way out: from the workers to Slack."""

    sender: Sender
    services: ParentServices
    supervisor: Supervisor
    cards: Cards


@dataclass(frozen=True, kw_only=True)
class In:
    """The way in: from Slack, hooks and the clock to the workers."""

    intake: Intake
    held: HeldBack
    scheduler: Scheduler
    jobs: ScheduleDesk
    hooks: HookDesk
    audit: AuditFirst


async def supervise(home: Home, env: Mapping[str, str], stopping: Stopping | None = None) -> None:
    """Serve every registered repository until ``stopping`` asks; SIGTERM and SIGINT do.

    Raises ConfigError, LockHeldError, ChatAuthError and StoreError, each with one line that says what to do.
    """
    home.ensure()
    resolved = resolve_global(home, env)
    check_bot_token(resolved.config.slack.bot_token)
    check_app_token(resolved.config.slack.app_token)
    hand_over_soon()
    give_back_what_is_large()
    leave_no_core()
    descriptors = raise_limit()
    killpoints.watch("parent", env)
    stopping = stopping or Stopping()
    env = with_env_file(home, env)
    # At a terminal the PATH is a shell's already.
    shell = None if os.isatty(0) else login_shell()
    with SupervisorLock(home.lock), stopping.on_signals():
        env["PATH"] = await supervisors_path(home, env, shell)
        async with AsyncExitStack() as stack:
            await _serve(Given(home, env, resolved.config, SystemClock(), descriptors), stack, stopping)


async def _serve(given: Given, stack: AsyncExitStack, stopping: Stopping) -> None:
    """``stack`` closes everything again, in reverse order."""
    # A demo's home is none that our own environment names; and programs are looked for in more than our own PATH.
    env = {"CODEBUTLER_HOME": str(given.home.root), "PATH": given.env.get("PATH", os.defpath)}
    spawner = ForkServer(given=env, files=given.descriptors.given)
    spawner.start()
    parts = await open_parts(given, stack)
    out = await _way_out(parts, spawner, stack)
    way_in = _way_in(parts, out)
    connection = _connect(parts, out, way_in)
    status = Status(parts, out.supervisor, out.sender, out.services.budgets, connection)
    apphome = _apphome(parts, out, way_in, status)
    front = _front(parts, out, way_in, status)
    watchers = Watchers(parts.repos.path_of, way_in.scheduler.changed)
    stack.push_async_callback(watchers.close)
    acquaintance = Acquaintance(parts.api, parts.book, parts.journal, parts.api.clock)
    notes = ConfigNotes(parts.journal, parts.logs.record, out.services.notice, parts.tasks)
    configuration = Configuration(parts, out.supervisor, connection, acquaintance, notes)
    parent = Parent(parts.repos, status, configuration, front)
    operator = Operator(
        parent=parent,
        workers=out.supervisor,
        mouth=Mouth(way_in.intake, out.sender, out.supervisor, parts.clock),
        listeners=parts.listeners,
        jobs=way_in.jobs,
    )
    life = Life(parts, configuration, way_in.intake, connection, out.supervisor, out.sender)
    if ended := await asyncio.to_thread(kill_orphans):
        parts.logs.record("", "WRN", f"ended {ended} processes that an earlier supervisor had left")
    on_files = partial(_use, way_in.hooks, front, watchers)
    for name, work in (
        ("audit", way_in.audit.run()),
        ("audit-log", maintain(parts.audit, parts.clock)),
        ("people", parts.people.run()),
        ("app-home", apphome.run()),
        ("front", front.run()),
        ("schedule", way_in.scheduler.run(way_in.intake, on_files)),
    ):
        await stack.enter_async_context(beside(work, name=name))
    async with notifying(given.env, parts.clock, stopping, lambda: status.line):
        await life.serve(operator, stopping)


async def _way_out(parts: Parts, spawner: ForkServer, stack: AsyncExitStack) -> Out:
    api, clock, redact, journal = parts.api, parts.clock, parts.redactor.redact, parts.journal
    if parts.restored is not None:
        await begin_anew(journal)
    sender = await stack.enter_async_context(Sender(api, clock, redact, detour=parts.book, notes=journal))
    sender.channels.changed.add(parts.signals.changed.tell)
    statuses = await stack.enter_async_context(StatusBoard(api.capabilities.status_line, clock, redact))
    services = ParentServices(parts, sender, statuses)
    if parts.restored is not None:
        await journal.open_gaps(parts.repos.by_channel(), parts.restored.taken_at)
        services.restored(parts.restored, parts.repos.by_channel())
    places = Places(parts.given.descriptors.workers)
    shared = Shared(spawner, services, clock, random.random, places=places)
    supervisor = await stack.enter_async_context(Supervisor(shared))
    cards = Cards(parts, supervisor, sender.channels, services.budgets)
    return Out(sender=sender, services=services, supervisor=supervisor, cards=cards)


def _way_in(parts: Parts, out: Out) -> In:
    given, repos, journal, clock = parts.given, parts.repos, parts.journal, parts.clock
    voice = Voice(out.sender, parts.listeners)
    provenance = Provenance(Registry(given.home))
    files = JobFiles(lambda: job_sources(given.home, repos.table, given.env, provenance))
    scheduler = Scheduler(journal, voice, files.look, clock, parts.tasks)
    parts.listeners.add(scheduler)
    jobs = ScheduleDesk(scheduler, clock, zone_of(""))
    held = HeldBack()
    audit = AuditFirst(parts.audit.keep, clock, out.services.nothing_starts)
    resources = Resources(jobs, clock, since=clock.now())
    commands = ParentCommands(resources, voice, journal, parts.tasks, repos.name_of)
    known = Known(parts.book, repos.by_channel, out.cards.of, out.supervisor.down, out.services)
    direct = DirectMessages(known, out.sender, journal, parts.tasks, clock)
    dispatcher = Dispatcher(
        held_back=held.take,
        direct_message=direct.take,
        parent_command=commands.take,
        audit=audit.take,
        overheard=parts.listeners.overhear,
        router=out.supervisor,
    )
    intake = Intake(
        repos=repos.by_channel,
        journal=journal,
        dispatch=dispatcher.dispatch,
        refusals=out.services,
        clock=clock,
        threads=Threads(parts.turns.awaits, DirectDoor(parts.book, repos.by_channel)),
    )
    hooks = HookDesk(journal, voice, intake, clock)
    return In(intake=intake, held=held, scheduler=scheduler, jobs=jobs, hooks=hooks, audit=audit)


def _connect(parts: Parts, out: Out, way_in: In) -> SlackConnection:
    """Our presence in the workspace, with what sees to it that no event is missed."""
    clock, rng = parts.clock, random.Random()  # noqa: S311 - back-off
    shelf = Shelf(intake=way_in.intake, journal=parts.journal, held=way_in.held)
    catch_up = CatchUp(out.sender.background, shelf, parts.api.clock, rng, parts.repos.listened)
    heartbeat = Heartbeat(out.sender, parts.journal, catch_up.channels, clock)
    absence_notice = AbsenceNotice(
        out.sender,
        parts.journal,
        clock,
        catch_up.channels,
        lambda: catch_up.is_busy or out.supervisor.is_starting,
    )
    parts.signals.interrupted.add(absence_notice.interrupted)
    care = Care(catch_up, heartbeat, absence_notice, parts.signals.notices.tell)
    app_token = parts.given.config.slack.app_token
    return SlackConnection(parts.api, app_token, way_in.intake, care, clock, rng)


def _apphome(parts: Parts, out: Out, way_in: In, status: Status) -> AppHome:
    """App Home, and the others who hear Slack's notices."""
    sources = HomeSources(parts.turns, out.cards.of, lambda: status.trouble)
    apphome = AppHome(
        parts.api.capabilities.home,
        parts.journal,
        sources,
        parts.clock,
        parts.cleaned,
        out.sender.workspace_url,
    )
    parts.signals.changed.add(apphome.changed)
    vain = Vain(apphome.vain, out.sender, parts.tasks)
    reasons = Reasons(
        parts.api.capabilities.forms, way_in.intake, out.services.notice, parts.tasks, vain.pressed
    )
    parts.signals.notices.add(partial(_heed, apphome, vain, reasons, out.sender.channels))
    return apphome


def _front(parts: Parts, out: Out, way_in: In, status: Status) -> Front:
    """The port, and what is looked at there."""
    sources = Sources(
        known=status,
        turns=lambda: parts.turns.by_repo,
        jobs=way_in.jobs.rows,
        ring=parts.logs.ring,
        workspace_url=out.sender.workspace_url,
        clean=parts.cleaned,
    )
    keys = Keys(parts.given.home.open(), parts.clock, secrets.token_urlsafe, parts.redactor.learn)
    hooks = Hooks(way_in.hooks, parts.clock)
    dashboard = Dashboard(sources, keys, parts.clock)
    return Front(parts.given.config.dashboard, hooks, dashboard)


def _heed(apphome: AppHome, vain: Vain, reasons: Reasons, channels: Channels, notice: Notice) -> None:
    match notice:
        case HomeOpened(user=user):
            apphome.opened(user)
        case PressedInVain():
            vain.pressed(notice)
        case FormAsked():
            reasons.asked(notice)
        case ChannelMoved():
            channels.moved(notice)


def _use(hooks: HookDesk, front: Front, watchers: Watchers, found: Found) -> None:
    hooks.use(found.hooks)
    front.use(found.hooks)
    watchers.use(found.jobs.values())
