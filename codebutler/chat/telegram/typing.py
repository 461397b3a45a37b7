"""The line "is typing" under a chat's name, for as long as something is done: Telegram ends it after five seconds."""

from __future__ import annotations

import logging

from codebutler.chat.telegram.api import BotApi
from codebutler.chat.telegram.messages import Place
from codebutler.domain.clock import Clock
from codebutler.domain.errors import ChatError
from codebutler.platform.tasks import Tasks

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

    async def show(self, place: Place) -> None:
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

    def over(self, place: Place) -> None:
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
