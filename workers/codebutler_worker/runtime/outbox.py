"""The outbox: committed operations are sent in order and marked when the chat has taken them.

Event driven, so that a committed answer leaves at once: whoever commits rows hands them over (``publish``),
the parent's answers come back (``sent``, ``failed``). The table is read once, at start: what it still holds
then was sent without an answer, or never, so it goes out as ``unsure`` and the parent looks before it posts.

The end of a turn is sent the same way, after its answer, until the parent confirms it.
What a later operation makes needless is not sent: an edit, after a later one of the same message; a mark, after its
removal; the progress of a turn, after the turn's end.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

import msgspec

from codebutler.domain.errors import FrameTooLargeError
from codebutler.domain.model import Operation, Post, React, Update, Upload
from codebutler.platform.killpoints import reached
from codebutler.protocol.messages import MAX_UPLOAD_BYTES, PIECE_BYTES, Send, TurnEnded, UploadPiece
from codebutler_worker.store.rows import OutboxRow
from codebutler_worker.store.store import Store
from codebutler_worker.store.unit_of_work import UnitOfWork

# Of each kind so many are out at once. Chats take reactions slowly: they hold up no answer.
WINDOWS = {"post": 64, "upload": 64, "update": 64, "react": 100, "ended": 64}
REMEMBERED = 1024
TARGET_FAILED = "target_failed"
TOO_LARGE = "too_large"
# Turns in these states go on after a restart.
WAITING = frozenset({"queued", "parked"})

Key = tuple[str, ...]


@dataclass(slots=True, eq=False)
class OutboxEntry:
    """An operation that is not done. It waits until its row's target is: an update needs its post's ts, a final mark
    comes after the answer, a closing line after the last edit of what it closes.

    ``line``: what keeps its order, of what is said in a conversation, and of a mark, which would be taken away before
    it is set. ``role``: as what a later one may make it needless; ``ends``: the role of what this one makes needless.
    ``answers``: a turn is not over without it; ``is_end``: it says that a turn is over.
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
    """One worker's operations under way. At most a window of each kind is out at once; the rest wait in order.

    ``_ts`` remembers where recent operations ended up; "" stands for refused.
    """

    def __init__(self, store: Store, send: Callable[[Send | TurnEnded | UploadPiece], None]) -> None:
        self._store = store
        self._send = send
        self._entries: dict[str, OutboxEntry] = {}
        """In order."""
        self._roles: dict[Key, OutboxEntry] = {}
        self._out: Counter[str] = Counter()
        self._ts: OrderedDict[str, str] = OrderedDict()
        self._drained = asyncio.Event()
        self._drained.set()

    @property
    def pending(self) -> int:
        """How many operations the chat has not taken yet."""
        return len(self._entries)

    async def restore(self) -> int:
        """Send again what the previous worker left behind. Returns how many operations there were."""
        rows, targets, over = await self._store.run(_left_behind)
        self._ts.update(targets)
        self._accept([(replace(row, payload=""), _operation_of(row)) for row in rows], unsure=True, over=over)
        await self._pump()
        return len(rows)

    async def publish(self, committed: Iterable[tuple[OutboxRow, Operation | TurnEnded]]) -> None:
        """Send operations whose rows have just been committed."""
        needless, outdated = self._accept(committed, unsure=False)
        for op_id in needless:
            await self.sent(op_id, "")
        await self._pump()
        for entry in outdated:
            # The parent need not post any more what it has not posted yet.
            if entry.row.op_id in self._entries and isinstance(entry.operation, Post):
                post = msgspec.structs.replace(entry.operation, outdated=True)
                self._send(Send(op_id=entry.row.op_id, operation=post, unsure=True))

    async def sent(self, op_id: str, ts: str) -> None:
        """The parent reports it done: mark the row, and release what waited for its ts. A second report changes
        nothing."""
        if op_id not in self._entries:
            return
        reached("mark.before")
        await self._store.run(lambda uow: uow.outbox.posted(op_id, ts))
        reached("mark.after")
        self._settle(op_id, ts)
        await self._pump()

    async def failed(self, op_id: str, code: str) -> None:
        """The parent reports that it will never be done: mark the row; updates that waited for it fail, too."""
        await self._store.run(lambda uow: uow.outbox.failed(op_id, code))
        self._settle(op_id, "")
        await self._pump()

    async def settled(self, op_id: str) -> None:
        """Wait until the operation was taken or refused."""
        if found := self._entries.get(op_id):
            await found.done.wait()

    async def drained(self) -> None:
        """Wait until nothing is under way."""
        await self._drained.wait()

    async def _pump(self) -> None:
        """Send in order what may be sent, and give up what never can."""
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
            await self.failed(op_id, code)

    def _accept(
        self,
        found: Iterable[tuple[OutboxRow, Operation | TurnEnded]],
        *,
        unsure: bool,
        over: Collection[str] = frozenset(),
    ) -> tuple[list[str], list[OutboxEntry]]:
        """``over``: turns whose progress nobody follows any more. Returns what need not be sent, and what was sent and
        is of no use any more."""
        needless: list[str] = []
        outdated: list[OutboxEntry] = []
        for row, operation in found:
            entry = self._entries[row.op_id] = _entry_of(row, operation, unsure=unsure)
            if (
                isinstance(operation, Post)
                and row.turn_id in over
                and entry.role == ("progress", row.turn_id)
            ):
                entry.operation = msgspec.structs.replace(operation, outdated=True)
            before = self._roles.get(entry.ends) if entry.ends else None
            if before is not None and before.state == "waiting":
                before.state = "needless"
                needless.append(before.row.op_id)
                if isinstance(operation, React):
                    entry.state = "needless"
                    needless.append(row.op_id)
            elif before is not None:
                outdated.append(before)
            # What may be in the chat already is not taken back.
            if entry.role and (not unsure or isinstance(operation, Update)):
                self._roles[entry.role] = entry
        if self._entries:
            self._drained.clear()
        return needless, outdated

    def _send_entry(self, entry: OutboxEntry) -> str:
        """Returns why it can never be sent, "" if it was."""
        operation, target = entry.operation, entry.row.target_op_id
        if target is not None and isinstance(operation, Update):
            if not self._ts.get(target):
                entry.state = "needless"
                return TARGET_FAILED
            operation = msgspec.structs.replace(operation, target_ts=self._ts[target])
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
        """A large file goes ahead of its operation, in pieces. Raises FrameTooLargeError."""
        content = upload.content
        if len(content) > MAX_UPLOAD_BYTES:
            raise FrameTooLargeError(f"a file of {len(content)} bytes exceeds {MAX_UPLOAD_BYTES}")
        for at in range(0, len(content), PIECE_BYTES):
            self._send(UploadPiece(op_id=op_id, data=content[at : at + PIECE_BYTES]))
        return msgspec.structs.replace(upload, content=b"")

    def _settle(self, op_id: str, ts: str) -> None:
        self._ts[op_id] = ts
        while len(self._ts) > REMEMBERED:
            self._ts.popitem(last=False)
        if (entry := self._entries.pop(op_id, None)) is not None:
            entry.done.set()
            self._out[entry.row.kind] -= entry.state == "out"
            if entry.role and self._roles.get(entry.role) is entry:
                del self._roles[entry.role]
        if not self._entries:
            self._drained.set()


def _operation_of(row: OutboxRow) -> Operation | TurnEnded:
    if row.kind == "ended":
        return msgspec.json.decode(row.payload, type=TurnEnded)
    found: Operation = msgspec.json.decode(row.payload, type=Operation)
    return found


def _entry_of(row: OutboxRow, operation: Operation | TurnEnded, *, unsure: bool) -> OutboxEntry:
    """Pure: what else it has to do with."""
    entry = OutboxEntry(row, operation, unsure, (row.op_id,))
    entry.answers = not isinstance(operation, TurnEnded) and operation.value in ("answer", "notice")
    match operation:
        case TurnEnded(outcome=outcome):
            entry.is_end = outcome != "interrupted"
            entry.ends = ("progress", row.turn_id) if row.turn_id else None
        case Update(target_ts=ts):
            entry.role = entry.ends = ("edit", row.target_op_id or ts)
        case React(target_ts=ts, name=name, remove=remove):
            entry.line = ("mark", ts, name)
            entry.role, entry.ends = (None, entry.line) if remove else (entry.line, None)
        case _:
            entry.line = ("said", row.conversation)
            # The one with its button; a line about a tool stays.
            if isinstance(operation, Post) and operation.value == "progress" and operation.message.buttons:
                entry.role = ("progress", row.turn_id) if row.turn_id else None
    return entry


def _left_behind(uow: UnitOfWork) -> tuple[list[OutboxRow], dict[str, str], frozenset[str]]:
    """What is pending, where the targets of that are, and which of its turns are over, or soon will be: what ran is
    interrupted now."""
    rows = uow.outbox.pending()
    targets = {}
    for row in rows:
        target = uow.outbox.get(row.target_op_id)
        if target is not None and target.state != "pending":
            targets[target.op_id] = target.ts or ""
    turns = [uow.turns.get(turn_id) for turn_id in {row.turn_id for row in rows if row.turn_id}]
    over = frozenset(turn.id for turn in turns if turn is not None and turn.state not in WAITING)
    return rows, targets, over
