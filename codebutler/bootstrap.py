"""The parent's composition root: the one place that knows which concrete parts a supervisor is made of."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Mapping
from contextlib import AsyncExitStack
from functools import partial

from codebutler.apphome.publisher import AppHome
from codebutler.apphome.vain import Vain
from codebutler.clock import SystemClock
from codebutler.commands.asked import Resources
from codebutler.commands.table import ParentCommands
from codebutler.config.paths import Home
from codebutler.config.provenance import Provenance
from codebutler.config.registry import Registry
from codebutler.config.resolve import resolve_global
from codebutler.config.zones import zone_of
from codebutler.control.listeners import Listeners, OverheardRouter
from codebutler.control.operator import Operator
from codebutler.dashboard.dashboard import Dashboard, Sources
from codebutler.dashboard.keys import Keys
from codebutler.inlet import Inlet, connect, door
from codebutler.intake.entry import EventRouter
from codebutler.intake.intake import Repo
from codebutler.observe.audit import flush_always
from codebutler.parent import Parent
from codebutler.parts import Parts, Surroundings, open_parts
from codebutler.process import killpoints
from codebutler.process.allocator import give_back_what_is_large
from codebutler.process.cores import leave_no_core
from codebutler.process.descriptors import raise_limit
from codebutler.process.notify import notifying
from codebutler.process.stopping import Stopping
from codebutler.process.tasks import beside
from codebutler.process.threads import hand_over_soon
from codebutler.repos import RepoTable, with_env_file
from codebutler.routing.audited import AuditedRouter
from codebutler.routing.router import LocalRouter
from codebutler.schedule.calls import HookDesk
from codebutler.schedule.desk import ScheduleDesk
from codebutler.schedule.files import Found, JobFiles
from codebutler.schedule.router import Around, ScheduleRouter
from codebutler.schedule.scheduler import Scheduler
from codebutler.schedule.sources import job_sources
from codebutler.schedule.voice import Voice
from codebutler.schedule.watch import Watchers
from codebutler.service.search_path import login_shell, supervisors_path
from codebutler.slack.api import SlackApi
from codebutler.slack.endpoint import check_app_token, check_bot_token
from codebutler.slack.people import People
from codebutler.slack.reasons import Reasons
from codebutler.supervisor.lock import SupervisorLock
from codebutler.supervisor.orphans import kill_orphans
from codebutler.web.front import Front
from codebutler.web.hooks import Hooks


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
            await _serve(Surroundings(home, env, resolved, SystemClock(), descriptors), stack, stopping)


async def _serve(around: Surroundings, stack: AsyncExitStack, stopping: Stopping) -> None:
    slack = around.resolved.config.slack
    api = await stack.enter_async_context(SlackApi(slack.bot_token, slack.api_base_url, clock=around.clock))
    people = People(api, around.clock)
    listeners = Listeners(people.called)
    table = RepoTable.read(around.home, around.env)
    parts = await open_parts(around, api, table, listeners, people, stack)
    listeners.redact = parts.redactor.redact
    parent = Parent(parts, table)
    local = OverheardRouter(LocalRouter(parts.supervisor), listeners)
    audited = AuditedRouter(local, parts.audit, around.clock, parts.services.nothing_starts)
    voice = Voice(parts.sender, listeners)
    scheduler, desk, own_words = _schedule(around, parts, parent, voice, audited)
    listeners.add(scheduler)
    apphome = _apphome(around, api, parts, parent)
    intake, router = door(around, parts, parent, own_words, apphome)
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
    connection = connect(around, api, parts, parent, Inlet(intake, router, apphome, reasons, vain))

    def status() -> str:
        return f"repositories: {len(parent.table.served)}, Slack {connection.status.state}"

    if ended := await asyncio.to_thread(kill_orphans):
        parts.logs.record("", "WRN", f"ended {ended} processes that an earlier supervisor had left")
    await stack.enter_async_context(beside(audited.run(), name="audit"))
    await stack.enter_async_context(beside(flush_always(parts.audit, around.clock), name="audit-flush"))
    await stack.enter_async_context(beside(people.run(), name="people"))
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


def _apphome(around: Surroundings, api: SlackApi, parts: Parts, parent: Parent) -> AppHome:
    cleaned, url = partial(_cleaned, parts), parts.sender.workspace_url
    apphome = AppHome(api, parts.journal, parent.home_of, around.clock, cleaned, url)
    parts.services.on_overview = apphome.overview
    parts.services.on_used = apphome.changed
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
    commands = ParentCommands(Resources(desk, clock, clock.now()))
    place = Around(lambda channel: _name(parent.repos().get(channel)), clock.now())
    return scheduler, desk, ScheduleRouter(router, commands.answer, voice, parts.journal, parts.tasks, place)


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


def _name(repo: Repo | None) -> str:
    return "" if repo is None else repo.name
