"""What our buttons mean: Telegram takes 64 bytes with one, and anybody's client may send any.

So a button carries an id that nobody can guess, ``b:<page>-<random>``; what it means, and in which chat and on which
message, is on a page of notes.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from msgspec import Struct

from codebutler.chat.telegram.records import NotePages
from codebutler.chat.telegram.render import OPEN, TICKED, Key
from codebutler.domain.clock import Clock
from codebutler.domain.message import PICK_ACTION
from codebutler.intake.records import Notes

BYTES = 9
"""Of chance in an id: as many as nobody guesses, and 12 characters."""
PAGE = 100
CURRENT = "telegram.buttons"
HOME = "home"
"""The owner of what is on somebody's home."""
AGAIN_S = 30.0
"""Whoever presses the same button again within it has pressed it twice; after it, they mean it."""
REMEMBERED = 500
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
        if len(self._pressed) > REMEMBERED:
            self._pressed.popitem(last=False)
        return False

    def undone(self, data: str, user: str) -> None:
        """The press came to nothing: it may be done again."""
        self._pressed.pop((data, user), None)

    def flip(self, data: str, label: str) -> None:
        """Somebody ticked a box that shows ``label``, or took the tick away."""
        self._ticks[data] = not self.is_ticked(data, label)
        if len(self._ticks) > REMEMBERED:
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
        if len(self._shown) > REMEMBERED:
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
        if len(await self._pages.page(_name(self._page))) + more > PAGE:
            self._page += 1
            if self._notes is not None:
                await self._notes.keep_note(CURRENT, str(self._page))
        return self._page


def _name(page: int) -> str:
    return f"{CURRENT}.{page}"
