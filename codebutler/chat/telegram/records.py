"""What has to be remembered of Telegram's chats, as it tells nothing twice, and what our buttons mean: kept in the
journal's notes.

A note holds a page of entries, so that each change writes little and nothing has to be dropped: messages by their chat
and number, buttons by an id that names the page.
Telegram takes 64 bytes with a button, and anybody's client may send any: so it carries an id that nobody can guess,
``b:<page>-<random>``; what it means, in which chat and on which message, is in the notes.
"""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from codebutler.chat.telegram.render import OPEN, TICKED, Key
from codebutler.chat.telegram.rules import name_of, ts_of
from codebutler.domain.clock import Clock
from codebutler.domain.errors import StoreError
from codebutler.domain.message import PICK_ACTION
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
    messages that it goes on in; ``part_of``: it is one of those. ``title``: it began in the General of a forum, and so
    is called the topic that its conversation gets."""

    thread: str = ""
    topic: int = 0
    is_ours: bool = False
    parts: tuple[int, ...] = ()
    part_of: int = 0
    files: tuple[File, ...] = ()
    asked: ReasonAsked | None = None
    title: str = ""


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


BYTES = 9
"""Of chance in an id: as many as nobody guesses, and 12 characters."""
BUTTONS_ON_PAGE = 100
CURRENT = "telegram.buttons"
HOME = "home"
"""The owner of what is on somebody's home."""
AGAIN_S = 30.0
"""Whoever presses the same button again within it has pressed it twice; after it, they mean it."""
PRESSES_REMEMBERED = 500
STYLES = {"primary": "success", "danger": "danger"}

_DATA = re.compile(r"b:([0-9]{1,9})-([A-Za-z0-9_-]{8,24})")

Pressable = tuple[str, str]
"""An action and its value."""


class ButtonMeaning(Struct, frozen=True, omit_defaults=True):
    """``message``: the number of the message that bears it, 0 while that is not known. ``is_home``: it is on somebody's
    home, and its value says where what it decides about is."""

    chat: int
    action: str
    value: str
    message: int = 0
    is_home: bool = False


class Buttons:
    """``random`` makes ids of a number of bytes (``secrets.token_urlsafe``)."""

    def __init__(self, notes: Notes | None, clock: Clock, random: Callable[[int], str]) -> None:
        self._notes = notes
        self._clock = clock
        self._random = random
        self._pages: NotePages[ButtonMeaning] = NotePages(notes, ButtonMeaning)
        self._page = -1
        self._shown: OrderedDict[tuple[int, str], dict[Pressable, str]] = OrderedDict()
        """The ids that a message bears, or that of an operation: an edit keeps those of what it still offers."""
        self._pressed: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._ticks: OrderedDict[str, bool] = OrderedDict()
        """Boxes that somebody has ticked, or not, in this life; what a message shows tells of the others."""

    async def keyboard(
        self, chat: int, owner: str, rows: Sequence[Sequence[Key]], message: int = 0
    ) -> dict[str, Any] | None:
        """The reply_markup for ``rows``, whose ids are on disk then; None for none. ``owner``: the operation or the
        message that it belongs to. Raises StoreError."""
        if not rows:
            return None
        wanted = {(key.action, key.value) for row in rows for key in row}
        ids = await self._ids(chat, owner, wanted, message)
        return {
            "inline_keyboard": [[self._key(key, ids[key.action, key.value]) for key in row] for row in rows]
        }

    async def stands(self, chat: int, owner: str, ts: str, message: int) -> None:
        """What was offered for ``owner`` stands on ``message`` now, which is known as ``ts``. Raises StoreError."""
        if (ids := self._shown.pop((chat, owner), None)) is None:
            return
        self._shown[chat, ts] = ids
        is_home = owner == HOME
        await self._keep({data: ButtonMeaning(chat, *each, message, is_home) for each, data in ids.items()})

    async def meant(self, data: str, chat: int) -> ButtonMeaning | None:
        """What a press means; None if no button of ours in that chat is called so. Raises StoreError."""
        if not (found := _DATA.fullmatch(data)):
            return None
        button = (await self._pages.page(_name(int(found[1])))).get(data)
        return button if button is not None and button.chat == chat else None

    def is_repeated(self, data: str, user: str) -> bool:
        """Whether ``user`` has just pressed it. Else it counts as pressed now, unless that is ``undone``."""
        now_s = self._clock.monotonic()
        if now_s - self._pressed.get((data, user), -AGAIN_S) < AGAIN_S:
            return True
        self._pressed[data, user] = now_s
        if len(self._pressed) > PRESSES_REMEMBERED:
            self._pressed.popitem(last=False)
        return False

    def undone(self, data: str, user: str) -> None:
        """The press came to nothing: it may be done again."""
        self._pressed.pop((data, user), None)

    def flip(self, data: str, label: str) -> None:
        """Somebody ticked a box that shows ``label``, or took the tick away."""
        self._ticks[data] = not self.is_ticked(data, label)
        if len(self._ticks) > PRESSES_REMEMBERED:
            self._ticks.popitem(last=False)

    def is_ticked(self, data: str, label: str) -> bool:
        """Whether a box that shows ``label`` is ticked."""
        return self._ticks.get(data, label.startswith(TICKED))

    def labelled(self, data: str, label: str) -> str:
        """The label of a box as it is to be now; of another button, its own."""
        if not label.startswith((TICKED, OPEN)):
            return label
        return (TICKED if self.is_ticked(data, label) else OPEN) + label[len(OPEN) :]

    def _key(self, key: Key, data: str) -> dict[str, Any]:
        label = self.labelled(data, key.label) if key.action == PICK_ACTION else key.label
        shown = {"text": label, "callback_data": data}
        return {**shown, "style": STYLES[key.style]} if key.style else shown

    async def _ids(
        self, chat: int, owner: str, wanted: Collection[Pressable], message: int
    ) -> Mapping[Pressable, str]:
        shown = self._shown.setdefault((chat, owner), {})
        self._shown.move_to_end((chat, owner))
        if len(self._shown) > PRESSES_REMEMBERED:
            self._shown.popitem(last=False)
        fresh = [each for each in wanted if each not in shown]
        if fresh:
            page = await self._current(len(fresh))
            made = {f"b:{page}-{self._random(BYTES)}": each for each in fresh}
            is_home = owner == HOME
            await self._keep(
                {data: ButtonMeaning(chat, *each, message, is_home) for data, each in made.items()}
            )
            shown.update({each: data for data, each in made.items()})
        for gone in [each for each in shown if each not in wanted]:
            del shown[gone]
        return shown

    async def _keep(self, buttons: Mapping[str, ButtonMeaning]) -> None:
        by_page: dict[str, dict[str, ButtonMeaning]] = {}
        for data, button in buttons.items():
            number = data.removeprefix("b:").partition("-")[0]
            by_page.setdefault(_name(int(number)), {})[data] = button
        for name, entries in by_page.items():
            await self._pages.put(name, entries)

    async def _current(self, more: int) -> int:
        """The page that new ones are written on. Raises StoreError."""
        if self._page < 0:
            kept = await self._notes.note(CURRENT) if self._notes is not None else ""
            self._page = int(kept) if kept.isdecimal() else 0
        if len(await self._pages.page(_name(self._page))) + more > BUTTONS_ON_PAGE:
            self._page += 1
            if self._notes is not None:
                await self._notes.keep_note(CURRENT, str(self._page))
        return self._page


def _name(page: int) -> str:
    return f"{CURRENT}.{page}"
