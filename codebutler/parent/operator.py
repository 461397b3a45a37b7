"""What the operator of this machine may ask of the running supervisor: the far end of the control socket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing

from codebutler.control.chat import Chat, Speaker
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
from codebutler.parent.configuration import Configuration
from codebutler.parent.integration import Inbound, Outbound
from codebutler.parent.parts import Parts
from codebutler.parent.status import ParentStatus
from codebutler.web.front import Front


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
        front: Front,
    ) -> None:
        self._repos = parts.repos
        self._listeners = parts.listeners
        self._workers = outbound.supervisor
        self._speaker = Speaker(inbound.intake.accept, outbound.chats, outbound.supervisor.down, parts.clock)
        self._jobs = inbound.jobs
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
                # Whoever vouched for jobs may run one of them next.
                await self._jobs.look_again()
                yield Done(text=summary)
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
        return Done(text=f"stopping the turns of {', '.join(names)}")

    async def chat(self, request: ChatRequest, wishes: AsyncIterator[Wish]) -> AsyncIterator[ControlReply]:
        """Everything that is said in a thread, and what the operator wishes to say there."""
        served = self._repos.table.named(request.repo)
        if served is None:
            yield self._unknown(request.repo)
            return
        async with aclosing(Chat(served, request, self._speaker, self._listeners).replies(wishes)) as replies:
            async for reply in replies:
                yield reply

    async def _send(self, request: SendRequest) -> AsyncIterator[ControlReply]:
        served = self._repos.table.named(request.repo)
        if served is None:
            yield self._unknown(request.repo)
            return
        channel = served.channel_id
        ts = await self._speaker.post(served, request.text, request.thread_ts)
        root_ts = request.thread_ts or ts
        with self._listeners.added(channel, root_ts) as listener:
            listener.await_outcome(ts)
            yield Posted(channel=channel, ts=ts, thread_ts=root_ts)
            await self._speaker.said(served, ts, request.text, request.thread_ts)
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
        return Failed(text=f"no repository is served under the name {name!r}; served: {known}")
