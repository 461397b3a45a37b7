"""What the parent does for its workers; they can use nothing else of it."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterable
from uuid import uuid4

from codebutler.chat.chats import Chats, read_thread
from codebutler.chat.delivery.outgoing import addressed
from codebutler.chat.listeners import KEPT
from codebutler.chat.port import Download, Take
from codebutler.config.permission import Decision, Person, Where, may
from codebutler.config.registry import host_in
from codebutler.config.schema import RepoSettings
from codebutler.config.section import limits_any
from codebutler.domain.errors import ChatError
from codebutler.domain.message import said
from codebutler.domain.model import Event, MessagePosted, Operation, Post, Quoted, Request
from codebutler.domain.refs import ConversationRef, MessageRef, PersonRef
from codebutler.intake.records import Entry
from codebutler.observe.chain import act_of
from codebutler.parent.parts import Parts
from codebutler.platform.backups import Restored
from codebutler.protocol.capabilities import HostReport, JobsReport, RunsReport, UseReport, WatchReport
from codebutler.protocol.conversations import Traced
from codebutler.protocol.messages import (
    Budget,
    Doing,
    Live,
    Overview,
    TotalUse,
    TurnEnded,
    TurnStarted,
)
from codebutler.supervisor.port import News
from codebutler.text.markup import plain

NO_SPACE = "⚠️ Waiting for disk space on the machine that runs CodeButler."
NO_AUDIT = "⚠️ The audit log cannot be written (see `codebutler logs`)."
FETCHED = (
    "I fetch messages since then again from the channel's history; repeat slash commands and clicks that had no "
    "effect."
)
GONE = "Please resend messages since then that got no answer."
NOTHING_STARTS = "Current runs continue; nothing new starts until this is fixed."


class ParentServices:
    """The supervisor's Services, and the refusals."""

    def __init__(self, parts: Parts, chats: Chats) -> None:
        self._parts = parts
        self._signals = parts.signals
        self.settle = parts.journal.settle
        self.log = parts.logs.record
        self.counted = parts.counts.event
        self.audit = parts.audit.append
        self._audit = parts.audit
        self._logs = parts.logs
        self._listeners = parts.listeners
        self._tasks = parts.tasks
        self._chats = chats

    async def send(self, repo: RepoSettings, op_id: str, operation: Operation, *, unsure: bool) -> MessageRef:
        """Carry out ``operation`` in the repository's channel, or in the direct conversation that it is about; it can
        notify only the person it is for. Raises ChatError.
        """
        allowed = repo.config.chat.allowed_ids
        if isinstance(operation, Post) and operation.only_for and operation.only_for not in allowed:
            # In some chats it is sent to whatever has this name: a stranger, or another repository's group.
            raise ChatError("nobody who may talk to the repository", "user_not_allowed")
        operation = addressed(operation, allowed)
        sender = self._chats.of(repo.channel_id).sender
        ref, sent = await sender.deliver(repo.channel_id, op_id, operation, unsure=unsure, lasting=True)
        if sent is not None and (not isinstance(sent, Post) or (ref and not sent.outdated)):
            for listener in self._listeners.followers.get(repo.channel_id, ()):
                listener.delivered(sent, ref)
        return ref

    async def fetch(self, repo: RepoSettings, file_id: str, take: Take) -> Download:
        """A file from the repository's own channel, or from a direct message to it. Raises ChatError."""
        served = self._chats.of(repo.channel_id)
        return await served.chat.fetch(served.sender.where(repo.channel_id, file_id), file_id, take)

    def show(self, repo: RepoSettings, news: News) -> None:
        """Best effort. It notifies nobody and contains no known secret."""
        served = self._chats.of(repo.channel_id)
        match news:
            case Doing(thread=thread, text=text):
                place = served.sender.places.get((repo.channel_id, thread), repo.channel_id)
                served.statuses.show(place, thread, text)
                if not text and place != repo.channel_id:
                    served.sender.turn_over(place, thread)
            case Live(kind=kind):
                for listener in self._listeners.followers.get(repo.channel_id, ()):
                    listener.live(news)
                place = served.sender.where(repo.channel_id, news.thread)
                if kind in ("text", "writing") and place != repo.channel_id:
                    served.sender.written(place, news.thread, news.text, whole=kind == "text")
            case TurnStarted(messages=messages):
                for listener in self._listeners.followers.get(repo.channel_id, ()):
                    listener.started(messages)
            case _:
                self._note(repo, news)

    def _note(self, repo: RepoSettings, news: Budget | Overview | Traced) -> None:
        match news:
            case Traced():
                if self._parts.tracing is not None:
                    self._parts.tracing.worked(repo.name, repo.channel_id, news)
            case Overview(turns=turns):
                self._parts.turns.tell(repo.name, turns)
            case Budget():
                self._parts.budgets.told[repo.name] = news
                self._parts.spending.reported(repo.name)
                self._signals.changed.tell()

    def total(self, repo: RepoSettings) -> TotalUse | None:
        """What the other repositories have used; None if no budget covers all of them."""
        return self._parts.spending.total(repo) if limits_any(repo.config.budget.total) else None

    async def turn_ended(self, repo: RepoSettings, ended: TurnEnded) -> None:
        """Notify those who wait, and the schedule. An interrupted turn stops streaming, and its channel is told when we
        are back.
        """
        if ended.outcome == "interrupted":
            self._signals.interrupted.tell(repo.channel_id)
            sender = self._chats.of(repo.channel_id).sender
            sender.turn_over(sender.where(repo.channel_id, ended.thread), ended.thread)
        self._parts.spending.reported(repo.name)
        if self._parts.tracing is not None:
            self._parts.tracing.ended(repo.name, repo.channel_id, ended.messages, ended.outcome)
        self._parts.counts.turn(ended.op_id, repo.name, ended.agent, ended.outcome)
        await self._listeners.ended(repo.channel_id, ended.messages, ended.outcome)

    async def reported(self, repo: RepoSettings, report: HostReport) -> None:
        """Take a host's report about its repository. Raises StoreError."""
        match report:
            case JobsReport():
                await self._parts.told_jobs.keep(repo.name, report)
            case UseReport(days=days):
                await self._parts.spending.take(repo.name, days)
            case RunsReport(rows=rows, programs=programs):
                if (hosted := self._parts.hosted_runs) is not None:
                    await asyncio.to_thread(hosted.keep, host_in(repo.path), repo.name, rows, programs)
            case WatchReport(job=job, key=key):
                for told in self._parts.told_jobs.on_watched:
                    await told(f"{repo.name}/{job}", key)

    def runs_known(self, repo: RepoSettings) -> str | None:
        """When the latest run ended that the ledger has of this repository; see ``Services``."""
        hosted = self._parts.hosted_runs
        return hosted.known(host_in(repo.path), repo.name) if hosted is not None else None

    async def thread(
        self, repo: RepoSettings, thread: MessageRef, before: MessageRef
    ) -> tuple[tuple[Quoted, ...], int]:
        """The messages of a thread in the repository's own channel. Raises ChatError."""

        def may_instruct(user: PersonRef) -> bool:
            return may(Person(user), "see", Where(repo.config, repo.channel_id)).allowed

        return await read_thread(self._chats, repo.channel_id, thread, before, may_instruct)

    async def quarantined(self, repo: RepoSettings, why: str) -> None:
        """Tell the channel, and those who wait for an answer at a terminal, that its worker does not start for now."""
        self._listeners.stuck(repo.channel_id, KEPT.format(repo.name, why.rstrip(".")))
        kept = "Your messages are kept; see `codebutler logs` on its machine."
        await self.notice(repo.channel_id, f"⚠️ **{plain(repo.name)}**: {plain(why)} {kept}")

    def refused(self, event: Event, request: Request, decision: Decision, *, tell: bool) -> None:
        """Write an audit line (only one for a stranger's repetitions, with their number), and notify the person if
        ``tell``."""
        act = act_of(event, request, f"refused: {decision.reason}")
        self._audit.refuse(act, counted=decision.is_stranger)
        if tell:
            root = event.root if isinstance(event, MessagePosted) else getattr(event, "thread", None)
            self._tasks.start(
                self.notice(event.channel, decision.message, root), name=f"refusal to {event.user}"
            )

    def commanded(self, event: Event, request: Request) -> None:
        """Write an audit line. A command runs even if that fails: our commands start nothing, and !stop must work then
        above all.
        """
        try:
            self._audit.append(act_of(event, request, "allowed"))
        except OSError as error:
            self._logs.record("", "ERR", f"the audit log cannot be written: {error.strerror}")

    def nothing_starts(self, entry: Entry, error: OSError) -> None:
        """The audit log cannot be written: people whose work waits for it are told why."""
        why = NO_SPACE if error.errno == errno.ENOSPC else NO_AUDIT
        text = f"{why} {NOTHING_STARTS} Your message is kept and runs then."
        root = getattr(entry.event, "root", None)
        self._tasks.start(self.notice(entry.channel, text, root), name=f"notice to {entry.channel}")

    def no_space(self, event: Event) -> None:
        """Events cannot be stored: tell the channel. The chat keeps them for us."""
        text = f"{NO_SPACE} {NOTHING_STARTS} I fetch your messages then: you need not send them again."
        # Not in the message's thread: a post of ours there would later look as if we had worked on the
        # message.
        self._tasks.start(self.notice(event.channel, text), name=f"notice to {event.channel}")

    def restored(self, restored: Restored, channels: Iterable[ConversationRef]) -> None:
        """The journal is a backup: report it in the log and in every channel."""
        self._logs.record("", "ERR", str(restored))
        text = (
            "⚠️ The record of received messages was lost or damaged, and was restored from the backup of "
            f"{restored.taken_at:%Y-%m-%d %H:%M} UTC. "
        )
        for channel in channels:
            gone = FETCHED if self._chats.has_history(channel) else GONE
            self._tasks.start(self.notice(channel, text + gone), name=f"notice to {channel}")

    async def notice(self, channel: ConversationRef, text: str, thread: MessageRef | None = None) -> None:
        """Post a notice of the supervisor's own; a refusal by the chat is logged, not raised."""
        try:
            await self._chats.submit(
                channel, uuid4().hex, Post(message=said(text), thread=thread), unsure=False
            )
        except ChatError as error:
            self._logs.record("", "WRN", f"a notice could not be posted in {channel}: {error}")
