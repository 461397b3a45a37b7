"""The host's view of its gateway: its workers' requests to the parent, passed on to the gateway."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any
from uuid import uuid4

from msgspec import Struct

from codebutler.chat.port import Download, Take
from codebutler.cluster.buckets import BusError
from codebutler.cluster.bus import Bus
from codebutler.cluster.membership import calls_of, news_of, questions_of
from codebutler.cluster.messages import (
    Call,
    CallAnswer,
    ClusterCodec,
    DownCall,
    EndedCall,
    FetchQuestion,
    FilePiece,
    HostNews,
    HostQuestion,
    Reply,
    ReportCall,
    RequestFailed,
    SendCall,
    ThreadMessages,
    ThreadQuestion,
    encode,
)
from codebutler.config.schema import RepoSettings
from codebutler.domain.errors import ChatError, FrameTooLargeError
from codebutler.domain.model import Operation, Quoted
from codebutler.domain.refs import MessageRef
from codebutler.observe.chain import AuditAct
from codebutler.platform.tasks import Tasks
from codebutler.protocol.capabilities import HostReport
from codebutler.protocol.conversations import Traced
from codebutler.protocol.messages import MAX_FETCH_BYTES, Budget, LogTag, Overview, TotalUse, TurnEnded
from codebutler.supervisor.port import News as Reported

MAX_PIECE_REQUESTS = 10
"""How often to ask for one piece of a file; each question waits some seconds."""


class HeldLease(Struct):
    """The lease that this process of a host was granted, and by which gateway. ``valid_until_s`` is a
    ``Clock.boottime``."""

    host: str
    instance: str
    epoch: int = 0
    gateway_epoch: int = 0
    valid_until_s: float = 0.0


class HostServices:
    """Implements ``Services``. Log and audit log are this machine's own: ``log`` and ``audit`` write them."""

    def __init__(
        self,
        bus: Bus,
        lease: HeldLease,
        log: Callable[[str, LogTag, str], None],
        audit: Callable[[AuditAct], None],
    ) -> None:
        self.log = log
        self.audit = audit
        self.totals: Mapping[str, TotalUse] = {}
        self.total_here: Callable[[RepoSettings], TotalUse | None] = lambda _: None
        self.used: Callable[[str], None] = lambda _: None
        """Called with a repository that has used something."""
        self.runs: Mapping[str, str] = {}
        self.on_runs: Callable[[], None] = lambda: None
        """Called when the gateway has reported which runs it knows."""
        self.on_sent: Callable[[str], None] = lambda _: None
        """Called with a repository that has sent an operation, reported its use or ended a run."""
        self._bus = bus
        self._lease = lease
        self._answers: dict[str, asyncio.Future[CallAnswer]] = {}
        self._publish_locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        """A lock for each repository: while a publication is repeated, the next one must not overtake it."""
        self._stored: dict[int, asyncio.Event] = {}
        self._latest: dict[tuple[str, type[Reported]], tuple[RepoSettings, Reported]] = {}
        self._tasks = Tasks(lambda name, error: self.log("", "ERR", f"{name} failed: {error!r}"))
        self._replies: ClusterCodec[Reply] = ClusterCodec(Reply)

    # The port

    async def send(self, repo: RepoSettings, op_id: str, operation: Operation, *, unsure: bool) -> MessageRef:
        """Do ``operation`` in the repository's channel; returns the message's ref. Raises ChatError."""
        call = SendCall(**self._call_fields(repo), op_id=op_id, operation=operation, unsure=unsure)
        ref = (await self.call(call)).ref
        self.on_sent(repo.name)
        return ref

    async def fetch(self, repo: RepoSettings, file_id: str, take: Take) -> Download:
        """A file, piece by piece. Raises ChatError."""
        request, number, size_bytes = uuid4().hex, 0, 0
        while True:
            piece = await self._piece(repo.name, request, file_id, number)
            size_bytes += len(piece.data)
            if size_bytes > MAX_FETCH_BYTES:
                raise ChatError(code="file_too_large")
            if piece.data:
                await take(piece.data)
            if piece.last:
                if piece.file is None:
                    raise ChatError(code="internal_error")
                return Download(file=piece.file, transcript=piece.transcript)
            number += 1

    def total(self, repo: RepoSettings) -> TotalUse | None:
        """As the gateway reports it; if it reports nothing, what the other repositories of this host have used."""
        return self.totals.get(repo.name) or self.total_here(repo)

    def show(self, repo: RepoSettings, news: Reported) -> None:
        """Report it to the gateway once; nobody repeats it if it is lost."""
        if isinstance(news, Budget | Overview):
            self._latest[repo.name, type(news)] = repo, news
        if isinstance(news, Budget):
            self.used(repo.name)
            self.on_sent(repo.name)
        at = time.time_ns() if isinstance(news, Traced) else 0
        message = HostNews(epoch=self._lease.epoch, repo=repo.name, news=news, at=at)
        self._tasks.start(self._bus.broadcast(news_of(self._lease.host), encode(message)), name="news")

    async def thread(
        self, repo: RepoSettings, thread: MessageRef, before: MessageRef
    ) -> tuple[tuple[Quoted, ...], int]:
        """The messages of a thread. Raises ChatError."""
        reply = await self._ask(
            ThreadQuestion(epoch=self._lease.epoch, repo=repo.name, thread=thread, before=before)
        )
        if not isinstance(reply, ThreadMessages):
            raise _chat_error(reply)
        return reply.messages, reply.left_out

    async def turn_ended(self, repo: RepoSettings, ended: TurnEnded) -> None:
        """Returns once the gateway has passed it on."""
        self.used(repo.name)
        self.on_sent(repo.name)
        await self.call(EndedCall(**self._call_fields(repo), ended=ended))

    async def reported(self, repo: RepoSettings, report: HostReport) -> None:
        """Returns once the gateway has it on disk. Raises ChatError if that fails for good."""
        await self.call(ReportCall(**self._call_fields(repo), report=report))

    def runs_known(self, repo: RepoSettings) -> str | None:
        """As the gateway reports it."""
        return self.runs.get(repo.name)

    async def settle(self, seq: int) -> None:
        """The event that came as ``seq`` is in its worker's store."""
        if (event := self._stored.get(seq)) is not None:
            event.set()

    async def quarantined(self, repo: RepoSettings, why: str) -> None:
        """Tell the channel."""
        await self.call(DownCall(**self._call_fields(repo), why=why))

    # For the link

    def _call_fields(self, repo: RepoSettings) -> dict[str, Any]:
        return {"epoch": self._lease.epoch, "call": uuid4().hex, "repo": repo.name}

    async def call(self, call: Call) -> CallAnswer:
        """Make a call; returns when the gateway has carried it out, however long that takes. Raises ChatError if it
        failed."""
        answer: asyncio.Future[CallAnswer] = asyncio.get_running_loop().create_future()
        self._answers[call.call] = answer
        try:
            subject = calls_of(self._lease.host, call.repo)
            try:
                async with self._publish_locks[call.repo]:
                    await self._bus.publish(subject, encode(call), call.call, in_parts=True)
            except FrameTooLargeError as error:
                raise ChatError(str(error), "msg_too_long") from error
            result = await answer
        finally:
            del self._answers[call.call]
        if result.failed:
            raise ChatError(result.text, result.code)
        return result

    def on_answer(self, answer: CallAnswer) -> None:
        """Take an answer. If an earlier process made the call, nobody waits: its worker asks again, as unsure."""
        waiting = self._answers.get(answer.call)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    def stored_event(self, seq: int) -> asyncio.Event:
        """An event that ``settle`` sets."""
        return self._stored.setdefault(seq, asyncio.Event())

    def forget(self, seq: int) -> None:
        """Forget an event's place: it is acknowledged, or will come again."""
        self._stored.pop(seq, None)

    def resend_reports(self) -> None:
        """Send the latest reports again, to a gateway that does not know them."""
        for repo, news in list(self._latest.values()):
            self.show(repo, news)

    async def close(self) -> None:
        """Cancel everything in progress."""
        await self._tasks.close(0)

    async def _piece(self, repo: str, request: str, file_id: str, number: int) -> FilePiece:
        question = FetchQuestion(
            epoch=self._lease.epoch, repo=repo, request=request, file_id=file_id, number=number
        )
        reply: Reply = RequestFailed(epoch=0, code="unreachable", text="")
        for _ in range(MAX_PIECE_REQUESTS):
            reply = await self._ask(question)
            if isinstance(reply, FilePiece):
                return reply
            if not isinstance(reply, RequestFailed) or reply.code != "wait":
                break
        raise _chat_error(reply)

    async def _ask(self, question: HostQuestion) -> Reply:
        try:
            body = await self._bus.ask(questions_of(self._lease.host), encode(question))
        except BusError as error:
            raise ChatError("the gateway did not answer", "unreachable") from error
        return self._replies.decode(body)


def _chat_error(reply: Reply) -> ChatError:
    if isinstance(reply, RequestFailed):
        return ChatError(reply.text, "unreachable" if reply.code == "wait" else reply.code)
    return ChatError(code="internal_error")
