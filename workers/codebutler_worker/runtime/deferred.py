"""Deferred commands: commands that take a moment are answered outside the transaction, exactly once.

A deferred command is a row until it is answered. It changes nothing, so a starting worker simply runs those
of the previous one again. A long command takes several steps: a step's posts and its continuation are one
transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from codebutler.domain.errors import CodeButlerError
from codebutler.domain.message import Message, said
from codebutler.domain.model import TurnOutcome, Upload, Value
from codebutler.platform.tasks import cancel
from codebutler.text.markup import plain
from codebutler.text.wording import one_line
from codebutler_worker.present.lines import code
from codebutler_worker.runtime.runtime import Runtime
from codebutler_worker.store.rows import DeferredRow, channel_of, key_of
from codebutler_worker.store.unit_of_work import ThreadPlace, UnitOfWork

AT_ONCE = 4
ONE_AT_A_TIME: Mapping[str, str] = {"logs": "logs", "checks": "checks", "push": "push", "pr": "push"}
"""Commands with the same value never run together: the next one begins when the chat has taken the output of this one.
Logs take memory, checks take time, and two pushes of a branch conflict."""
LINE = "line"
MAX_ATTEMPTS = 3


class Attachment(Struct, frozen=True):
    """A file in an answer. ``key`` names it within the command, so that a later step can ask for its outcome."""

    filename: str
    content: bytes
    title: str
    key: str = ""


Also = Callable[[UnitOfWork, DeferredRow], None]


class CommandReply(Struct, frozen=True):
    """The result of a command or step: messages, then files. ``line``: its one line, posted by the first step
    that has it and edited by later ones. ``then``: the argument for the next step, once the chat has taken
    all this; "" = answered. ``waits``: something else starts that step when it is due. ``ok``: whether it succeeded.
    ``also``: what else belongs to the same transaction; it may queue a turn."""

    messages: tuple[Message, ...] = ()
    files: tuple[Attachment, ...] = ()
    line: Message | None = None
    then: str = ""
    waits: bool = False
    ok: bool = True
    also: Also | None = None


Answer = Callable[[Runtime, DeferredRow], Awaitable[CommandReply]]


class DeferredCommands:
    """One worker's commands under way. ``answer_of`` finds each command's answer; ``wake`` is called when one
    may have queued a turn."""

    def __init__(
        self,
        runtime: Runtime,
        answer_of: Callable[[str], Answer],
        load_changed: Callable[[], None],
        wake: Callable[[], None],
    ) -> None:
        self._runtime = runtime
        self._answer_of = answer_of
        self._load_changed = load_changed
        self._wake = wake
        self._room = asyncio.Semaphore(AT_ONCE)
        self._rooms = {room: asyncio.Semaphore(1) for room in ONE_AT_A_TIME.values()}
        self._tasks: dict[asyncio.Task[None], str] = {}

    @property
    def running(self) -> int:
        """How many are unanswered."""
        return len(self._tasks)

    async def restore(self) -> None:
        """Continue the previous worker's commands. Raises StoreError."""
        self.start(await self._runtime.commit(lambda uow: uow.deferred.find()))

    def start(self, commands: Iterable[DeferredRow]) -> None:
        """Start commands whose rows are committed, except those already running."""
        known = set(self._tasks.values())
        for command in commands:
            if command.id in known:
                continue
            task = asyncio.create_task(self._run(command), name=f"command {command.name} {command.id}")
            self._tasks[task] = command.id
            task.add_done_callback(self._ended)

    def withdraw(self, command_ids: Collection[str]) -> None:
        """Cancel commands whose rows are deleted, or are to start again."""
        for task, command_id in self._tasks.items():
            if command_id in command_ids:
                task.cancel()

    async def idle(self) -> None:
        """Wait until all are answered."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    async def close(self) -> None:
        """Leave the rest to the next worker."""
        await cancel(set(self._tasks))

    async def _run(self, command: DeferredRow) -> None:
        step: DeferredRow | None = command
        while step is not None:
            async with self._rooms.get(ONE_AT_A_TIME.get(step.name, ""), self._room):
                then = await self._step(step)
            step = replace(step, argument=then, attempts=0) if then else None

    async def _step(self, command: DeferredRow) -> str:
        """Returns the argument of the next step."""
        reply = await self._answer(command)
        what = f"an answer to !{command.name}"
        given = await self._runtime.commit(partial(_give, command=command, reply=reply), surely=what)
        if given is None:
            return ""  # withdrawn meanwhile
        self._wake()
        then = "" if reply.waits else reply.then
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
            return _failed(
                f"❌ {code('!' + command.name)} failed with an internal error: see CodeButler's log."
            )

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if not task.cancelled() and (error := task.exception()):
            self._runtime.broke(task.get_name(), error)
        self._wake()  # An interrupted or waiting command may start now.
        self._load_changed()


def _failed(text: str) -> CommandReply:
    return CommandReply((said(text),), ok=False)


def sent_as(command_id: str, key: str) -> str:
    """The operation of a command's file; ``LINE``: of its one line."""
    return f"{command_id}-{key}"


def say_line(uow: UnitOfWork, command: DeferredRow, line: Message, *, value: Value = "progress") -> None:
    """Post or edit the command's one line; an edit is worth ``value``."""
    op_id, place = sent_as(command.id, LINE), _place_of(command)
    if uow.outbox.get(op_id) is not None:
        uow.edit(place, op_id, line, value=value)
    else:
        uow.post(place, line, op_id=op_id)


def tell_ended(uow: UnitOfWork, command: DeferredRow, outcome: TurnOutcome) -> None:
    """Report the outcome of the command's message; a slash command has none."""
    if ref := key_of(command.id, channel_of(command.conversation)):
        uow.ended(_place_of(command), (ref,), outcome)


def _place_of(command: DeferredRow) -> ThreadPlace:
    return ThreadPlace(command.conversation, command.thread, only_for=command.only_for)


def _give(uow: UnitOfWork, command: DeferredRow, reply: CommandReply) -> list[str] | None:
    """Returns the IDs that the chat must take before the next step; None if it was withdrawn, or a person has since
    decided that another step comes next."""
    current = uow.deferred.get(command.id)
    if current is None or current.argument != command.argument:
        return None
    place = _place_of(command)
    if reply.line is not None:
        say_line(uow, command, reply.line)
    if reply.also is not None:
        reply.also(uow, command)
    given = [uow.post(place, message) for message in reply.messages]
    for file in reply.files:
        upload = Upload(filename=file.filename, content=file.content, title=file.title, thread=command.thread)
        op_id = sent_as(command.id, file.key) if file.key else None
        given.append(uow.add(place, upload, op_id=op_id))
    if reply.then:
        uow.deferred.go_on(command.id, reply.then)
    else:
        uow.deferred.delete(id=command.id)
        tell_ended(uow, command, "done" if reply.ok else "failed")
    return given
