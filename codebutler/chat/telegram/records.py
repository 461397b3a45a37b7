"""Notes about Telegram's messages, which Telegram delivers only once, and about the meaning of our buttons; kept in the
journal.

A note holds a page of entries, so that each change writes little and nothing has to be dropped: messages by
their chat and number, buttons by an ID that names the page. Telegram allows 64 bytes per button, and any
client may send any value: so it carries an unguessable ID, ``b:<page>-<random>``; its meaning, its chat and
its message are in the notes.
"""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from codebutler.chat.telegram.render import OPEN, TICKED, InlineButton
from codebutler.chat.telegram.rules import channel_of, ref_of
from codebutler.domain.clock import Clock
from codebutler.domain.errors import ChatUnreachableError, StoreError
from codebutler.domain.message import PICK_ACTION
from codebutler.domain.model import File
from codebutler.domain.refs import NO_CHANNEL, NOWHERE, ConversationRef, MessageRef, PersonRef
from codebutler.intake.records import Notes
from codebutler.platform.tasks import BoundedDict

T = TypeVar("T", bound=Struct)

PAGE = 128
"""Messages with consecutive numbers share a page."""
OPEN_PAGES = 64
MOVED_NOTE = "telegram.moved"
INTRODUCED_NOTE = "telegram.unserved"
MAX_INTRODUCED = 1000
NAMES_REMEMBERED = 1000
ID_BYTES = 9
"""Random bytes in an ID: unguessable, and 12 characters."""
BUTTONS_ON_PAGE = 100
BUTTONS_NOTE = "telegram.buttons"
HOME = "home"
"""The owner of the buttons on somebody's home."""
DOUBLE_PRESS_S = 30.0
"""Pressing the same button again within this time is a double press; after it, it is intended."""
PRESSES_REMEMBERED = 500
STYLES = {"primary": "success", "danger": "danger"}
_DATA = re.compile(r"b:([0-9]{1,9})-([A-Za-z0-9_-]{8,24})")
Pressable = tuple[str, str]
"""An action and its value."""

log = logging.getLogger("codebutler.chat.telegram")


class ReasonPrompt(Struct, frozen=True, omit_defaults=True):
    """A message of ours that asks for a reason: a reply to it is a press of the card's button, with words.
    ``channel``: the card's."""

    card: MessageRef
    value: str
    thread: MessageRef = NOWHERE
    channel: ConversationRef = NO_CHANNEL


class KnownMessage(Struct, frozen=True, omit_defaults=True):
    """A message's note. ``thread``: the ref of its conversation, "" if it starts one. ``topic``: it is one,
    reached under this number. ``is_ours``: we know that we sent it. ``parts``: the numbers of its further
    messages; ``part_of``: it is one of those. ``title``: it started in a forum's General, and this is the
    name for its conversation's topic."""

    thread: MessageRef = NOWHERE
    topic: int = 0
    is_ours: bool = False
    parts: tuple[int, ...] = ()
    part_of: int = 0
    files: tuple[File, ...] = ()
    asked: ReasonPrompt | None = None
    title: str = ""


class NotePages(Generic[T]):
    """Pages of one kind."""

    def __init__(self, notes: Notes, page: type[dict[str, T]]) -> None:
        self._notes = notes
        self._page_of = msgspec.json.Decoder(page)
        self._open: OrderedDict[str, dict[str, T]] = OrderedDict()
        self._unsaved: set[str] = set()
        """Pages that are newer than on disk: written again with the next change, and not dropped from memory
        before."""

    async def put(self, name: str, entries: Mapping[str, T]) -> None:
        """Set entries, replacing those with the same keys. Effective at once, and on disk when this returns.
        Raises StoreError."""
        page = await self.page(name)
        if name not in self._unsaved and all(page.get(key) == entry for key, entry in entries.items()):
            return
        page.update(entries)
        self._unsaved.add(name)
        await self._notes.keep_note(name, msgspec.json.encode(page).decode())
        self._unsaved.discard(name)

    async def page(self, name: str) -> dict[str, T]:
        """All entries of a page; only ``put`` changes them. Raises StoreError."""
        if (page := self._open.get(name)) is None:
            note = await self._notes.note(name)
            # Another task may have read it meanwhile.
            page = self._open.setdefault(name, self._read(name, note))
        self._open.move_to_end(name)
        if len(self._open) > OPEN_PAGES:
            oldest = next(iter(self._open))
            if oldest in self._unsaved:
                self._open.move_to_end(oldest)
            else:
                del self._open[oldest]
        return page

    def _read(self, name: str, note: str) -> dict[str, T]:
        try:
            return self._page_of.decode(note) if note else {}
        except msgspec.DecodeError as error:
            log.warning("cannot read the note %s, starting with an empty one: %s", name, error)
            return {}


class MessageRecords:
    """The notes about messages, chats and names; ``open`` it before use."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._messages: NotePages[KnownMessage] = NotePages(notes, dict[str, KnownMessage])
        self._moved: dict[int, int] = {}
        self._newest: dict[int, int] = {}
        self._names: BoundedDict[PersonRef, str] = BoundedDict(NAMES_REMEMBERED)

    async def open(self) -> None:
        """Read which groups have new numbers. Raises StoreError."""
        note = await self._notes.note(MOVED_NOTE)
        try:
            self._moved = msgspec.json.decode(note, type=dict[int, int]) if note else {}
        except msgspec.DecodeError as error:
            log.warning(
                "cannot read the note %s, so groups that have moved are unknown: %s", MOVED_NOTE, error
            )

    async def record_move(self, old: int, new: int) -> bool:
        """The group ``old`` became the supergroup ``new``: for us it stays the same. False if that was known.
        Raises StoreError."""
        if self._moved.get(old) == new:
            return False
        self._moved[old] = new
        await self._notes.keep_note(MOVED_NOTE, msgspec.json.encode(self._moved).decode())
        return True

    def channel(self, chat: int) -> ConversationRef:
        """Our name for a chat."""
        return channel_of(next((old for old, new in self._moved.items() if new == chat), chat))

    def chat(self, channel_chat: int) -> int:
        """A chat's current number."""
        return self._moved.get(channel_chat, channel_chat)

    def ref(self, chat: int, message: int) -> MessageRef:
        """The ref of a message of the chat that is reached as ``chat``."""
        self._newest[chat] = max(message, self._newest.get(chat, 0))
        return ref_of(chat, message, self._era(chat))

    def order(self, chat: int) -> str:
        """Sorts after everything known to be written in a chat."""
        return ref_of(chat, self._newest.get(chat, 0), self._era(chat))

    async def get(self, chat: int, message: int) -> KnownMessage:
        """A message's note. Raises StoreError."""
        page = await self._messages.page(_page_of(chat, message))
        return page.get(str(message), KnownMessage())

    async def update(
        self, chat: int, message: int, change: Callable[[KnownMessage], KnownMessage]
    ) -> KnownMessage:
        """Change a message's note. Raises StoreError."""
        after = change(await self.get(chat, message))
        await self._messages.put(_page_of(chat, message), {str(message): after})
        return after

    async def mark_introduced(self, channel: ConversationRef) -> bool:
        """Whether this is the first call for a channel. Raises StoreError."""
        introduced = (await self._notes.note(INTRODUCED_NOTE)).split()
        if channel in introduced:
            return False
        await self._notes.keep_note(INTRODUCED_NOTE, " ".join([*introduced, channel][-MAX_INTRODUCED:]))
        return True

    def remember_name(self, user: PersonRef, name: str) -> None:
        """Record somebody's name."""
        self._names[user] = name

    def name_of(self, user: PersonRef) -> str:
        """Their last name in this process; "" if they were not heard."""
        return self._names.get(user, "")

    def _era(self, chat: int) -> int:
        return int(chat in self._moved.values())


async def try_save(work: Awaitable[object]) -> None:
    """A call that was made stays made, even if the disk cannot record it."""
    try:
        await work
    except StoreError as error:
        log.warning("not saved for the next start: %s", error)


@contextmanager
def retryable() -> Iterator[None]:
    """While the disk is full, what needs our notes waits, as if the chat could not be reached. Raises
    ChatUnreachableError for a StoreError."""
    try:
        yield
    except StoreError as error:
        raise ChatUnreachableError(f"a message is waiting: {error}", "unreachable") from error


def _page_of(chat: int, message: int) -> str:
    return f"telegram.messages.{chat}.{message // PAGE}"


class ButtonMeaning(Struct, frozen=True, omit_defaults=True):
    """What a button does. ``message``: the number of its message, 0 while unknown. ``is_home``: it is on somebody's
    home, and its value names the place of what it decides."""

    chat: int
    action: str
    value: str
    message: int = 0
    is_home: bool = False


class Buttons:
    """The meanings of our buttons, by ID. ``random`` makes IDs of a number of bytes (``secrets.token_urlsafe``)."""

    def __init__(self, notes: Notes, clock: Clock, random: Callable[[int], str]) -> None:
        self._notes = notes
        self._clock = clock
        self._random = random
        self._pages: NotePages[ButtonMeaning] = NotePages(notes, dict[str, ButtonMeaning])
        self._page = -1
        self._shown: BoundedDict[tuple[int, str], dict[Pressable, str]] = BoundedDict(PRESSES_REMEMBERED)
        """The IDs on a message, or of an operation: an edit keeps those that it still offers."""
        self._pressed: BoundedDict[tuple[str, PersonRef], float] = BoundedDict(PRESSES_REMEMBERED)
        self._ticks: BoundedDict[str, bool] = BoundedDict(PRESSES_REMEMBERED)
        """Boxes ticked or unticked in this process; the message shows the others' state."""

    async def keyboard(
        self, chat: int, owner: str, rows: Sequence[Sequence[InlineButton]], message: int = 0
    ) -> dict[str, Any] | None:
        """The reply_markup for ``rows``, whose IDs are on disk when it returns; None for none. ``owner``: the
        operation or the message that it belongs to. Raises StoreError."""
        if not rows:
            return None
        pressables = {(key.action, key.value) for row in rows for key in row}
        ids = await self._ids(chat, owner, pressables, message)
        return {
            "inline_keyboard": [
                [self._button_json(key, ids[key.action, key.value]) for key in row] for row in rows
            ]
        }

    async def move_to(self, chat: int, owner: str, ref: MessageRef, message: int) -> None:
        """The buttons of ``owner`` are on ``message`` now, which is ``ref``. Raises StoreError."""
        if (ids := self._shown.pop((chat, owner), None)) is None:
            return
        self._shown[chat, ref] = ids
        is_home = owner == HOME
        await self._save({data: ButtonMeaning(chat, *each, message, is_home) for each, data in ids.items()})

    async def meaning_of(self, data: str, chat: int) -> ButtonMeaning | None:
        """The meaning of a press; None if no button of ours in that chat has this ID. Raises StoreError."""
        if not (found := _DATA.fullmatch(data)):
            return None
        button = (await self._pages.page(_page_name(int(found[1])))).get(data)
        return button if button is not None and button.chat == chat else None

    def is_repeated(self, data: str, user: PersonRef) -> bool:
        """Whether ``user`` has just pressed it. Otherwise this is a press, until ``forget_press``."""
        now_s = self._clock.monotonic()
        if now_s - self._pressed.get((data, user), -DOUBLE_PRESS_S) < DOUBLE_PRESS_S:
            return True
        self._pressed[data, user] = now_s
        return False

    def forget_press(self, data: str, user: PersonRef) -> None:
        """The press had no effect: it may be repeated."""
        self._pressed.pop((data, user), None)

    def flip(self, data: str, label: str) -> None:
        """Somebody toggled a box that shows ``label``."""
        self._ticks[data] = not self.is_ticked(data, label)

    def is_ticked(self, data: str, label: str) -> bool:
        """Whether a box that shows ``label`` is ticked."""
        return self._ticks.get(data, label.startswith(TICKED))

    def current_label(self, data: str, label: str) -> str:
        """A box's current label; another button's own."""
        if not label.startswith((TICKED, OPEN)):
            return label
        return (TICKED if self.is_ticked(data, label) else OPEN) + label[len(OPEN) :]

    def _button_json(self, key: InlineButton, data: str) -> dict[str, Any]:
        label = self.current_label(data, key.label) if key.action == PICK_ACTION else key.label
        fields = {"text": label, "callback_data": data}
        return {**fields, "style": STYLES[key.style]} if key.style else fields

    async def _ids(
        self, chat: int, owner: str, pressables: Collection[Pressable], message: int
    ) -> Mapping[Pressable, str]:
        ids = self._shown.setdefault((chat, owner), {})
        self._shown.move_to_end((chat, owner))
        new = [each for each in pressables if each not in ids]
        if new:
            page = await self._page_with_room(len(new))
            new_ids = {f"b:{page}-{self._random(ID_BYTES)}": each for each in new}
            is_home = owner == HOME
            await self._save(
                {data: ButtonMeaning(chat, *each, message, is_home) for data, each in new_ids.items()}
            )
            ids.update({each: data for data, each in new_ids.items()})
        for removed in [each for each in ids if each not in pressables]:
            del ids[removed]
        return ids

    async def _save(self, buttons: Mapping[str, ButtonMeaning]) -> None:
        by_page: dict[str, dict[str, ButtonMeaning]] = {}
        for data, button in buttons.items():
            number = data.removeprefix("b:").partition("-")[0]
            by_page.setdefault(_page_name(int(number)), {})[data] = button
        for name, entries in by_page.items():
            await self._pages.put(name, entries)

    async def _page_with_room(self, more: int) -> int:
        if self._page < 0:
            note = await self._notes.note(BUTTONS_NOTE)
            self._page = int(note) if note.isdecimal() else 0
        if len(await self._pages.page(_page_name(self._page))) + more > BUTTONS_ON_PAGE:
            self._page += 1
            await self._notes.keep_note(BUTTONS_NOTE, str(self._page))
        return self._page


def _page_name(page: int) -> str:
    return f"{BUTTONS_NOTE}.{page}"
