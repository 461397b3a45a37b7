"""Commands whose answer takes a moment: found outside the transaction, and given exactly once.

An errand is a row until it is answered. It changes nothing, so a start simply does again what an earlier life of
the worker left behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass

from codebutler.errors import CodeButlerError, StoreError
from codebutler.model import Upload
from codebutler_worker.desk.desk import Desk
from codebutler_worker.desk.draft import Draft, Place
from codebutler_worker.present.lines import code, one_line, plain
from codebutler_worker.present.progress import Message
from codebutler_worker.store.rows import ErrandRow

AT_ONCE = 4
MAX_ATTEMPTS = 3
STORE_RETRY_S = 5.0


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file in an answer."""

    filename: str
    content: bytes
    title: str


@dataclass(frozen=True, slots=True)
class Reply:
    """What an errand has found: messages, then files."""

    messages: tuple[Message, ...]
    files: tuple[Attachment, ...] = ()


Answer = Callable[[Desk, ErrandRow], Awaitable[Reply]]


class Errands:
    """One worker's errands under way. ``answers`` finds each command's reply."""

    def __init__(self, desk: Desk, answers: Mapping[str, Answer], load_changed: Callable[[], None]) -> None:
        self._desk = desk
        self._answers = answers
        self._load_changed = load_changed
        self._room = asyncio.Semaphore(AT_ONCE)
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
        async with self._room:
            reply = await self._answer(errand)
        while True:
            try:
                await self._desk.commit(lambda draft: _give(draft, errand, reply))
                return
            except StoreError as error:
                self._desk.report.log("ERR", f"an answer to !{errand.name} waits for the store: {error}")
                await self._desk.clock.sleep(STORE_RETRY_S)

    async def _answer(self, errand: ErrandRow) -> Reply:
        if errand.attempts >= MAX_ATTEMPTS:
            return _said(f"❌ {code('!' + errand.name)} has failed {MAX_ATTEMPTS} times and is given up.")
        try:
            await self._desk.commit(lambda draft: draft.uow.errands.begin(errand.id))
            return await self._answers[errand.name](self._desk, errand)
        except CodeButlerError as error:
            return _said(f"❌ {code('!' + errand.name)}: {plain(one_line(str(error), 500))}")
        except Exception as error:  # noqa: BLE001 - whatever breaks, the question gets an answer
            self._desk.report.log("ERR", f"!{errand.name} broke: {error!r}")
            return _said(f"❌ {code('!' + errand.name)} broke inside CodeButler: see its log.")

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self._desk.report.log("ERR", f"{task.get_name()} broke: {error!r}")
        self._load_changed()


def _said(text: str) -> Reply:
    return Reply((Message(text),))


def _give(draft: Draft, errand: ErrandRow, reply: Reply) -> None:
    place = Place(errand.conversation, errand.thread_ts, only_for=errand.only_for)
    for message in reply.messages:
        draft.post(place, message)
    for file in reply.files:
        upload = Upload(
            filename=file.filename, content=file.content, title=file.title, thread_ts=errand.thread_ts
        )
        draft.add(place, upload)
    draft.uow.errands.done(errand.id)
