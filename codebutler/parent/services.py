"""What the parent does for its workers. A worker can reach nothing else of it."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from uuid import uuid4

from codebutler.chat.chats import Chats, read_thread
from codebutler.chat.delivery.outgoing import addressed
from codebutler.chat.port import Download, Take
from codebutler.config.permission import Decision, Person, Where, may
from codebutler.config.schema import RepoSettings
from codebutler.domain.errors import ChatError
from codebutler.domain.message import said
from codebutler.domain.model import Event, MessagePosted, Operation, Post, Quoted
from codebutler.intake.records import Entry
from codebutler.observe.chain import AuditAct, act_of
from codebutler.parent.parts import Parts
from codebutler.platform.backups import Restored
from codebutler.protocol.messages import Audit, Budget, Doing, Live, Overview, TurnEnded, TurnStarted
from codebutler.supervisor.port import News
from codebutler.text.markup import plain

NO_SPACE = "⚠️ Waiting for disk space on the machine that runs CodeButler."
NO_AUDIT = "⚠️ The audit log cannot be written (`codebutler logs` says why)."
FETCHED = (
    "Messages since then are fetched again from the channel's history; a slash command or a click may have to be "
    "repeated."
)
GONE = "Please send again what was written since then and not answered."
NOTHING_STARTS = "Running turns continue; nothing new starts until this is fixed."


class ParentServices:
    """The supervisor's Services, and where refusals go."""

    def __init__(self, parts: Parts, chats: Chats) -> None:
        self._parts = parts
        self._signals = parts.signals
        self.settle = parts.journal.settle
        self.log = parts.logs.record
        self._audit = parts.audit
        self._logs = parts.logs
        self._listeners = parts.listeners
        self._tasks = parts.tasks
        self._chats = chats

    async def send(self, repo: RepoSettings, op_id: str, operation: Operation, *, unsure: bool) -> str:
        """Do ``operation`` in the repository's channel, or in the direct conversation that it is about, where it can
        ping nobody but whom it is for. Raises ChatError."""
        operation = addressed(operation, repo.config.allowed_users)
        sender = self._chats.of(repo.channel_id).sender
        ts, said = await sender.deliver(repo.channel_id, op_id, operation, unsure=unsure, lasting=True)
        if said is not None and (not isinstance(said, Post) or (ts and not said.outdated)):
            self._listeners.tell(repo.channel_id, said, ts)
        return ts

    async def fetch(self, repo: RepoSettings, file_id: str, take: Take) -> Download:
        """A file of the repository's own channel, or of a direct message to it. Raises ChatError."""
        served = self._chats.of(repo.channel_id)
        return await served.chat.fetch(served.sender.where(repo.channel_id, file_id), file_id, take)

    def show(self, repo: RepoSettings, news: News) -> None:
        """Best effort. What is done pings nobody and holds no secret that we know."""
        served = self._chats.of(repo.channel_id)
        match news:
            case Doing(thread_ts=thread_ts, text=text):
                served.statuses.show(served.sender.where(repo.channel_id, thread_ts), thread_ts, text)
                if not text:
                    served.sender.turn_over(repo.channel_id, thread_ts)
            case Live(kind=kind):
                self._listeners.live(repo.channel_id, news)
                if kind in ("text", "writing"):
                    served.sender.written(repo.channel_id, news.thread_ts, news.text, whole=kind == "text")
            case TurnStarted(messages=messages):
                self._listeners.started(repo.channel_id, messages)
            case Overview(turns=turns):
                self._parts.turns.tell(repo.name, turns)
            case Budget():
                self._parts.budgets.keep(repo.name, news)
                self._signals.changed.tell()

    async def turn_ended(self, repo: RepoSettings, ended: TurnEnded) -> None:
        """Tell those who wait, and the schedule. An interrupted turn streams no more, and its channel is told when we
        are back."""
        if ended.outcome == "interrupted":
            self._signals.interrupted.tell(repo.channel_id)
            self._chats.of(repo.channel_id).sender.turn_over(repo.channel_id, ended.thread_ts)
        await self._listeners.ended(repo.channel_id, ended.messages, ended.outcome)

    async def thread(
        self, repo: RepoSettings, thread_ts: str, before_ts: str
    ) -> tuple[tuple[Quoted, ...], int]:
        """What was said in a thread of the repository's own channel. Raises ChatError."""

        def is_heard(user: str) -> bool:
            return may(Person(user), "see", Where(repo.config, repo.channel_id)).allowed

        return await read_thread(self._chats, repo.channel_id, thread_ts, before_ts, is_heard)

    async def quarantined(self, repo: RepoSettings, why: str) -> None:
        """Tell the channel that its worker is not started for now."""
        kept = "Your messages are kept; `codebutler logs` on its machine says more."
        await self.notice(repo.channel_id, f"⚠️ **{plain(repo.name)}**: {plain(why)} {kept}")

    def audit(self, repo: RepoSettings, record: Audit) -> None:
        """Write a worker's record to the audit log, in the worker's own channel. Raises OSError."""
        self._audit.append(
            AuditAct(
                user=record.user,
                channel=repo.channel_id,
                thread=record.thread,
                kind=record.kind,
                text=record.text,
                decision=record.decision,
                exit_code=record.exit_code,
                duration_s=record.duration_s,
            )
        )

    def refused(self, event: Event, kind: str, decision: Decision, *, tell: bool) -> None:
        """Write an audit line (of a stranger's repetitions one, with their number), and tell the person if ``tell``."""
        act = act_of(event, kind, f"refused: {decision.reason}")
        self._audit.refuse(act, counted=decision.is_strangers)
        if tell:
            root = event.root_ts if isinstance(event, MessagePosted) else getattr(event, "thread_ts", None)
            self._tasks.start(
                self.notice(event.channel, decision.told, root), name=f"refusal to {event.user}"
            )

    def commanded(self, event: Event, kind: str) -> None:
        """An audit line. Should the disk take none, a command still goes on: our own words run nothing, and
        !stop must work just then."""
        try:
            self._audit.append(act_of(event, kind, "allowed"))
        except OSError as error:
            self._logs.record("", "ERR", f"the audit log cannot be written: {error.strerror}")

    def nothing_starts(self, entry: Entry, error: OSError) -> None:
        """The audit log takes no line: who waits for something to start is told why it does not."""
        why = NO_SPACE if error.errno == errno.ENOSPC else NO_AUDIT
        text = f"{why} {NOTHING_STARTS} Your message is kept and starts then."
        root = getattr(entry.event, "root_ts", None)
        self._tasks.start(self.notice(entry.channel, text, root), name=f"notice to {entry.channel}")

    def no_space(self, event: Event) -> None:
        """The disk takes no event: tell the channel. The chat keeps what we cannot."""
        text = f"{NO_SPACE} {NOTHING_STARTS} Your messages are fetched then: no need to send them again."
        # Not in the message's thread: a word of ours there would say later that the message was worked on.
        self._tasks.start(self.notice(event.channel, text), name=f"notice to {event.channel}")

    def restored(self, restored: Restored, channels: Iterable[str]) -> None:
        """The journal is a backup: the log and every channel hear of it."""
        self._logs.record("", "ERR", str(restored))
        text = (
            "⚠️ The journal of received messages was lost or damaged and is restored from the backup of "
            f"{restored.taken_at:%Y-%m-%d %H:%M} UTC. "
        )
        for channel in channels:
            gone = FETCHED if self._chats.has_history(channel) else GONE
            self._tasks.start(self.notice(channel, text + gone), name=f"notice to {channel}")

    async def notice(self, channel: str, text: str, thread_ts: str | None = None) -> None:
        """Say something of the supervisor's own; a refusal by the chat is logged, not raised."""
        try:
            await self._chats.submit(
                channel, uuid4().hex, Post(message=said(text), thread_ts=thread_ts), unsure=False
            )
        except ChatError as error:
            self._logs.record("", "WRN", f"a notice could not be posted in {channel}: {error}")
