"""Commands whose answer takes a moment: found outside the transaction, and given exactly once.

An errand is a row until it is answered. It changes nothing, so a start simply does again what an earlier life of
the worker left behind. A long one goes in steps: what a step says, and how to go on, are one transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace

from codebutler.errors import CodeButlerError, StoreError
from codebutler.message import Message, said
from codebutler.model import Post, TurnOutcome, Upload
from codebutler.text.markup import plain
from codebutler_worker.desk.desk import Desk
from codebutler_worker.desk.draft import Draft, Place
from codebutler_worker.present.lines import code, one_line
from codebutler_worker.store.rows import ErrandRow

AT_ONCE = 4
ONE_AT_A_TIME = frozenset({"logs"})
"""What takes memory: the next one begins when what this one sends has been taken."""
LINE = "line"
MAX_ATTEMPTS = 3
STORE_RETRY_S = 5.0


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file in an answer. ``key`` names it among the errand's, for a later step to ask what became of it."""

    filename: str
    content: bytes
    title: str
    key: str = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """What an errand has found: messages, then files. ``line``: its one line, posted by the first step that has it and
    edited by the later ones. ``then``: the argument with which it goes on when all this was taken; "" = answered.
    ``ok``: whether it is what was asked for."""

    messages: tuple[Message, ...] = ()
    files: tuple[Attachment, ...] = ()
    line: Message | None = None
    then: str = ""
    ok: bool = True


Answer = Callable[[Desk, ErrandRow], Awaitable[Reply]]


class Errands:
    """One worker's errands under way. ``answer_of`` names what finds each command's reply."""

    def __init__(
        self, desk: Desk, answer_of: Callable[[str], Answer], load_changed: Callable[[], None]
    ) -> None:
        self._desk = desk
        self._answer_of = answer_of
        self._load_changed = load_changed
        self._room = asyncio.Semaphore(AT_ONCE)
        self._rooms = {name: asyncio.Semaphore(1) for name in ONE_AT_A_TIME}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def running(self) -> int:
        """How many are not answered yet."""
        return len(self._tasks)

    async def restore(self) -> None:
        """Go on with what an earlier life of this worker left behind. Raises StoreError."""
        self.start(await self._desk.commit(lambda draft: draft.uow.errands.all()))

    def start(self, errands: Iterable[ErrandRow]) -> None:
        """Begin errands whose rows are committed."""
        for errand in errands:
            task = asyncio.create_task(self._run(errand), name=f"errand {errand.name} {errand.id}")
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    async def idle(self) -> None:
        """Wait until all are answered."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    async def close(self) -> None:
        """Leave what is under way to the next life."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, errand: ErrandRow) -> None:
        step: ErrandRow | None = errand
        while step is not None:
            async with self._rooms.get(step.name, self._room):
                then = await self._step(step)
            step = replace(step, argument=then, attempts=0) if then else None

    async def _step(self, errand: ErrandRow) -> str:
        """Returns the argument to go on with."""
        reply = await self._answer(errand)
        while True:
            try:
                given = await self._desk.commit(lambda draft: _give(draft, errand, reply))
                break
            except StoreError as error:
                self._desk.report.log("ERR", f"an answer to !{errand.name} waits for the store: {error}")
                await self._desk.clock.sleep(STORE_RETRY_S)
        if given is None:
            return ""  # withdrawn meanwhile
        then = reply.then
        reply = Reply()  # its files are the outbox's now
        for op_id in given if then else ():
            await self._desk.outbox.settled(op_id)
        return then

    async def _answer(self, errand: ErrandRow) -> Reply:
        if errand.attempts >= MAX_ATTEMPTS:
            return _failed(f"❌ {code('!' + errand.name)} has failed {MAX_ATTEMPTS} times and is given up.")
        try:
            await self._desk.commit(lambda draft: draft.uow.errands.begin(errand.id))
            return await self._answer_of(errand.name)(self._desk, errand)
        except CodeButlerError as error:
            return _failed(f"❌ {code('!' + errand.name)}: {plain(one_line(str(error), 500))}")
        except Exception as error:  # noqa: BLE001 - whatever breaks, the question gets an answer
            self._desk.report.log("ERR", f"!{errand.name} broke: {error!r}")
            return _failed(f"❌ {code('!' + errand.name)} broke inside CodeButler: see its log.")

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self._desk.report.log("ERR", f"{task.get_name()} broke: {error!r}")
        self._load_changed()


def _failed(text: str) -> Reply:
    return Reply((said(text),), ok=False)


def sent_as(errand_id: str, key: str) -> str:
    """The operation that carries an errand's file; ``LINE``: its one line."""
    return f"{errand_id}-{key}"


def say_line(draft: Draft, errand: ErrandRow, line: Message) -> None:
    """Post or edit the errand's one line."""
    op_id = sent_as(errand.id, LINE)
    place = Place(errand.conversation, errand.thread_ts)
    if draft.uow.outbox.get(op_id) is not None:
        draft.edit(place, op_id, line)
        return
    post = Post(message=line, thread_ts=errand.thread_ts, only_for=errand.only_for)
    draft.add(place, post, op_id=op_id)


def told_over(draft: Draft, errand: ErrandRow, outcome: TurnOutcome) -> None:
    """Tell who waits for the message that asked; a slash command has none."""
    if ts := errand.id.partition(":")[2]:
        draft.ended(Place(errand.conversation, errand.thread_ts), (ts,), outcome)


def _give(draft: Draft, errand: ErrandRow, reply: Reply) -> list[str] | None:
    """The ids of what is to be taken before it goes on; None if nobody wants it any more."""
    if draft.uow.errands.get(errand.id) is None:
        return None
    place = Place(errand.conversation, errand.thread_ts, only_for=errand.only_for)
    if reply.line is not None:
        say_line(draft, errand, reply.line)
    given = [draft.post(place, message) for message in reply.messages]
    for file in reply.files:
        upload = Upload(
            filename=file.filename, content=file.content, title=file.title, thread_ts=errand.thread_ts
        )
        op_id = sent_as(errand.id, file.key) if file.key else None
        given.append(draft.add(place, upload, op_id=op_id))
    if reply.then:
        draft.uow.errands.go_on(errand.id, reply.then)
    else:
        draft.uow.errands.done(errand.id)
        told_over(draft, errand, "done" if reply.ok else "failed")
    return given
