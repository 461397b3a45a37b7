"""Shows activity: a reaction on somebody's message, and "is typing" under a chat's name.

Telegram allows one reaction of ours on a message, from a fixed set: it shows the last mark that is still set.
"Typing" ends after five seconds, so it is repeated while work goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import MappingProxyType

from codebutler.chat.telegram.api import BotApi
from codebutler.chat.telegram.messages import Destination
from codebutler.domain.clock import Clock
from codebutler.domain.errors import ChatError
from codebutler.domain.model import Mark
from codebutler.platform.tasks import BoundedDict, Tasks

REACTIONS: Mapping[Mark, str] = MappingProxyType(
    {
        "queued": "👀",
        "working": "👨‍💻",
        "waiting": "🤔",
        "done": "👍",
        "failed": "👎",
        "stopped": "🤷",
    }
)
"""Telegram does not allow ⏳ ✅ ❌ 🛑 ✋."""
REMEMBERED = 5000

MessagePlace = tuple[int, int]
"""A chat and a message in it."""


class Marks:
    """The marks on the latest messages, as far as this process knows."""

    def __init__(self) -> None:
        self._set: BoundedDict[MessagePlace, tuple[Mark, ...]] = BoundedDict(REMEMBERED)

    def of(self, place: MessagePlace) -> tuple[Mark, ...]:
        """The marks that are set."""
        return self._set.get(place, ())

    def after(self, place: MessagePlace, mark: Mark, *, remove: bool) -> tuple[Mark, ...] | None:
        """The marks after the change; None if nothing changes. Marks set by an earlier process are unknown: removing
        one, and whatever replaced it, would be worse than leaving it."""
        before = self._set.get(place, ())
        if remove:
            return tuple(each for each in before if each != mark) if mark in before else None
        return (*(each for each in before if each != mark), mark) if before[-1:] != (mark,) else None

    def shown(self, marks: tuple[Mark, ...]) -> str:
        """The reaction that shows them, "" for none."""
        return REACTIONS[marks[-1]] if marks else ""

    def keep(self, place: MessagePlace, marks: tuple[Mark, ...]) -> None:
        """They are set now."""
        self._set[place] = marks


AGAIN_S = 4.5
LONGEST_S = 120.0
"""How long after the last update typing stops: the worker that sent it may have died."""

log = logging.getLogger("codebutler.chat.telegram")


class Typing:
    """Shows "is typing" in chats; ``close`` it when done."""

    def __init__(self, api: BotApi, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        self._until_s: dict[tuple[int, int], float] = {}
        self._tasks = Tasks(lambda name, error: log.error("%s failed: %r", name, error))

    async def show(self, place: Destination) -> None:
        """Show activity in the chat. Raises ChatError."""
        where = place.chat, place.topic
        is_shown = where in self._until_s
        self._until_s[where] = self._clock.monotonic() + LONGEST_S
        if not is_shown:
            try:
                await self._say(where)
            except BaseException:  # cancelled, too: nothing was shown that has to be repeated
                del self._until_s[where]
                raise
            self._tasks.start(self._go_on(where), name=f"typing in {place.chat}")

    def over(self, place: Destination) -> None:
        """Nothing is being done there any more, or the chat shows the result."""
        self._until_s.pop((place.chat, place.topic), None)

    async def close(self) -> None:
        """Stop at once."""
        await self._tasks.close(0)

    async def _go_on(self, where: tuple[int, int]) -> None:
        try:
            while True:
                await self._clock.sleep(AGAIN_S)
                if self._clock.monotonic() >= self._until_s.get(where, 0.0):
                    return
                await self._say(where)
        except ChatError as error:
            log.debug("%s", error)
        finally:
            self._until_s.pop(where, None)

    async def _say(self, where: tuple[int, int]) -> None:
        chat, topic = where
        await self._api.call("sendChatAction", chat_id=chat, action="typing", message_thread_id=topic or None)
