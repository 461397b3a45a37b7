"""What has to be remembered of Telegram's chats, as it tells nothing twice: kept in the journal's notes.

A note holds a page of entries, so that each change writes little and nothing has to be dropped: messages by their chat
and number, buttons by an id that names the page.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Generic, TypeVar

import msgspec
from msgspec import Struct

from codebutler.chat.telegram.rules import name_of, ts_of
from codebutler.domain.errors import StoreError
from codebutler.domain.model import File
from codebutler.intake.records import Notes

T = TypeVar("T", bound=Struct)

PAGE = 128
"""Messages whose numbers follow each other share a page."""
OPEN_PAGES = 64
MOVED = "telegram.moved"
ASKED = "telegram.unserved"
MOST_ASKED = 1000

log = logging.getLogger("codebutler.chat.telegram")


class ReasonAsked(Struct, frozen=True, omit_defaults=True):
    """A message of ours asks why not: an answer to it is a press of the button on the card, with words. ``channel``:
    where the card is."""

    card: str
    value: str
    thread: str = ""
    channel: str = ""


class KnownMessage(Struct, frozen=True, omit_defaults=True):
    """What is remembered of a message. ``thread``: the ts of the conversation that it belongs to, "" if it begins one.
    ``topic``: it is one, reached under this number. ``is_ours``: we know that we sent it. ``parts``: the numbers of the
    messages that it goes on in; ``part_of``: it is one of those."""

    thread: str = ""
    topic: int = 0
    is_ours: bool = False
    parts: tuple[int, ...] = ()
    part_of: int = 0
    files: tuple[File, ...] = ()
    asked: ReasonAsked | None = None


class NotePages(Generic[T]):
    """Pages of one kind. Without ``notes`` they are known for this life only."""

    def __init__(self, notes: Notes | None, kind: type[T]) -> None:
        self._notes = notes
        self._kind = kind
        self._open: OrderedDict[str, dict[str, T]] = OrderedDict()
        self._unsaved: set[str] = set()
        """Pages that the disk does not have as they are: written again with the next change, and not closed before."""

    async def page(self, name: str) -> Mapping[str, T]:
        """All that stands on a page. Raises StoreError."""
        return await self._page(name)

    async def put(self, name: str, entries: Mapping[str, T]) -> None:
        """Keep entries, in place of those of the same keys. Known at once, and on disk when this returns. Raises
        StoreError."""
        page = await self._page(name)
        if name not in self._unsaved and all(page.get(key) == entry for key, entry in entries.items()):
            return
        page.update(entries)
        if self._notes is not None:
            self._unsaved.add(name)
            await self._notes.keep_note(name, msgspec.json.encode(page).decode())
            self._unsaved.discard(name)

    async def _page(self, name: str) -> dict[str, T]:
        if (page := self._open.get(name)) is None:
            kept = await self._notes.note(name) if self._notes is not None else ""
            # Somebody else may have read it meanwhile.
            page = self._open.setdefault(name, self._read(name, kept))
        self._open.move_to_end(name)
        if self._notes is not None and len(self._open) > OPEN_PAGES:
            oldest = next(iter(self._open))
            if oldest in self._unsaved:
                self._open.move_to_end(oldest)
            else:
                del self._open[oldest]
        return page

    def _read(self, name: str, kept: str) -> dict[str, T]:
        try:
            return msgspec.json.decode(kept, type=dict[str, self._kind]) if kept else {}  # type: ignore[name-defined]
        except msgspec.DecodeError as error:
            log.warning("the note %s cannot be read and is begun anew: %s", name, error)
            return {}


class MessageRecords:
    """``open`` it before use."""

    def __init__(self, notes: Notes | None) -> None:
        self._notes = notes
        self._messages: NotePages[KnownMessage] = NotePages(notes, KnownMessage)
        self._moved: dict[int, int] = {}
        self._asked: list[str] = []
        self._newest: dict[int, int] = {}
        self._names: OrderedDict[str, str] = OrderedDict()

    async def open(self) -> None:
        """Read which groups have another number now. Raises StoreError."""
        kept = await self._notes.note(MOVED) if self._notes is not None else ""
        try:
            self._moved = msgspec.json.decode(kept, type=dict[int, int]) if kept else {}
        except msgspec.DecodeError as error:
            log.warning("the note %s cannot be read: groups that have moved are not known: %s", MOVED, error)

    async def moved(self, old: int, new: int) -> bool:
        """The group ``old`` is the supergroup ``new``: to us it stays what it was. False if that was known. Raises
        StoreError."""
        if self._moved.get(old) == new:
            return False
        self._moved[old] = new
        if self._notes is not None:
            await self._notes.keep_note(MOVED, msgspec.json.encode(self._moved).decode())
        return True

    def channel(self, chat: int) -> str:
        """Our name of a chat."""
        return name_of(self._before(chat))

    def chat(self, channel_chat: int) -> int:
        """The number under which a chat is reached now."""
        return self._moved.get(channel_chat, channel_chat)

    def ts(self, chat: int, message: int) -> str:
        """The ts of a message of the chat that is reached as ``chat``."""
        self._newest[chat] = max(message, self._newest.get(chat, 0))
        return ts_of(chat, message, self._era(chat))

    def order(self, chat: int) -> str:
        """What sorts behind all that is known to be written in a chat."""
        return ts_of(chat, self._newest.get(chat, 0), self._era(chat))

    async def known(self, chat: int, message: int) -> KnownMessage:
        """What is remembered of a message. Raises StoreError."""
        page = await self._messages.page(_page_of(chat, message))
        return page.get(str(message), KnownMessage())

    async def keep(
        self, chat: int, message: int, change: Callable[[KnownMessage], KnownMessage]
    ) -> KnownMessage:
        """Remember something else of a message. Raises StoreError."""
        after = change(await self.known(chat, message))
        await self._messages.put(_page_of(chat, message), {str(message): after})
        return after

    async def is_first(self, channel: str) -> bool:
        """Whether this is asked of a channel for the first time. Raises StoreError."""
        kept = await self._notes.note(ASKED) if self._notes is not None else " ".join(self._asked)
        self._asked = kept.split()
        if channel in self._asked:
            return False
        self._asked = [*self._asked, channel][-MOST_ASKED:]
        if self._notes is not None:
            await self._notes.keep_note(ASKED, " ".join(self._asked))
        return True

    def met(self, user: str, name: str) -> None:
        """What somebody is called."""
        self._names[user] = name
        self._names.move_to_end(user)
        if len(self._names) > 1000:
            self._names.popitem(last=False)

    def called(self, user: str) -> str:
        """What they were called last in this life; "" if they were not heard."""
        return self._names.get(user, "")

    def _before(self, chat: int) -> int:
        return next((old for old, new in self._moved.items() if new == chat), chat)

    def _era(self, chat: int) -> int:
        return int(chat in self._moved.values())


async def kept(work: Awaitable[object]) -> None:
    """What was done in the chat is done, even if the disk cannot remember more of it."""
    try:
        await work
    except StoreError as error:
        log.warning("not kept for the next start: %s", error)


def _page_of(chat: int, message: int) -> str:
    return f"telegram.messages.{chat}.{message // PAGE}"
