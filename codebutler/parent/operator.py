"""What the operator of this machine may ask of the running supervisor: the far end of the control socket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass

from codebutler.control.chat import Chat, Mouth
from codebutler.control.listeners import Listener, Listeners
from codebutler.control.messages import (
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
    SendRequest,
    StatusReply,
    StatusRequest,
    StopRequest,
    Wish,
)
from codebutler.domain.errors import CodeButlerError
from codebutler.domain.model import OPERATOR
from codebutler.intake.repos import Repos
from codebutler.parent.configuration import Configuration
from codebutler.parent.status import Status
from codebutler.schedule.desk import ScheduleDesk
from codebutler.supervisor.supervisor import Supervisor
from codebutler.web.front import WebServer


@dataclass(frozen=True, slots=True)
class Parent:
    """The parent, as the operator sees it: what it serves, how it is, its configuration, and its page."""

    repos: Repos
    status: Status
    configuration: Configuration
    front: WebServer


class Operator:
    """Answers control requests."""

    def __init__(
        self,
        *,
        parent: Parent,
        workers: Supervisor,
        mouth: Mouth,
        listeners: Listeners,
        jobs: ScheduleDesk,
    ) -> None:
        self._jobs = jobs
        self._parent = parent
        self._repos = parent.repos
        self._workers = workers
        self._mouth = mouth
        self._listeners = listeners

    async def answer(self, request: ControlRequest) -> AsyncIterator[ControlReply]:
        """Every reply to one request, the last of them Done or Failed."""
        match request:
            case StatusRequest():
                dashboard = {"url": self._parent.front.url}
                yield StatusReply(status={**await self._parent.status.status(), "dashboard": dashboard})
                yield Done()
            case StopRequest(repo=repo):
                yield self._stop(repo)
            case ReloadRequest():
                summary = await self._parent.configuration.reload()
                # Whoever vouched for jobs may run one of them next.
                await self._jobs.look_again()
                yield Done(text=summary)
            case DashboardRequest():
                link = self._parent.front.link()
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
        return Done(text=f"stopping what runs in {', '.join(names)}")

    async def chat(self, request: ChatRequest, wishes: AsyncIterator[Wish]) -> AsyncIterator[ControlReply]:
        """Everything that is said in a thread, and what the operator wishes to say there."""
        served = self._repos.table.named(request.repo)
        if served is None:
            yield self._unknown(request.repo)
            return
        async with aclosing(Chat(served, request, self._mouth, self._listeners).replies(wishes)) as replies:
            async for reply in replies:
                yield reply

    async def _send(self, request: SendRequest) -> AsyncIterator[ControlReply]:
        served = self._repos.table.named(request.repo)
        if served is None:
            yield self._unknown(request.repo)
            return
        channel = served.channel_id
        ts = await self._mouth.post(served, request.text, request.thread_ts)
        root_ts = request.thread_ts or ts
        listener = Listener(channel, ts, root_ts)
        with self._listeners.added(listener):
            yield Posted(channel=channel, ts=ts, thread_ts=root_ts)
            await self._mouth.said(served, ts, request.text, request.thread_ts)
            if not request.wait:
                yield Done(text="sent")
                return
            self._mouth.check_up(served)
            async for reply in listener.replies():
                yield reply

    def _unknown(self, name: str) -> Failed:
        table = self._repos.table
        for each in table.unserved:
            if each.entry.name == name:
                return Failed(text=each.problem)
        known = ", ".join(served.entry.name for served in table.served) or "none"
        return Failed(text=f"no repository is served as {name!r}; served: {known}")
