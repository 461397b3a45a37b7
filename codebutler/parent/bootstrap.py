"""The parent's composition root: the one place that knows which concrete parts a supervisor is made of.

Read it from ``_serve`` down: what everybody works with, the way out to the chats, the way in from them, the pages
that show how everything stands. Each part is whole once it is made; who is to hear of something that is made later
hears it from ``Signals``.
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial

from codebutler.chat.chats import Chats, ServedChat, StatusBoard
from codebutler.chat.delivery.handover import begin_anew
from codebutler.chat.delivery.outgoing import Editor
from codebutler.chat.delivery.sender import Sender
from codebutler.chat.port import ChatPort
from codebutler.config.channels import ChatName, served_chats
from codebutler.config.paths import Home
from codebutler.config.registry import Provenance, Registry
from codebutler.config.resolve import resolve_global
from codebutler.config.search_path import login_shell, supervisors_path
from codebutler.control.wire import control_server
from codebutler.domain.clock import SystemClock, zone_of
from codebutler.intake.direct import DirectReader
from codebutler.intake.dispatcher import AuditFirst, Dispatcher, HeldBack
from codebutler.intake.intake import Intake, Threads
from codebutler.intake.repos import with_env_file
from codebutler.observe.audit import maintain
from codebutler.parent.apphome import Cards
from codebutler.parent.commands.asked import ParentCommands, Resources
from codebutler.parent.configuration import GRACE_S, Configuration
from codebutler.parent.direct import DirectMessages, DirectSources
from codebutler.parent.integration import ChatConnections, Directories, Inbound, Outbound, own_notes
from codebutler.parent.operator import Operator, ParentStatus
from codebutler.parent.parts import Given, Parts, open_parts
from codebutler.parent.services import ParentServices
from codebutler.parent.slack import SlackIntegration
from codebutler.parent.telegram import TelegramIntegration
from codebutler.platform import killpoints
from codebutler.platform.descriptors import raise_limit
from codebutler.platform.processes import disable_core_dumps, return_large_blocks, shorten_switch_interval
from codebutler.platform.signals import Stopping, notifying
from codebutler.platform.tasks import beside
from codebutler.schedule.commands import ScheduleCommands
from codebutler.schedule.files import FoundJobs, JobFiles, job_sources
from codebutler.schedule.hooks import HookRunner
from codebutler.schedule.scheduler import IdempotentPublisher, Scheduler
from codebutler.schedule.watch import Watchers
from codebutler.supervisor.forkserver import ForkServer, kill_orphans
from codebutler.supervisor.port import Places, Shared
from codebutler.supervisor.supervisor import Supervisor, SupervisorLock
from codebutler.web.dashboard.dashboard import Dashboard, Sources
from codebutler.web.dashboard.keys import Keys
from codebutler.web.front import Hooks, WebServer

Integration = SlackIntegration | TelegramIntegration
INTEGRATIONS: Mapping[ChatName, type[Integration]] = {
    "Slack": SlackIntegration,
    "Telegram": TelegramIntegration,
}

FLUSH_S = 5.0


async def supervise(home: Home, env: Mapping[str, str], stopping: Stopping | None = None) -> None:
    """Serve every registered repository until ``stopping`` asks; SIGTERM and SIGINT do.

    Raises ConfigError, LockHeldError, ChatAuthError and StoreError, each with one line that says what to do.
    """
    home.ensure()
    resolved = resolve_global(home, env)
    used = [INTEGRATIONS[name] for name in served_chats(resolved.config)]
    for each in used:
        each.check(resolved.config)
    shorten_switch_interval()
    return_large_blocks()
    disable_core_dumps()
    descriptors = raise_limit()
    killpoints.watch("parent", env)
    stopping = stopping or Stopping()
    env = with_env_file(home, env)
    # At a terminal the PATH is a shell's already.
    shell = None if os.isatty(0) else login_shell()
    with SupervisorLock(home.lock), stopping.on_signals():
        env["PATH"] = await supervisors_path(home, env, shell)
        async with AsyncExitStack() as stack:
            given = Given(home, env, resolved.config, SystemClock(), descriptors)
            await _serve(given, used, stack, stopping)


async def _serve(
    given: Given, used: Sequence[type[Integration]], stack: AsyncExitStack, stopping: Stopping
) -> None:
    """``stack`` closes everything again, in reverse order."""
    # A demo's home is none that our own environment names; and programs are looked for in more than our own PATH.
    env = {"CODEBUTLER_HOME": str(given.home.root), "PATH": given.env.get("PATH", os.defpath)}
    spawner = ForkServer(given=env, files=given.descriptors.given)
    spawner.start()
    parts = await open_parts(given, stack)
    integrations = [each(parts) for each in used]
    outbound = await _outbound(parts, integrations, spawner, stack)
    inbound = _inbound(parts, outbound)
    chats = [each.connect(parts, outbound, inbound) for each in integrations]
    connections = ChatConnections(
        chats, parts.repos.people, parts.people.meet, parts.logs.record, parts.tasks
    )
    status = ParentStatus(parts, outbound, connections)
    front = _front(parts, outbound, inbound, status)
    watchers = Watchers(parts.repos.path_of, inbound.scheduler.changed)
    stack.push_async_callback(watchers.close)
    configuration = Configuration(parts, outbound, connections)
    operator = Operator(parts, outbound, inbound, status=status, configuration=configuration, front=front)
    serving = Serving(parts, outbound, inbound.intake, configuration, connections)
    if ended := await asyncio.to_thread(kill_orphans):
        parts.logs.record("", "WRN", f"ended {ended} processes that an earlier supervisor had left")
    on_files = partial(_use, inbound.hooks, front, watchers)
    for name, work in (
        ("audit", inbound.audit.run()),
        ("audit-log", maintain(parts.audit, parts.clock)),
        ("people", parts.people.run(Directories({each.name: each.person for each in integrations}))),
        *((each.name, each.work()) for each in chats),
        ("front", front.run()),
        ("schedule", inbound.scheduler.run(inbound.intake.accept, on_files)),
    ):
        await stack.enter_async_context(beside(work, name=name))
    async with notifying(given.env, parts.clock, stopping, lambda: status.line):
        await serving.run(operator, stopping)


async def _outbound(
    parts: Parts, integrations: Sequence[Integration], spawner: ForkServer, stack: AsyncExitStack
) -> Outbound:
    chats = Chats([await _served(each, parts, stack) for each in integrations])
    clock, journal = parts.clock, parts.journal
    services = ParentServices(parts, chats)
    if parts.restored is not None:
        fetched = filter(chats.has_history, parts.repos.by_channel())
        await journal.open_gaps([*fetched], parts.restored.taken_at)
        services.restored(parts.restored, parts.repos.by_channel())
    places = Places(parts.given.descriptors.workers)
    shared = Shared(spawner.spawn, services, clock, random.random, places=places)
    supervisor = await stack.enter_async_context(Supervisor(shared))
    cards = Cards(parts, supervisor, chats)
    return Outbound(chats=chats, services=services, supervisor=supervisor, cards=cards)


async def _served(integration: Integration, parts: Parts, stack: AsyncExitStack) -> ServedChat:
    """A chat with its queue."""
    chat: ChatPort = integration.chat
    await stack.enter_async_context(integration.chat)
    clock, redact = parts.clock, parts.redactor.redact
    notes = own_notes(parts, integration.name)
    if parts.restored is not None:
        await begin_anew(notes)
    editor = Editor(redact, parts.people.called, parts.direct.relinked)
    sender = await stack.enter_async_context(Sender(chat, clock, editor, detour=parts.direct, notes=notes))
    sender.channels.changed.add(parts.signals.changed.tell)
    statuses = await stack.enter_async_context(StatusBoard(chat.capabilities.status_line, clock, redact))
    return ServedChat(name=integration.name, chat=chat, sender=sender, statuses=statuses)


def _inbound(parts: Parts, outbound: Outbound) -> Inbound:
    given, repos, journal, clock = parts.given, parts.repos, parts.journal, parts.clock
    publish = IdempotentPublisher(outbound.chats, parts.listeners).publish
    provenance = Provenance(Registry(given.home))
    files = JobFiles(lambda: job_sources(given.home, repos.table, given.env, provenance))
    scheduler = Scheduler(journal, publish, files.look, clock, parts.tasks)
    parts.listeners.on_ended.append(scheduler.ended)
    jobs = ScheduleCommands(scheduler, clock, zone_of(""))
    held = HeldBack()
    audit = AuditFirst(parts.audit.keep, clock, outbound.services.nothing_starts)
    resources = Resources(jobs, clock, since=clock.now())
    commands = ParentCommands(resources, publish, parts.listeners, journal, parts.tasks, repos.name_of)
    sources = DirectSources(
        parts.direct, repos.by_channel, outbound.cards.of, outbound.supervisor.down, outbound.services
    )
    direct = DirectMessages(sources, outbound.chats, journal, parts.tasks, clock)
    dispatcher = Dispatcher(
        held_back=held.take,
        direct_message=direct.take,
        parent_command=commands.take,
        audit=audit.take,
        overheard=parts.listeners.overhear,
        deliver=outbound.supervisor.deliver,
    )
    intake = Intake(
        repos=repos.by_channel,
        journal=journal,
        dispatch=dispatcher.dispatch,
        refusals=outbound.services,
        clock=clock,
        threads=Threads(parts.turns.awaits, DirectReader(parts.direct, repos.by_channel)),
    )
    hooks = HookRunner(journal, publish, intake.accept, clock)
    return Inbound(intake=intake, held=held, scheduler=scheduler, jobs=jobs, hooks=hooks, audit=audit)


def _front(parts: Parts, outbound: Outbound, inbound: Inbound, status: ParentStatus) -> WebServer:
    """The port, and what is looked at there."""
    sources = Sources(
        status=status.status,
        served_as=status.served_as,
        turns=lambda: parts.turns.by_repo,
        jobs=inbound.jobs.rows,
        ring=parts.logs.ring,
        workspace_url=outbound.chats.workspace_url,
        clean=parts.cleaned,
    )
    keys = Keys(parts.given.home.open(), parts.clock, secrets.token_urlsafe, parts.redactor.learn)
    hooks = Hooks(inbound.hooks, parts.clock)
    dashboard = Dashboard(sources, keys, parts.clock)
    return WebServer(parts.given.config.dashboard, hooks, dashboard)


def _use(hooks: HookRunner, front: WebServer, watchers: Watchers, found: FoundJobs) -> None:
    hooks.use(found.hooks)
    front.use(found.hooks)
    watchers.use(found.jobs.values())


class Serving:
    """``run`` is all of it."""

    def __init__(
        self,
        parts: Parts,
        outbound: Outbound,
        intake: Intake,
        configuration: Configuration,
        connections: ChatConnections,
    ) -> None:
        self._journal = parts.journal
        self._tasks = parts.tasks
        self._record = parts.logs.record
        self._socket = parts.given.home.socket
        self._configuration = configuration
        self._intake = intake
        self._connections = connections
        self._supervisor = outbound.supervisor
        self._chats = outbound.chats

    async def run(self, operator: Operator, stopping: Stopping) -> None:
        """Until ``stopping`` asks. Raises ChatAuthError if every chat refuses its tokens at the start."""
        await self._configuration.begin()
        await self._intake.resume()
        self._record("", "INF", f"serving {self._configuration.count} (pid {os.getpid()})")
        control = control_server(self._socket, operator.answer, operator.chat)
        async with beside(self._watch_journal(), name="journal"), control:
            await self._until_asked(stopping)
            await self._wind_down(stopping)
        self._record("", "INF", "stopped")

    async def _watch_journal(self) -> None:
        """What could not be accepted while the journal was away is fetched from history."""
        while True:
            self._record("", "ERR", await self._journal.news())
            if not self._journal.trouble:
                self._connections.look_again()

    async def _tell_ready(self, stopping: Stopping) -> None:
        await self._connections.any_connected.wait()
        await self._supervisor.wait_started()
        stopping.ready.set()

    async def _until_asked(self, stopping: Stopping) -> None:
        connections = asyncio.create_task(self._connections.run(), name="chats")
        asked = asyncio.create_task(stopping.asked.wait(), name="stop")
        ready = asyncio.create_task(self._tell_ready(stopping), name="readiness")
        try:
            await asyncio.wait({connections, asked}, return_when=asyncio.FIRST_COMPLETED)
            if connections.done():
                connections.result()
            await asked
        finally:
            asked.cancel()
            ready.cancel()
            if not connections.done():
                await self._connections.stop()
                connections.cancel()
            await asyncio.gather(connections, asked, ready, return_exceptions=True)

    async def _wind_down(self, stopping: Stopping) -> None:
        """Drain within the grace; at the second signal, now. What is not done is on disk."""
        self._record("", "INF", f"stopping: {GRACE_S:g} s for what runs, a second signal ends it now")
        drained = asyncio.create_task(self._drain(), name="drain")
        insisted = asyncio.create_task(stopping.insisted.wait(), name="insist")
        await asyncio.wait({drained, insisted}, return_when=asyncio.FIRST_COMPLETED)
        if not drained.done():
            await self._supervisor.shutdown(0)
            drained.cancel()
        insisted.cancel()
        await asyncio.gather(drained, insisted, return_exceptions=True)

    async def _drain(self) -> None:
        await self._supervisor.shutdown(GRACE_S)
        await self._tasks.close(FLUSH_S)
        try:
            async with asyncio.timeout(FLUSH_S):
                await self._chats.drain()
        except TimeoutError:
            self._record("", "WRN", f"{self._chats.pending} messages are left for the next start")
