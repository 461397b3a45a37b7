"""The parent's composition root: the one place that knows a supervisor's concrete parts.

Read it from ``_serve`` down: the common base, the way out to the chats, the way in from them, the pages that
show the state. Each part is complete once it is made; parts made earlier hear from later ones through
``Signals``.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from codebutler.chat.chats import Chats, ServedChat, StatusBoard
from codebutler.chat.delivery.handover import begin_anew
from codebutler.chat.delivery.outgoing import Editor
from codebutler.chat.delivery.sender import Sender
from codebutler.chat.platform import Platform, platform
from codebutler.chat.terminal import Speaker
from codebutler.config.channels import served_chats
from codebutler.config.paths import Home
from codebutler.config.registry import JobsProvenance, Registry
from codebutler.config.resolve import resolve_global
from codebutler.config.schema import Config
from codebutler.domain.clock import SystemClock, zone_of
from codebutler.intake.direct import DirectReader
from codebutler.intake.dispatcher import Dispatcher, Steps
from codebutler.intake.intake import Intake, Threads
from codebutler.intake.repos import with_env_file
from codebutler.observe.audit import maintain
from codebutler.parent.apphome import Cards
from codebutler.parent.commands.answers import WeeklyCosts, weekly_jobs
from codebutler.parent.commands.asked import ParentCommands, Resources
from codebutler.parent.configuration import Configuration
from codebutler.parent.direct import DirectMessages, DirectSources
from codebutler.parent.integration import ChatConnections, Inbound, OpenedChat, Outbound
from codebutler.parent.local import Beginning, LocalWorkers, Serving, WorkerSource
from codebutler.parent.moving import MoveMeans, RepoMoves
from codebutler.parent.new_repos import Means, NewRepos
from codebutler.parent.operator import Operator, ParentStatus
from codebutler.parent.parts import Given, Parts, open_parts
from codebutler.parent.services import ParentServices
from codebutler.platform import kill_points
from codebutler.platform.lookup import login_shell, save_search_path
from codebutler.platform.processes import (
    disable_core_dumps,
    raise_limit,
    return_large_blocks,
    shorten_switch_interval,
)
from codebutler.platform.signals import Stopping, notifying
from codebutler.platform.tasks import beside
from codebutler.schedule.commands import ScheduleCommands
from codebutler.schedule.files import FoundJobs, JobFiles, job_sources
from codebutler.schedule.hooks import HookRunner
from codebutler.schedule.scheduler import IdempotentPublisher, Scheduler
from codebutler.schedule.watch import Watchers
from codebutler.supervisor.supervisor import SupervisorLock
from codebutler.web.dashboard.actions import DashboardActions, Keys
from codebutler.web.dashboard.changes import ChangeReviews
from codebutler.web.dashboard.conversations import Conversations
from codebutler.web.dashboard.dashboard import Dashboard, Pages, Sources
from codebutler.web.dashboard.ledger import LedgerPage
from codebutler.web.server import Hooks, MetricsPage, WebServer


async def supervise(home: Home, env: Mapping[str, str], stopping: Stopping | None = None) -> bool:
    """Serve every registered repository until ``stopping``, SIGTERM, SIGINT or a request to restart, for which it
    returns True.

    Raises ConfigError, LockHeldError, ChatAuthError and StoreError, each with one line that says what to do.
    """
    home.ensure()
    used = chats_of(config := resolve_global(home, env).config)
    stopping = stopping or Stopping(may_restart=True)
    async with begun(home, env, stopping) as beginning:
        await serve(beginning, config, used, LocalWorkers(beginning))
    return stopping.restarts


def chats_of(config: Config) -> Sequence[Platform]:
    """The chats that are used. Raises ConfigError if one lacks what it needs."""
    used = [platform(name) for name in served_chats(config)]
    for each in used:
        each.check(config)
    return used


@asynccontextmanager
async def begun(home: Home, env: Mapping[str, str], stopping: Stopping) -> AsyncIterator[Beginning]:
    """The process is prepared, holds the home's lock and hears signals. Raises ConfigError, LockHeldError."""
    shorten_switch_interval()
    return_large_blocks()
    disable_core_dumps()
    descriptors = raise_limit()
    kill_points.watch("parent", env)
    env = with_env_file(home, env)
    # At a terminal the PATH already comes from a shell.
    shell = None if os.isatty(0) else login_shell()
    with SupervisorLock(home.lock), stopping.on_signals():
        env["PATH"] = await save_search_path(home.root, env, shell)
        yield Beginning(home, env, SystemClock(), descriptors, stopping)


async def serve(beginning: Beginning, config: Config, used: Sequence[Platform], source: WorkerSource) -> None:
    """Serve the registered repositories until ``stopping``. Raises as ``supervise``."""
    home, env = beginning.home, beginning.env
    async with AsyncExitStack() as stack:
        given = Given(
            *(home, env, config, beginning.clock, beginning.descriptors, beginning.stopping),
            serves_hosts=source.are_remote,
            journal=source.journal,
            notes=source.notes,
        )
        await _serve(given, used, source, stack)


async def _serve(given: Given, used: Sequence[Platform], source: WorkerSource, stack: AsyncExitStack) -> None:
    """``stack`` closes everything in reverse order."""
    stopping = given.stopping
    source.start()
    parts = await open_parts(given, stack)
    opened = [OpenedChat.of(each, parts) for each in used]
    outbound = await _outbound(parts, opened, source, stack)
    inbound = _inbound(parts, outbound)
    chats = [each.connected(parts, outbound, inbound) for each in opened]
    connections = ChatConnections(
        chats, parts.repos.people, parts.people.meet, parts.logs.record, parts.tasks
    )
    status = ParentStatus(parts, outbound, connections)
    front = _front(parts, outbound, inbound, status)
    watchers = Watchers(parts.repos.path_of, inbound.scheduler.changed)
    stack.push_async_callback(watchers.close)
    configuration = Configuration(parts, outbound, connections)
    operator = Operator(parts, outbound, inbound, status=status, configuration=configuration, front=front)
    serving = Serving(parts, outbound, inbound, configuration, connections)
    weekly = WeeklyCosts(parts.repos.named, parts.ledgers, parts.direct, outbound.publish)
    on_files = partial(_use, inbound.hooks, front, watchers)
    for name, work in (
        ("audit", inbound.dispatcher.run()),
        ("audit-log", maintain(parts.audit, parts.clock)),
        (
            "people",
            parts.people.run({each.platform.name: each.integration.person for each in opened}),
        ),
        *((each.name, each.work()) for each in chats),
        ("front", front.run()),
        ("spending", parts.spending.run()),
        ("reloads", parts.reloads.serve(configuration.reload)),
        ("schedule", inbound.scheduler.run(inbound.intake.accept, on_files, weekly.post)),
    ):
        await stack.enter_async_context(beside(work, name=name))
    async with notifying(given.env, parts.clock, stopping, lambda: status.line):
        await serving.run(operator, stopping)


async def _outbound(
    parts: Parts, opened: Sequence[OpenedChat], source: WorkerSource, stack: AsyncExitStack
) -> Outbound:
    chats = Chats([await _served(each, parts, stack) for each in opened])
    journal = parts.journal
    services = ParentServices(parts, chats)
    if parts.restored is not None:
        fetched = filter(chats.has_history, parts.repos.by_channel)
        await journal.open_gaps([*fetched], parts.restored.taken_at)
        services.restored(parts.restored, parts.repos.by_channel)
    workers = await stack.enter_async_context(source.open(services, parts.logs.record))
    parts.spending.changed.add(workers.tell_total)
    parts.spending.changed.add(parts.signals.changed.tell)
    cards = Cards(parts, workers, chats)
    publish = IdempotentPublisher(chats, parts.listeners).publish
    return Outbound(chats=chats, publish=publish, services=services, supervisor=workers, cards=cards)


async def _served(opened: OpenedChat, parts: Parts, stack: AsyncExitStack) -> ServedChat:
    """A chat with its queue."""
    chat, notes = opened.integration.chat, opened.notes
    await stack.enter_async_context(chat)
    clock, redact = parts.clock, parts.redactor.redact
    if parts.restored is not None or parts.given.serves_hosts:
        await begin_anew(notes)  # another gateway may have posted since
    editor = Editor(redact, parts.people.called, parts.direct.where, parts.dashboard.url_for)
    sender = await stack.enter_async_context(Sender(chat, clock, editor, notes, direct=parts.direct))
    sender.channels.changed.add(parts.signals.changed.tell)
    statuses = await stack.enter_async_context(StatusBoard(chat.capabilities.status_line, clock, redact))
    return ServedChat(name=opened.platform.name, chat=chat, sender=sender, statuses=statuses)


def _inbound(parts: Parts, outbound: Outbound) -> Inbound:
    given, repos, journal, clock = parts.given, parts.repos, parts.journal, parts.clock
    publish = outbound.publish
    provenance = JobsProvenance(Registry(given.home))
    files = JobFiles(
        lambda: job_sources(given.home, repos.table, given.env, provenance, parts.told_jobs),
        lambda: weekly_jobs(repos.table.served),
        lambda: (each.entry.name for each in repos.table.absent),
    )
    scheduler = Scheduler(parts.notes, publish, files.look, clock, parts.tasks)
    parts.listeners.on_ended.append(scheduler.ended)
    parts.told_jobs.on_watched.append(scheduler.watched)
    jobs = ScheduleCommands(scheduler, clock, zone_of(""))
    moves, commands = _commands(parts, outbound, jobs)
    sources = DirectSources(
        parts.direct, repos.by_channel, outbound.cards.of, outbound.supervisor.down, outbound.services
    )
    direct = DirectMessages(sources, outbound.chats, journal, parts.tasks, clock)
    steps = Steps(
        direct_message=direct.take,
        parent_command=commands.take,
        keep=parts.audit.keep,
        on_trouble=outbound.services.nothing_starts,
        followed=parts.listeners.followers,
        notify=parts.listeners.notify,
        deliver=parts.traced(outbound.supervisor.deliver),
    )
    dispatcher = Dispatcher(steps, clock)
    intake = Intake(
        repos=repos.by_channel,
        journal=journal,
        dispatch=dispatcher.dispatch,
        refusals=outbound.services,
        clock=clock,
        threads=Threads(
            parts.turns.awaits, DirectReader(parts.direct, repos.by_channel, lambda: repos.table.config)
        ),
    )
    hooks = HookRunner(parts.notes, publish, intake.accept, outbound.supervisor.look_at_pulls, clock)
    return Inbound(
        intake=intake,
        speaker=Speaker(intake.accept, outbound.chats, outbound.supervisor.down, clock),
        scheduler=scheduler,
        jobs=jobs,
        hooks=hooks,
        dispatcher=dispatcher,
        moves=moves,
    )


def _commands(parts: Parts, outbound: Outbound, jobs: ScheduleCommands) -> tuple[RepoMoves, ParentCommands]:
    """The commands that the parent answers, and what moves a repository to another host."""
    given, repos, journal, clock = parts.given, parts.repos, parts.journal, parts.clock
    publish = outbound.publish
    means = Means(
        home=given.home,
        env=given.env,
        notes=journal,
        publish=publish,
        chats=outbound.chats,
        reloads=parts.reloads,
        clock=clock,
    )
    moves = RepoMoves(
        MoveMeans(
            registry=Registry(given.home),
            notes=parts.notes,
            table=lambda: repos.table,
            workers=outbound.supervisor,
            reloads=parts.reloads,
            publish=publish,
            audit=parts.audit.append,
            clock=clock,
        )
    )
    own = Resources(jobs, NewRepos(means), moves, parts.ledgers, clock, since=clock.now())
    return moves, ParentCommands(own, publish, parts.listeners, journal, parts.tasks, repos.name_of)


def _front(parts: Parts, outbound: Outbound, inbound: Inbound, status: ParentStatus) -> WebServer:
    """The HTTP port and the pages it serves."""
    sources = Sources(
        status=status.status,
        repo_labels=status.served_as,
        turns=lambda: parts.turns.by_repo,
        jobs=inbound.jobs.rows,
        timers=inbound.jobs.timers,
        ring=parts.logs.ring,
        addresses=outbound.chats.addresses,
        redact=parts.redactor.redact,
    )
    keys = Keys(parts.given.home.open(), parts.clock, secrets.token_urlsafe, parts.redactor.learn)
    reviews = ChangeReviews(
        find_repo=parts.repos.named,
        workers=outbound.supervisor,
        speaker=inbound.speaker,
        redact=parts.redactor.redact,
        addresses=outbound.chats.addresses,
    )
    acts = DashboardActions(
        find_repo=parts.repos.named,
        turns=lambda: parts.turns.by_repo,
        speaker=inbound.speaker,
        workers=outbound.supervisor,
        schedule=inbound.jobs,
        audit=parts.audit.append,
    )
    conversations = Conversations(
        served=lambda: parts.repos.table.served,
        workers=outbound.supervisor,
        name_people=parts.people.named,
        redact=parts.redactor.redact,
        addresses=outbound.chats.addresses,
    )
    dashboard = Dashboard(
        sources, Pages(reviews, acts, conversations, _ledger(parts, outbound)), keys, parts.clock
    )
    config, metrics = parts.given.config, MetricsPage(parts.given.config.metrics, status.metrics)
    hooks = Hooks(inbound.hooks, parts.clock)
    return WebServer(config.dashboard, hooks, dashboard, parts.dashboard, metrics, parts.given.stopping)


def _ledger(parts: Parts, outbound: Outbound) -> LedgerPage:
    ledgers = parts.ledgers
    return LedgerPage(
        names=lambda: ledgers.names,
        days=ledgers.days,
        rows=ledgers.rows,
        person_name=parts.people.called,
        redact=parts.redactor.redact,
        addresses=outbound.chats.addresses,
    )


def _use(hooks: HookRunner, front: WebServer, watchers: Watchers, found: FoundJobs) -> None:
    hooks.use(found.hooks)
    front.enable_hooks(found.hooks)
    watchers.use(found.jobs.values())
