"""Names of people, to be shown instead of their IDs where somebody reads (Slack: users.info, scope users:read).

They are looked up beside everything else, so nothing ever waits for one: until a name is known the ID is shown. A name
is whatever its owner chose. It is for the eye only; who somebody is, is decided and audited by the ID.
"""

from __future__ import annotations

import asyncio
import logging
import re
import unicodedata
from collections.abc import Iterable
from typing import Protocol

from msgspec import Struct

from codebutler.domain.clock import Clock
from codebutler.domain.errors import ChatAuthError, ChatError, ChatRateLimitedError, ChatUnreachableError
from codebutler.domain.model import OPERATOR
from codebutler.platform.tasks import wait_for

RENEW_S = 86_400.0
RETRY_S = 30.0
NAME_CHARS = 40
MOST = 1000
_ID = re.compile(r"\b(?:[UW][A-Z0-9]{2,30}|tg:[0-9]{1,16})\b")
# Not every word in capitals: long, or with a figure.
_LIKE_AN_ID = re.compile(r"\b(?:tg:[0-9]|[UW](?:[A-Z0-9]{8,30}|(?=[A-Z]*[0-9])[A-Z0-9]{4,30})\b)")

log = logging.getLogger("codebutler.chat.people")


class Person(Struct, frozen=True, kw_only=True):
    """Somebody in the workspace. ``names``: what they are called there, the best first."""

    id: str
    names: tuple[str, ...]
    is_bot: bool = False
    is_deleted: bool = False

    def __str__(self) -> str:
        return f"{self.names[0]} ({self.id})" if self.names else self.id


class Directory(Protocol):
    """The chat, as far as it knows people."""

    async def person(self, user: str) -> Person:
        """Who has that ID. Raises ChatError."""


class People:
    """``run`` is its life; everything else returns at once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._names: dict[str, str] = {}
        self._met: dict[str, None] = {}
        self._due: dict[str, None] = {}
        self._news = asyncio.Event()

    def called(self, user: str) -> str:
        """Their name, or the ID while that is not known."""
        return self._names.get(user, user)

    def named(self, text: str, *, with_ids: bool = False) -> str:
        """``text`` with names in place of the IDs in it, or (``with_ids``) before them. From any thread."""

        def name(found: re.Match[str]) -> str:
            user = found.group()
            known = self._names.get(user)
            return user if known is None else f"{known} ({user})" if with_ids else known

        return _ID.sub(name, text)

    def meet(self, users: Iterable[str]) -> None:
        """Look up those who are new; from then on all of them once a day."""
        for user in users:
            if user not in self._met and len(self._met) < MOST and _ID.fullmatch(user):
                self._met[user] = self._due[user] = None
                self._news.set()

    async def run(self, directory: Directory) -> None:
        """Until cancelled. ``directory`` is asked who people are."""
        while True:
            if not await wait_for(self._clock, self._news, RENEW_S):
                self._due |= self._met
            self._news.clear()
            while self._due:
                user = next(iter(self._due))
                await self._look_up(user, directory)

    async def _look_up(self, user: str, directory: Directory) -> None:
        try:
            names = (await directory.person(user)).names
            name = readable(names[0]) if names else ""
        except (ChatUnreachableError, ChatRateLimitedError, ChatAuthError) as error:
            await self._clock.sleep(getattr(error, "retry_after_s", RETRY_S))
            return
        except ChatError as error:
            if error.code == "missing_scope":
                self._due.clear()
                log.info("users are shown by their IDs: the Slack app lacks the scope users:read")
            name = ""
        self._due.pop(user, None)
        if name:
            self._names[user] = name
        else:
            self._names.pop(user, None)


def readable(name: str) -> str:
    """A name as one short line that shows what it holds; "" for one that passes for an ID or for the operator."""
    shown = "".join(sign for sign in name if sign.isspace() or unicodedata.category(sign)[0] != "C")
    line = " ".join(shown.split())[:NAME_CHARS].rstrip()
    return "" if _LIKE_AN_ID.search(line) or line.casefold() == OPERATOR else line
