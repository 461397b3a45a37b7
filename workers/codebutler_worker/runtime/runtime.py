"""The base of everything in a worker: its settings, its store, its agents, and the one place to commit.

``Runtime.commit`` is the only way to change anything: rows and operations are one transaction, and sending
starts after the commit.

The outbox sends committed operations in order and marks them when the chat has taken them. It is event driven, so
that a committed answer leaves at once: the code that commits rows passes them on (``publish``), and the parent reports
back (``settle``). The table is read once, at start: rows in it were sent without a report, or never, so they go out as
``unsure`` and the parent looks before it posts.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from codebutler.config.paths import Home
from codebutler.config.programs import CONFIGURED, Choice
from codebutler.config.resolve import secrets_in
from codebutler.domain.clock import Clock
from codebutler.domain.errors import FrameTooLargeError, StoreError
from codebutler.domain.model import Operation, Post, React, Update, Upload
from codebutler.domain.refs import NOWHERE, MessageRef
from codebutler.platform.kill_points import reached
from codebutler.protocol.messages import (
    MAX_UPLOAD_BYTES,
    PIECE_BYTES,
    Configure,
    DayUse,
    Log,
    LogTag,
    Send,
    TotalUse,
    TurnEnded,
    UploadPiece,
)
from codebutler.text.redact import Redactor
from codebutler_worker.agents.backend import AgentBackend
from codebutler_worker.agents.survey import Survey
from codebutler_worker.internet.remote import MediaService
from codebutler_worker.media.files import Fetcher
from codebutler_worker.runtime.traces import Traces
from codebutler_worker.skills import Library
from codebutler_worker.store.rows import OutboxRow
from codebutler_worker.store.unit_of_work import Outgoing, Store, UnitOfWork
from codebutler_worker.tree.tree import Tree
from codebutler_worker.tree.worktrees import Worktrees

# This many of each kind are sent at once. Chats take reactions slowly: they must not hold up an answer.
WINDOWS = {"post": 64, "upload": 64, "update": 64, "react": 100, "ended": 64}
REMEMBERED = 1024
TARGET_FAILED = "target_failed"
TOO_LARGE = "too_large"
# Turns in these states continue after a restart.
WAITING = frozenset({"queued", "parked"})

Key = tuple[str, ...]

T = TypeVar("T")
STORE_RETRY_S = 5.0
NO_REPORT = TotalUse(day=DayUse(), until="", month=DayUse(), month_until="")


class OutboxEntry(Struct, eq=False):
    """A pending operation. It waits until its row's target is done: an update needs its post's ref, a final
    mark follows the answer, a closing line the last edit of what it closes.

    ``line``: operations with the same one stay in order: those of a conversation, and those of a mark, which
    must not be removed before it is set. ``role``: what a later one may supersede it as; ``ends``: the role
    that this one supersedes. ``answers``: a turn is not over without it; ``is_end``: it reports that a turn
    is over.
    """

    row: OutboxRow
    operation: Operation | TurnEnded
    unsure: bool
    line: Key
    role: Key | None = None
    ends: Key | None = None
    answers: bool = False
    is_end: bool = False
    state: Literal["waiting", "out", "needless"] = "waiting"
    done: asyncio.Event = field(default_factory=asyncio.Event)


class Outbox:
    """One worker's operations under way. At most a window of each kind is sent at once; the rest wait in
    order.

    The end of a turn is sent the same way, after its answer, until the parent confirms it. Superseded operations
    are not sent: an edit, after a later one of the same message; a mark, after its removal; a turn's progress,
    after its end.

    ``_refs`` holds the refs of recent operations; "" stands for refused.
    """

    def __init__(self, store: Store, send: Callable[[Send | TurnEnded | UploadPiece], None]) -> None:
        self._store = store
        self._send = send
        self._entries: dict[str, OutboxEntry] = {}
        """The pending operations, in order."""
        self._roles: dict[Key, OutboxEntry] = {}
        self._out: Counter[str] = Counter()
        self._refs: OrderedDict[str, str] = OrderedDict()

    @property
    def pending(self) -> int:
        """How many operations the chat has not taken yet."""
        return len(self._entries)

    async def restore(self) -> int:
        """Send the previous worker's operations again. Returns how many there were."""
        rows, targets, over = await self._store.run(_left_behind)
        self._refs.update(targets)
        operations = [(replace(row, payload=""), _operation_of(row)) for row in rows]
        await self.publish(operations, unsure=True, over=over)
        return len(rows)

    async def publish(
        self, committed: Iterable[Outgoing], *, unsure: bool = False, over: Collection[str] = frozenset()
    ) -> None:
        """Send operations whose rows are committed. ``unsure``: an earlier worker may have sent them; ``over``: turns
        whose progress nobody follows any more."""
        needless: list[str] = []
        outdated: list[OutboxEntry] = []
        for row, operation in committed:
            entry = self._entries[row.op_id] = _entry_of(row, operation, unsure=unsure, over=over)
            before = self._roles.get(entry.ends) if entry.ends else None
            if before is not None and before.state == "waiting":
                before.state = "needless"
                needless.append(before.row.op_id)
                if isinstance(operation, React):
                    entry.state = "needless"
                    needless.append(row.op_id)
            elif before is not None:
                outdated.append(before)
            # Operations that may have reached the chat are not withdrawn.
            if entry.role and (not unsure or isinstance(operation, Update)):
                self._roles[entry.role] = entry
        for op_id in needless:
            await self.settle(op_id)
        await self._pump()
        for entry in outdated:
            # The parent may drop what it has not posted yet.
            if entry.row.op_id in self._entries and isinstance(entry.operation, Post):
                post = replace(entry.operation, outdated=True)
                self._send(Send(op_id=entry.row.op_id, operation=post, unsure=True))

    async def settle(self, op_id: str, ref: MessageRef = NOWHERE, code: str = "") -> None:
        """The parent reports success, with the message's ref if it has one, or with an error's ``code`` failure for
        good: mark the row, and release operations that waited for it; updates of a refused post fail, too. A second
        report changes nothing."""
        if op_id not in self._entries:
            return
        reached("mark.before")
        await self._store.run(partial(UnitOfWork.settle, op_id=op_id, ref=ref, code=code))
        reached("mark.after")
        self._refs[op_id] = ref
        while len(self._refs) > REMEMBERED:
            self._refs.popitem(last=False)
        if (entry := self._entries.pop(op_id, None)) is not None:
            entry.done.set()
            self._out[entry.row.kind] -= entry.state == "out"
            if entry.role and self._roles.get(entry.role) is entry:
                del self._roles[entry.role]
        await self._pump()

    async def settled(self, op_id: str) -> None:
        """Wait until the operation was taken or refused."""
        if found := self._entries.get(op_id):
            await found.done.wait()

    async def drained(self) -> None:
        """Wait until nothing is under way."""
        while self._entries:
            await next(iter(self._entries.values())).done.wait()

    async def _pump(self) -> None:
        """Send what may be sent, in order, and give up what never can be."""
        blocked: set[Key] = set()
        answering: set[str] = set()
        hopeless: list[tuple[str, str]] = []
        for op_id, entry in self._entries.items():
            kind, conversation = entry.row.kind, entry.row.conversation
            if entry.state == "waiting":
                waits = entry.row.target_op_id in self._entries or self._out[kind] >= WINDOWS[kind]
                if waits or entry.line in blocked or (entry.is_end and conversation in answering):
                    blocked.add(entry.line)
                elif code := self._send_entry(entry):
                    hopeless.append((op_id, code))
            if entry.answers:
                answering.add(conversation)
        for op_id, code in hopeless:
            await self.settle(op_id, code=code)

    def _send_entry(self, entry: OutboxEntry) -> str:
        """Returns why it can never be sent, "" if it was sent."""
        operation, target = entry.operation, entry.row.target_op_id
        if target is not None and isinstance(operation, Update):
            if not self._refs.get(target):
                entry.state = "needless"
                return TARGET_FAILED
            operation = replace(operation, target=self._refs[target])
        try:
            if isinstance(operation, Upload) and len(operation.content) > PIECE_BYTES:
                operation = self._send_ahead(entry.row.op_id, operation)
            if isinstance(operation, TurnEnded):
                self._send(operation)
            else:
                self._send(Send(op_id=entry.row.op_id, operation=operation, unsure=entry.unsure))
        except FrameTooLargeError:
            entry.state = "needless"
            return TOO_LARGE
        entry.state = "out"
        self._out[entry.row.kind] += 1
        return ""

    def _send_ahead(self, op_id: str, upload: Upload) -> Upload:
        """Send a large file in pieces before its operation. Raises FrameTooLargeError."""
        content = upload.content
        if len(content) > MAX_UPLOAD_BYTES:
            raise FrameTooLargeError(f"a file of {len(content)} bytes exceeds {MAX_UPLOAD_BYTES}")
        for at in range(0, len(content), PIECE_BYTES):
            self._send(UploadPiece(op_id=op_id, data=content[at : at + PIECE_BYTES]))
        return replace(upload, content=b"")


def _operation_of(row: OutboxRow) -> Operation | TurnEnded:
    if row.kind == "ended":
        return msgspec.json.decode(row.payload, type=TurnEnded)
    found: Operation = msgspec.json.decode(row.payload, type=Operation)
    return found


def _entry_of(
    row: OutboxRow, operation: Operation | TurnEnded, *, unsure: bool, over: Collection[str]
) -> OutboxEntry:
    """Pure: its relations to other operations."""
    entry = OutboxEntry(row, operation, unsure, (row.op_id,))
    entry.answers = not isinstance(operation, TurnEnded) and operation.value in ("answer", "notice")
    match operation:
        case TurnEnded(outcome=outcome):
            entry.is_end = outcome != "interrupted"
            entry.ends = ("progress", row.turn_id) if row.turn_id else None
        case Update(target=ref):
            entry.role = entry.ends = ("edit", row.target_op_id or ref)
        case React(target=ref, mark=mark, remove=remove):
            entry.line = ("mark", ref, mark)
            entry.role, entry.ends = (None, entry.line) if remove else (entry.line, None)
        case _:
            entry.line = ("said", row.conversation)
            # Its message with the button; lines about tools stay.
            if isinstance(operation, Post) and operation.value == "progress" and operation.message.buttons:
                entry.role = ("progress", row.turn_id) if row.turn_id else None
                if row.turn_id in over:
                    entry.operation = replace(operation, outdated=True)
    return entry


def _left_behind(uow: UnitOfWork) -> tuple[list[OutboxRow], dict[str, str], frozenset[str]]:
    """The pending operations, the refs of their targets, and which of their turns are over, or soon will be:
    running turns are about to be marked interrupted."""
    rows = uow.outbox.find(state="pending")
    targets = {}
    for row in rows:
        target = uow.outbox.get(row.target_op_id)
        if target is not None and target.state != "pending":
            targets[target.op_id] = target.ref or ""
    turns = [uow.turns.get(turn_id) for turn_id in {row.turn_id for row in rows if row.turn_id}]
    over = frozenset(turn.id for turn in turns if turn is not None and turn.state not in WAITING)
    return rows, targets, over


class Agents(Protocol):
    """The agents of this repository by name. ``home`` is the HOME of their programs."""

    home: Path

    async def get(self, name: str, choice: Choice = CONFIGURED) -> AgentBackend:
        """With the model and the mode of ``choice``. Raises CodeButlerError with one line that says what to do."""

    async def workdir(self, conversation: str, *, task: str | None = None) -> Path:
        """Where this conversation's turns work: in the repository, or in its own worktree, which is made for
        ``task``. Raises CodeButlerError with one line."""

    async def worktrees(self) -> Worktrees:
        """The conversations' worktrees. Raises SandboxUnavailableError."""

    async def tree(self, workdir: Path) -> Tree:
        """The working tree at that path. Raises SandboxUnavailableError."""

    async def survey(self) -> tuple[Survey, ...]:
        """Each agent, and whether it is ready."""

    def release(self, conversation: str) -> None:
        """Start to release what is kept for this conversation."""

    async def close(self) -> None:
        """End every process of every agent."""


class Runtime:
    """One worker's runtime. ``send`` passes messages to the parent and never blocks; no file below ``home``
    is ever posted."""

    def __init__(
        self,
        configured: Configure,
        home: Home,
        store: Store,
        agents: Agents,
        clock: Clock,
        send: Callable[[object], None],
    ) -> None:
        self.settings = settings = configured.settings
        self.home = home
        self.private = (home.root,)
        self.followed = asyncio.Event()
        """Set when there is a new pull request to follow."""
        self.pushed: set[str] = set()
        """Commits that were pushed since this worker started, or are about to be."""
        self.skills = Library(settings, home)
        self.store = store
        self.agents = agents
        self.clock = clock
        self.send = send
        self.outbox = Outbox(store, send)
        self.fetcher = Fetcher(send, clock)
        self.elsewhere = configured.total or NO_REPORT
        """What the other repositories have used, as the parent last reported."""
        self.traces = Traces(clock, send)
        self.media = MediaService(settings.config.openai, settings.agent_env)
        self._commits: set[asyncio.Task[Any]] = set()

    @cached_property
    def redactor(self) -> Redactor:
        """Removes from agents' and programs' text this worker's secrets, and what looks like a secret."""
        return Redactor(secrets_in(self.settings))

    def log(self, tag: LogTag, text: str) -> None:
        """One line for the log, under the repository's name."""
        self.send(Log(tag=tag, text=text))

    def broke(self, name: str, error: BaseException) -> None:
        """Log that a background task failed, which is a bug of ours."""
        self.log("ERR", f"{name} broke: {error!r}")

    async def commit(self, work: Callable[[UnitOfWork], T], *, surely: str = "") -> T:
        """Run ``work`` as one transaction, then send its operations.

        If the caller is cancelled meanwhile, commit and sending still finish: a committed row that was not
        sent would wait until the next start. Raises StoreError, unless a full disk must not lose what is to be
        stored ``surely``: then the log names it, and it is tried again until the store takes it.
        """
        while True:
            writing = self.store.run(work, self.redactor.redact, self.outbox.publish)
            task = asyncio.create_task(writing, name="commit")
            self._commits.add(task)
            task.add_done_callback(self._commits.discard)
            try:
                return await asyncio.shield(task)
            except StoreError as error:
                if not surely:
                    raise
                self.log("ERR", f"{surely} is waiting for the store: {error}")
            await self.clock.sleep(STORE_RETRY_S)

    async def close(self) -> None:
        """Wait for the commits under way."""
        await asyncio.gather(*self._commits, return_exceptions=True)
