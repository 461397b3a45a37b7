"""Files out of Telegram: up to 20 MB, from a path that Telegram names and that is looked at before it is used."""

from __future__ import annotations

import re
from collections.abc import Mapping

from codebutler.chat.port import Take
from codebutler.chat.telegram.api import BotApi
from codebutler.domain.clock import Clock
from codebutler.domain.errors import ChatError, ChatRateLimitedError, ChatUnreachableError
from codebutler.domain.model import File

MAX_BYTES = 20 * 2**20
ATTEMPTS = 3
RETRY_S = 2.0

_PATH = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*(?:/[A-Za-z0-9_-][A-Za-z0-9_.-]*){0,8}")


class Downloads:
    """One attempt at the content, several at finding out where it is."""

    def __init__(self, api: BotApi, clock: Clock) -> None:
        self._api = api
        self._clock = clock

    async def fetch(self, file: File, take: Take) -> None:
        """Give the content to ``take``. Raises ChatError: too_large, file_not_found, untrusted_host, refused,
        unreachable."""
        if file.size_bytes > MAX_BYTES:
            raise ChatError("Telegram gives bots files of up to 20 MB", "too_large")
        await self._api.fetch(await self._path(file), MAX_BYTES, take)

    async def _path(self, file: File) -> str:
        for attempt in range(ATTEMPTS):
            try:
                found = await self._api.call("getFile", file_id=file.id)
                break
            except ChatRateLimitedError as error:
                wait_s = error.retry_after_s
            except ChatUnreachableError:
                wait_s = RETRY_S
            if attempt == ATTEMPTS - 1:
                raise ChatError(code="unreachable")
            await self._clock.sleep(wait_s)
        path = found.get("file_path") if isinstance(found, Mapping) else None
        if not isinstance(path, str) or not _PATH.fullmatch(path):
            raise ChatError("Telegram names no path of a file", "untrusted_host")
        return path
