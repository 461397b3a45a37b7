"""What is to be said, on its way out: committed rows are sent in order and marked when Slack has taken them.

Event driven, so that a committed answer leaves at once: whoever commits rows hands them over (``publish``),
the parent's answers come back (``sent``, ``failed``). The table is read once, at start: what it still holds
then was sent without an answer, or never, so it goes out as ``unsure`` and the parent looks before it posts.

The end of a turn goes the same way, when what answers it is there: it is told until the parent says that it has heard.
What a later row makes needless (see `_makes_needless`) is not sent.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

import msgspec

from codebutler.errors import FrameTooLargeError
from codebutler.model import Operation, Post, React, Update, Upload
from codebutler.process.killpoints import reached
from codebutler.protocol.messages import MAX_UPLOAD_BYTES, PIECE_BYTES, Send, TurnEnded, UploadPiece
from codebutler_worker.store.rows import OutboxRow
from codebutler_worker.store.unit_of_work import Store, UnitOfWork

WINDOW = 64
# Slack takes reactions slowly: they must hold up no answer, nor the first of them the later ones.
MARKS_WINDOW = 100
REMEMBERED = 1024
TARGET_FAILED = "target_failed"
TOO_LARGE = "too_large"
# Turns in these states go on after a restart.
WAITING = frozenset({"queued", "parked"})


@dataclass(frozen=True, slots=True)
class Parcel:
    """The ``number``-th operation, held back until ``target_op_id`` is done: an update needs its post's ts, a
    final mark comes after the answer, a closing line after the last edit of what it closes."""

    op_id: str
    conversation: str
    operation: Operation | TurnEnded
    number: int
    target_op_id: str | None = None
    unsure: bool = False
    turn_id: str | None = None

    @property
    def answers(self) -> bool:
        """Whether it says what a turn is not over without."""
        return not isinstance(self.operation, TurnEnded) and self.operation.value in ("answer", "notice")


@dataclass(slots=True)
class _Lane:
    """Operations of a kind; the parent keeps their order among themselves only."""

    window: int = WINDOW
    queue: deque[Parcel] = field(default_factory=deque)
    out: set[str] = field(default_factory=set)

    @property
    def ready(self) -> bool:
        """Whether something waits and there is room for it."""
        return bool(self.queue) and len(self.out) < self.window

    def first(self) -> int:
        """The number of what waits longest."""
        return self.queue[0].number


class Outbox:
    """One worker's operations under way. At most a window of each kind is out at once; the rest wait in order.

    ``_ts`` remembers where recent operations ended up; "" stands for refused.
    """

    def __init__(self, store: Store, send: Callable[[Send | TurnEnded | UploadPiece], None]) -> None:
        self._store = store
        self._send = send
        self._decoder: msgspec.json.Decoder[Operation] = msgspec.json.Decoder(Operation)
        self._posts, self._updates, self._marks, self._endings = (
            _Lane(),
            _Lane(),
            _Lane(MARKS_WINDOW),
            _Lane(),
        )
        self._lanes = (self._posts, self._updates, self._marks, self._endings)
        self._count = 0
        self._held: dict[str, list[Parcel]] = {}
        self._unsettled: dict[str, tuple[Parcel, asyncio.Event]] = {}
        self._outdated: list[tuple[str, Post]] = []
        self._roles: dict[tuple[str, ...], Parcel] = {}
        self._ts: OrderedDict[str, str] = OrderedDict()
        self._drained = asyncio.Event()
        self._drained.set()

    @property
    def pending(self) -> int:
        """How many operations Slack has not taken yet."""
        return len(self._unsettled)

    async def restore(self) -> int:
        """Send again what an earlier life of this worker left behind. Returns how many there were."""
        rows, targets, over = await self._store.run(_left_behind)
        for op_id, ts in targets.items():
            self._remember(op_id, ts)
        self._accept(rows, unsure=True, over=over)
        await self.pump()
        return len(rows)

    async def publish(self, rows: Iterable[OutboxRow]) -> None:
        """Send rows that have just been committed."""
        for op_id in self._accept(rows, unsure=False):
            await self.sent(op_id, "")
        await self.pump()
        self._tell_outdated()

    async def sent(self, op_id: str, ts: str) -> None:
        """The parent says that it is done: mark the row, and let go what waited for its ts. What is said twice counts
        once."""
        if op_id not in self._unsettled:
            return
        reached("mark.before")
        await self._store.run(lambda uow: uow.outbox.posted(op_id, ts))
        reached("mark.after")
        self._remember(op_id, ts)
        self._release(op_id)
        self._settle(op_id)
        await self.pump()

    async def failed(self, op_id: str, code: str) -> None:
        """The parent says that it will never be done: mark the row; updates that waited for it go with it."""
        await self._store.run(lambda uow: uow.outbox.failed(op_id, code))
        self._remember(op_id, "")
        self._release(op_id)
        self._settle(op_id)
        await self.pump()

    async def settled(self, op_id: str) -> None:
        """Wait until the operation was taken or refused."""
        if found := self._unsettled.get(op_id):
            await found[1].wait()

    async def drained(self) -> None:
        """Wait until nothing is under way."""
        await self._drained.wait()

    async def pump(self) -> None:
        """Send what may go, and give up what cannot."""
        for op_id, code in self._send_ready():
            await self.failed(op_id, code)

    def _accept(
        self, rows: Iterable[OutboxRow], *, unsure: bool, over: Collection[str] = frozenset()
    ) -> list[str]:
        """``over``: turns whose progress nobody follows any more. Returns what need not be sent."""
        needless: list[str] = []
        for row in rows:
            operation = self._decoded(row)
            if _is_progress_message(operation) and row.turn_id in over:
                operation = msgspec.structs.replace(operation, outdated=True)
            self._count += 1
            parcel = Parcel(
                row.op_id, row.conversation, operation, self._count, row.target_op_id, unsure, row.turn_id
            )
            before = self._roles.get(_makes_needless(parcel) or ())
            taken_back = before is not None and self._taken_back(before)
            if before is not None and taken_back:
                needless.append(before.op_id)
            self._unsettled[row.op_id] = (parcel, asyncio.Event())
            if taken_back and isinstance(operation, React):
                needless.append(row.op_id)
                continue
            self._lane(operation).queue.append(parcel)
            if role := _role(parcel):
                self._roles[role] = parcel
        if self._unsettled:
            self._drained.clear()
        return needless

    def _taken_back(self, parcel: Parcel) -> bool:
        """Whether it had not been sent, and is not any more."""
        lane = self._lane(parcel.operation)
        if parcel.op_id in lane.out:
            if isinstance(parcel.operation, Post):
                self._outdated.append((parcel.op_id, parcel.operation))
            return False
        for waiting in (lane.queue, *self._held.values()):
            if parcel in waiting:
                waiting.remove(parcel)
        return True

    def _tell_outdated(self) -> None:
        """The parent need not post any more what it has not posted yet."""
        for op_id, post in self._outdated:
            if op_id in self._unsettled:
                outdated = msgspec.structs.replace(post, outdated=True)
                self._send(Send(op_id=op_id, operation=outdated, unsure=True))
        self._outdated.clear()

    def _decoded(self, row: OutboxRow) -> Operation | TurnEnded:
        if row.kind == "ended":
            return msgspec.json.decode(row.payload, type=TurnEnded)
        return self._decoder.decode(row.payload)

    def _lane(self, operation: Operation | TurnEnded) -> _Lane:
        match operation:
            case TurnEnded():
                return self._endings
            case Update():
                return self._updates
            case React():
                return self._marks
            case _:
                return self._posts

    def _send_ready(self) -> list[tuple[str, str]]:
        """Send in order while the windows have room. Returns what can never be sent, and why."""
        hopeless: list[tuple[str, str]] = []
        while lanes := [lane for lane in self._lanes if lane.ready]:
            lane = min(lanes, key=_Lane.first)
            parcel = lane.queue.popleft()
            if not self._hold(parcel) and (code := self._send_parcel(lane, parcel)):
                hopeless.append((parcel.op_id, code))
        return hopeless

    def _hold(self, parcel: Parcel) -> bool:
        """Keep back what has to wait for its target, or behind something that waits."""
        target = parcel.target_op_id
        if target is None or target in self._ts or target not in self._unsettled:
            target = self._held_before(parcel)
        if target is None:
            return False
        self._held.setdefault(target, []).append(parcel)
        return True

    def _held_before(self, parcel: Parcel) -> str | None:
        """What that waits for which this one must not overtake."""
        if isinstance(parcel.operation, TurnEnded):
            return self._answer_before(parcel) if parcel.operation.outcome != "interrupted" else None
        if isinstance(parcel.operation, Update):
            return None
        for target, held in self._held.items():
            if any(each.number < parcel.number and _in_line(each, parcel) for each in held):
                return target
        return None

    def _answer_before(self, parcel: Parcel) -> str | None:
        """The last of what was said before in its conversation and is not there yet."""
        for op_id, (each, _) in reversed(self._unsettled.items()):
            if each.number < parcel.number and each.conversation == parcel.conversation and each.answers:
                return op_id
        return None

    def _send_parcel(self, lane: _Lane, parcel: Parcel) -> str:
        """Returns why it can never be sent, "" if it was."""
        target = parcel.target_op_id
        if target is not None and isinstance(parcel.operation, Update) and not self._ts.get(target):
            return TARGET_FAILED
        lane.out.add(parcel.op_id)
        operation = self._addressed(parcel)
        if isinstance(operation, TurnEnded):
            self._send(operation)
            return ""
        try:
            self._send_whole(Send(op_id=parcel.op_id, operation=operation, unsure=parcel.unsure))
        except FrameTooLargeError:
            return TOO_LARGE
        return ""

    def _send_whole(self, message: Send) -> None:
        """A large file goes ahead of its operation, in pieces. Raises FrameTooLargeError."""
        operation = message.operation
        if isinstance(operation, Upload) and len(operation.content) > PIECE_BYTES:
            content = operation.content
            if len(content) > MAX_UPLOAD_BYTES:
                raise FrameTooLargeError(f"a file of {len(content)} bytes exceeds {MAX_UPLOAD_BYTES}")
            for at in range(0, len(content), PIECE_BYTES):
                self._send(UploadPiece(op_id=message.op_id, data=content[at : at + PIECE_BYTES]))
            message = msgspec.structs.replace(
                message, operation=msgspec.structs.replace(operation, content=b"")
            )
        self._send(message)

    def _release(self, op_id: str) -> None:
        """Let go what waited for the operation, before what came later."""
        for parcel in reversed(self._held.pop(op_id, [])):
            self._lane(parcel.operation).queue.appendleft(parcel)

    def _addressed(self, parcel: Parcel) -> Operation | TurnEnded:
        if parcel.target_op_id is None or not isinstance(parcel.operation, Update):
            return parcel.operation
        return msgspec.structs.replace(parcel.operation, target_ts=self._ts[parcel.target_op_id])

    def _remember(self, op_id: str, ts: str) -> None:
        self._ts[op_id] = ts
        while len(self._ts) > REMEMBERED:
            self._ts.popitem(last=False)

    def _settle(self, op_id: str) -> None:
        for lane in self._lanes:
            lane.out.discard(op_id)
        if found := self._unsettled.pop(op_id, None):
            found[1].set()
            role = _role(found[0])
            if role is not None and self._roles.get(role) is found[0]:
                del self._roles[role]
        if not self._unsettled:
            self._drained.set()


def _is_progress_message(operation: Operation | TurnEnded) -> bool:
    """The one of a turn, with its button; a line about a tool stays."""
    return isinstance(operation, Post) and operation.value == "progress" and bool(operation.message.buttons)


def _role(parcel: Parcel) -> tuple[str, ...] | None:
    """As what something later may make it needless; what may be in the chat already is not taken back."""
    match parcel.operation:
        case Update(target_ts=ts):
            return ("edit", parcel.target_op_id or ts)
        case React(target_ts=ts, name=name, remove=False) if not parcel.unsure:
            return ("mark", ts, name)
        case Post() as post if _is_progress_message(post) and parcel.turn_id and not parcel.unsure:
            return ("progress", parcel.turn_id)
    return None


def _makes_needless(parcel: Parcel) -> tuple[str, ...] | None:
    """The role of what nobody needs any more once there is this: an edit, by a later one of the same message; a mark,
    by its removal; the progress of a turn, by the turn's end."""
    match parcel.operation:
        case Update():
            return _role(parcel)
        case React(target_ts=ts, name=name, remove=True):
            return ("mark", ts, name)
        case TurnEnded() if parcel.turn_id:
            return ("progress", parcel.turn_id)
    return None


def _in_line(before: Parcel, after: Parcel) -> bool:
    """Whether the order of the two is seen: of what is said in a conversation, and of a mark, which would be taken
    away before it is set."""
    first, second = before.operation, after.operation
    if isinstance(second, React):
        return isinstance(first, React) and (first.target_ts, first.name) == (second.target_ts, second.name)
    return not isinstance(first, Update | React | TurnEnded) and before.conversation == after.conversation


def _left_behind(uow: UnitOfWork) -> tuple[list[OutboxRow], dict[str, str], frozenset[str]]:
    """What is pending, where the targets of that are, and which of its turns are over, or soon will be: what ran is
    interrupted now."""
    rows = uow.outbox.pending()
    targets = {}
    for row in rows:
        target = uow.outbox.get(row.target_op_id) if row.target_op_id else None
        if target is not None and target.state != "pending":
            targets[target.op_id] = target.ts or ""
    turns = [uow.turns.get(turn_id) for turn_id in {row.turn_id for row in rows if row.turn_id}]
    over = frozenset(turn.id for turn in turns if turn is not None and turn.state not in WAITING)
    return rows, targets, over
