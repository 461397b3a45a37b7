"""Commands whose answer takes a moment: it is found outside the transaction and given exactly once.

A deferred command is a row until it is answered. It changes nothing, so a worker that starts simply runs again what the
one before it left behind. A long command takes several steps: what a step says, and how to go on, are one transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

from codebutler.domain.errors import CodeButlerError
from codebutler.domain.message import Message, said
from codebutler.domain.model import TurnOutcome, Upload
from codebutler.platform.tasks import cancel
from codebutler.text.markup import plain
from codebutler_worker.present.lines import code, one_line
from codebutler_worker.runtime.runtime import Runtime
from codebutler_worker.store.rows import DeferredRow
from codebutler_worker.store.unit_of_work import ThreadPlace, UnitOfWork

AT_ONCE = 4
ONE_AT_A_TIME = frozenset({"logs"})
"""These take memory: the next one begins when the chat has taken what this one sends."""
LINE = "line"
MAX_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file in an answer. ``key`` names it among the command's, for a later step to ask what became of it."""

    filename: str
    content: bytes
    title: str
    key: str = ""


@dataclass(frozen=True, slots=True)
class CommandReply:
    """What a command has found: messages, then files. ``line``: its one line, posted by the first step that has it and
    edited by the later ones. ``then``: the argument with which it goes on when all this was taken; "" = answered.
    ``ok``: whether it is what was asked for."""

    messages: tuple[Message, ...] = ()
    files: tuple[Attachment, ...] = ()
    line: Message | None = None
    then: str = ""
    ok: bool = True


Answer = Callable[[Runtime, DeferredRow], Awaitable[CommandReply]]


class DeferredCommands:
    """One worker's commands under way. ``answer_of`` names what finds each command's reply."""

    def __init__(
        self, runtime: Runtime, answer_of: Callable[[str], Answer], load_changed: Callable[[], None]
    ) -> None:
        self._runtime = runtime
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
        """Go on with what the previous worker left behind. Raises StoreError."""
        self.start(await self._runtime.commit(lambda uow: uow.deferred.all()))

    def start(self, commands: Iterable[DeferredRow]) -> None:
        """Begin commands whose rows are committed."""
        for command in commands:
            task = asyncio.create_task(self._run(command), name=f"command {command.name} {command.id}")
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    async def idle(self) -> None:
        """Wait until all are answered."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    async def close(self) -> None:
        """Leave what is under way to the next worker."""
        await cancel(self._tasks)

    async def _run(self, command: DeferredRow) -> None:
        step: DeferredRow | None = command
        while step is not None:
            async with self._rooms.get(step.name, self._room):
                then = await self._step(step)
            step = replace(step, argument=then, attempts=0) if then else None

    async def _step(self, command: DeferredRow) -> str:
        """Returns the argument to go on with."""
        reply = await self._answer(command)
        what = f"an answer to !{command.name}"
        given = await self._runtime.commit_surely(partial(_give, command=command, reply=reply), what)
        if given is None:
            return ""  # withdrawn meanwhile
        then = reply.then
        reply = CommandReply()  # its files are the outbox's now
        for op_id in given if then else ():
            await self._runtime.outbox.settled(op_id)
        return then

    async def _answer(self, command: DeferredRow) -> CommandReply:
        if command.attempts >= MAX_ATTEMPTS:
            return _failed(f"❌ {code('!' + command.name)} failed {MAX_ATTEMPTS} times. Giving up.")
        try:
            await self._runtime.commit(lambda uow: uow.deferred.begin(command.id))
            return await self._answer_of(command.name)(self._runtime, command)
        except CodeButlerError as error:
            return _failed(f"❌ {code('!' + command.name)}: {plain(one_line(str(error), 500))}")
        except Exception as error:  # noqa: BLE001 - whatever breaks, the question gets an answer
            self._runtime.log("ERR", f"!{command.name} broke: {error!r}")
            return _failed(f"❌ {code('!' + command.name)} broke inside CodeButler: see its log.")

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self._runtime.broke(task.get_name(), error)
        self._load_changed()


def _failed(text: str) -> CommandReply:
    return CommandReply((said(text),), ok=False)


def sent_as(command_id: str, key: str) -> str:
    """The operation that carries a command's file; ``LINE``: its one line."""
    return f"{command_id}-{key}"


def say_line(uow: UnitOfWork, command: DeferredRow, line: Message) -> None:
    """Post or edit the command's one line."""
    op_id, place = sent_as(command.id, LINE), _place_of(command)
    if uow.outbox.get(op_id) is not None:
        uow.edit(place, op_id, line)
    else:
        uow.post(place, line, op_id=op_id)


def tell_ended(uow: UnitOfWork, command: DeferredRow, outcome: TurnOutcome) -> None:
    """Tell who waits for the message that asked; a slash command has none."""
    if ts := command.id.partition(":")[2]:
        uow.ended(_place_of(command), (ts,), outcome)


def _place_of(command: DeferredRow) -> ThreadPlace:
    return ThreadPlace(command.conversation, command.thread_ts, only_for=command.only_for)


def _give(uow: UnitOfWork, command: DeferredRow, reply: CommandReply) -> list[str] | None:
    """Returns the ids of what must be taken before it goes on; None if it was withdrawn."""
    if uow.deferred.get(command.id) is None:
        return None
    place = _place_of(command)
    if reply.line is not None:
        say_line(uow, command, reply.line)
    given = [uow.post(place, message) for message in reply.messages]
    for file in reply.files:
        upload = Upload(
            filename=file.filename, content=file.content, title=file.title, thread_ts=command.thread_ts
        )
        op_id = sent_as(command.id, file.key) if file.key else None
        given.append(uow.add(place, upload, op_id=op_id))
    if reply.then:
        uow.deferred.go_on(command.id, reply.then)
    else:
        uow.deferred.done(command.id)
        tell_ended(uow, command, "done" if reply.ok else "failed")
    return given
