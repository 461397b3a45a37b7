"""What shows that something is done: a mark on somebody's message, and the line "is typing" under a chat's name.

Telegram shows one reaction of ours on a message, of a few that it allows: the last mark set and not taken away.
It ends the line after five seconds, so it is said again for as long as something is done.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Mapping
from types import MappingProxyType

from codebutler.chat.telegram.api import BotApi
from codebutler.chat.telegram.messages import Destination
from codebutler.domain.clock import Clock
from codebutler.domain.errors import ChatError
from codebutler.platform.tasks import Tasks

REACTIONS: Mapping[str, str] = MappingProxyType(
    {
        "hourglass_flowing_sand": "👀",
        "eyes": "👨‍💻",
        "raised_hand": "🤔",
        "white_check_mark": "👍",
        "x": "👎",
        "octagonal_sign": "🤷",
    }
)
"""Queued, working, waiting for a person, done, failed, stopped. ⏳ ✅ ❌ 🛑 ✋ are not allowed."""
REMEMBERED = 5000

MessagePlace = tuple[int, int]
"""A chat and a message there."""


class Marks:
    """What is set on each of the latest messages, as far as this life knows."""

    def __init__(self) -> None:
        self._set: OrderedDict[MessagePlace, tuple[str, ...]] = OrderedDict()

    def of(self, place: MessagePlace) -> tuple[str, ...]:
        """The marks that are set."""
        return self._set.get(place, ())

    def after(self, place: MessagePlace, name: str, *, remove: bool) -> tuple[str, ...] | None:
        """The marks that would be set; None if nothing would change. A mark of an earlier life is not known: to take
        it away, and with it what may have replaced it, is worse than to leave it."""
        before = self._set.get(place, ())
        if remove:
            return tuple(each for each in before if each != name) if name in before else None
        return (*(each for each in before if each != name), name) if before[-1:] != (name,) else None

    def shown(self, names: tuple[str, ...]) -> str:
        """The reaction that stands for them, "" for none."""
        known = [REACTIONS[name] for name in names if name in REACTIONS]
        return known[-1] if known else ""

    def keep(self, place: MessagePlace, names: tuple[str, ...]) -> None:
        """They are set now."""
        self._set[place] = names
        self._set.move_to_end(place)
        if len(self._set) > REMEMBERED:
            self._set.popitem(last=False)


AGAIN_S = 4.5
LONGEST_S = 120.0
"""After the last word of what is done: whoever does it may be dead."""

log = logging.getLogger("codebutler.chat.telegram")


class Typing:
    """``close`` it in the end."""

    def __init__(self, api: BotApi, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        self._until_s: dict[tuple[int, int], float] = {}
        self._tasks = Tasks(lambda name, error: log.error("%s failed: %r", name, error))

    async def show(self, place: Destination) -> None:
        """Something is done there. Raises ChatError."""
        where = place.chat, place.topic
        is_shown = where in self._until_s
        self._until_s[where] = self._clock.monotonic() + LONGEST_S
        if not is_shown:
            try:
                await self._say(where)
            except BaseException:
                del self._until_s[where]
                raise
            self._tasks.start(self._go_on(where), name=f"typing in {place.chat}")

    def over(self, place: Destination) -> None:
        """Nothing is done there any more, or the chat shows what came of it."""
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
