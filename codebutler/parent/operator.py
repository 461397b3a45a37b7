"""Requests of this machine's operator to the running supervisor: the far end of the control socket."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import msgspec

from codebutler.chat.platform import ConnectedChat
from codebutler.chat.terminal import Chat
from codebutler.domain.errors import CodeButlerError
from codebutler.domain.model import OPERATOR
from codebutler.domain.version import VERSION
from codebutler.observe.metrics import MetricsFacts
from codebutler.parent.configuration import GRACE_S, Configuration
from codebutler.parent.integration import ChatConnections, Inbound, Outbound
from codebutler.parent.parts import Parts
from codebutler.protocol.control import (
    ChatInput,
    ChatRequest,
    ControlReply,
    ControlRequest,
    DashboardReply,
    DashboardRequest,
    Done,
    Failed,
    JobsReply,
    JobsRequest,
    Posted,
    ReloadRequest,
    RestartRequest,
    SendRequest,
    StatusReply,
    StatusRequest,
    StopRequest,
)
from codebutler.protocol.messages import Budget
from codebutler.supervisor.supervisor import RepoRow
from codebutler.web.server import WebServer


class Operator:
    """Answers control requests."""

    def __init__(
        self,
        parts: Parts,
        outbound: Outbound,
        inbound: Inbound,
        *,
        status: ParentStatus,
        configuration: Configuration,
        front: WebServer,
    ) -> None:
        self._stopping = parts.given.stopping
        self._repos = parts.repos
        self._listeners = parts.listeners
        self._workers = outbound.supervisor
        self._speaker = inbound.speaker
        self._jobs = inbound.jobs
        self._moves = inbound.moves
        self._status = status
        self._configuration = configuration
        self._front = front

    async def answer(self, request: ControlRequest) -> AsyncIterator[ControlReply]:
        """Every reply to one request, the last of them Done or Failed."""
        match request:
            case StatusRequest():
                dashboard = {"url": self._front.url}
                yield StatusReply(status={**await self._status.status(), "dashboard": dashboard})
                yield Done()
            case StopRequest(repo=repo):
                yield self._stop(repo)
            case ReloadRequest():
                summary = await self._configuration.reload()
                # A person who has just trusted jobs may run one next.
                await self._jobs.look_again()
                await self._moves.registered()
                yield Done(text=summary)
            case RestartRequest():
                self._stopping.restart()
                told = f"Restarting: running work has up to {GRACE_S:g} s to finish, the rest resumes afterwards."
                yield Done(text=told)
            case DashboardRequest():
                link = self._front.link()
                yield DashboardReply(url=link.partition("#")[0], link=link)
                yield Done()
            case JobsRequest(action="list"):
                yield JobsReply(jobs=self._jobs.rows())
                yield Done()
            case JobsRequest():
                yield await self._manage(request)
            case SendRequest():
                async for reply in self._send(request):
                    yield reply

    async def _manage(self, request: JobsRequest) -> ControlReply:
        try:
            return Done(text=await self._jobs.manage(request.action, request.name))
        except CodeButlerError as error:
            return Failed(text=str(error))

    def _stop(self, name: str) -> ControlReply:
        names = [
            served.entry.name for served in self._repos.table.served if name in ("all", served.entry.name)
        ]
        if not names:
            return self._unknown(name)
        for each in names:
            self._workers.stop_turns(each, OPERATOR)
        return Done(text=f"stopping the runs of {', '.join(names)}")

    async def chat(
        self, request: ChatRequest, inputs: AsyncIterator[ChatInput]
    ) -> AsyncIterator[ControlReply]:
        """Everything posted in a thread, and the operator's own messages and presses there."""
        served = self._repos.table.named(request.repo)
        if served is None:
            yield self._unknown(request.repo)
            return
        async with aclosing(Chat(served, request, self._speaker, self._listeners).replies(inputs)) as replies:
            async for reply in replies:
                yield reply

    async def _send(self, request: SendRequest) -> AsyncIterator[ControlReply]:
        served = self._repos.table.named(request.repo)
        if served is None:
            yield self._unknown(request.repo)
            return
        channel = served.channel_id
        ref = await self._speaker.post(served, request.text, request.thread)
        root = request.thread or ref
        with self._listeners.added(channel, root) as listener:
            listener.await_outcome(ref)
            yield Posted(channel=channel, ref=ref, thread=root)
            await self._speaker.said(served, ref, request.text, request.thread)
            if not request.wait:
                yield Done(text="sent")
                return
            self._speaker.check_up(served)
            async for reply in listener.answers():
                yield reply

    def _unknown(self, name: str) -> Failed:
        table = self._repos.table
        for each in table.unserved:
            if each.entry.name == name:
                return Failed(text=each.problem)
        known = ", ".join(served.entry.name for served in table.served) or "none"
        return Failed(text=f"no repository named {name!r} is served; served: {known}")


class ParentStatus:
    """Asked by the operator, the dashboard and systemd."""

    def __init__(self, parts: Parts, outbound: Outbound, connections: ChatConnections) -> None:
        self._parts = parts
        self._repos = parts.repos
        self._supervisor = outbound.supervisor
        self._chats = outbound.chats
        self._connections = connections
        self._started_s = parts.clock.monotonic()

    @property
    def line(self) -> str:
        """The state, for systemd."""
        states = [f"{each.name} {each.connection.status.state}" for each in self._connections]
        return ", ".join((f"repositories: {len(self._repos.table.served)}", *states))

    async def status(self) -> dict[str, Any]:
        """The status object, as ``status --json`` prints it."""
        rows, cluster = await self._supervisor.status(), await self._supervisor.cluster()
        return {
            "supervisor": {
                "pid": os.getpid(),
                "version": VERSION,
                "uptime_s": round(self._parts.clock.monotonic() - self._started_s, 3),
                "trouble": self._parts.given.descriptors.trouble(len(self._repos.table.served)),
            },
            **{each.section.key: self._chat(each) for each in self._connections},
            "repos": [self._row(row) for row in (*rows, *self._absent())],
            "journal": {
                "pending": self._parts.journal.pending_count,
                "trouble": self._parts.journal.trouble,
                "mended": self._parts.journal.mended,
            },
            "outbox": {"pending": self._supervisor.outbox_pending},
            **({"cluster": msgspec.to_builtins(cluster)} if cluster else {}),
        }

    async def metrics(self) -> MetricsFacts:
        """The metrics for Prometheus."""
        parts = self._parts
        calls = {each.section.key: self._chats.named(each.name).sender.counts for each in self._connections}
        return MetricsFacts(
            status=await self.status(), counts=parts.counts, calls=calls, lines=parts.logs.ring.tags
        )

    def served_as(self) -> dict[str, tuple[str, str]]:
        """Repository to its default agent and its channel as people read it."""
        return {
            served.entry.name: (served.config.agent.default, served.config.chat.place_shown)
            for served in self._repos.table.served
        }

    def _chat(self, each: ConnectedChat) -> dict[str, Any]:
        trouble = self._connections.trouble(each) or self._chats.named(each.name).sender.trouble
        return {**msgspec.to_builtins(each.connection.status), "trouble": trouble}

    def _row(self, row: RepoRow) -> dict[str, Any]:
        built: dict[str, Any] = msgspec.to_builtins(row)
        told = self._parts.budgets.today(row.name, self._parts.clock.now()) or Budget()
        built["today"] = msgspec.to_builtins(told.used)
        built["budget"] = msgspec.to_builtins(told.limits)
        # It may hold the last log lines of a worker.
        problem = self._parts.redactor.redact(row.problem)
        served = self._repos.table.named(row.name)
        built["channel"] = served.config.chat.place_shown if served else row.channel_id
        if not problem and served:
            channels = self._chats.of(row.channel_id).sender.channels
            problem = channels.trouble(row.channel_id) or served.unheard
        built["problem"] = problem
        return built

    def _absent(self) -> list[RepoRow]:
        return [
            RepoRow(
                name=unserved.entry.name,
                path=unserved.entry.path,
                channel_id=unserved.entry.channel_id,
                problem=unserved.problem,
            )
            for unserved in self._repos.table.absent
        ]
