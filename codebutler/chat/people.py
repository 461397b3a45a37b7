"""Display names of people, instead of their IDs. They are looked up in the background, so nothing ever waits for one:
until a name is known, the ID is shown. Users choose their own names, so names are for display only: identity is
decided and audited by ID."""

from __future__ import annotations

import asyncio
import logging
import re
import unicodedata
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from msgspec import Struct

from codebutler.config.chats import SECTIONS, ChatName, chat_of
from codebutler.domain.clock import Clock
from codebutler.domain.errors import ChatAuthError, ChatError, ChatRateLimitedError, ChatUnreachableError
from codebutler.domain.model import OPERATOR
from codebutler.domain.refs import PersonRef
from codebutler.platform.tasks import wait_for

RENEW_S = 86_400.0
RETRY_S = 30.0
NAME_CHARS = 40
MOST = 1000
MAX_NAMED = 5
_ID = re.compile(rf"\b({'|'.join(each.person_id for each in SECTIONS)})\b")
_LIKE_AN_ID = re.compile(rf"\b(?:{'|'.join(each.person_like for each in SECTIONS)})")

log = logging.getLogger("codebutler.chat.people")


class Person(Struct, frozen=True, kw_only=True):
    """Somebody in the workspace. ``names``: what they are called there, best first."""

    id: PersonRef
    names: tuple[str, ...]
    is_bot: bool = False
    is_deleted: bool = False

    def __str__(self) -> str:
        return f"{self.names[0]} ({self.id})" if self.names else self.id


LookUpPerson = Callable[[PersonRef], Awaitable[Person]]
"""Who has that ID. Raises ChatError."""


class People:
    """Knows people's names. ``run`` runs until cancelled; everything else returns at once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._names: dict[PersonRef, str] = {}
        self._met: dict[PersonRef, None] = {}
        self._due: dict[PersonRef, None] = {}
        self._news = asyncio.Event()

    def called(self, user: PersonRef) -> str:
        """Their name, or the ID while the name is unknown."""
        return self._names.get(user, user)

    def named(self, text: str, with_ids: bool = False) -> str:
        """``text`` with names instead of the IDs in it, or (``with_ids``) before them. Thread-safe."""

        parts = _ID.split(text)  # every second one is an ID
        for place in range(1, len(parts), 2):
            if (known := self._names.get(PersonRef(parts[place]))) is not None:
                parts[place] = f"{known} ({parts[place]})" if with_ids else known
        return "".join(parts)

    def meet(self, users: Iterable[PersonRef]) -> None:
        """Look up new people; from then on, refresh everybody once a day."""
        for user in users:
            if user not in self._met and len(self._met) < MOST and _ID.fullmatch(user):
                self._met[user] = self._due[user] = None
                self._news.set()

    async def run(self, directories: Mapping[ChatName, LookUpPerson]) -> None:
        """Until cancelled. ``directories``: each connected chat's own."""
        while True:
            if not await wait_for(self._clock, self._news, RENEW_S):
                self._due |= self._met
            self._news.clear()
            while self._due:
                user = next(iter(self._due))
                await self._look_up(user, directories.get(chat_of(user)))

    async def _look_up(self, user: PersonRef, look_up: LookUpPerson | None) -> None:
        try:
            names = (await look_up(user)).names if look_up else ()
            name = readable(names[0]) if names else ""
        except (ChatUnreachableError, ChatRateLimitedError, ChatAuthError) as error:
            await self._clock.sleep(getattr(error, "retry_after_s", RETRY_S))
            return
        except ChatError as error:
            if error.code == "missing_scope":
                self._due.clear()
                log.info("users are shown by their IDs: the app lacks the scope users:read")
            name = ""
        self._due.pop(user, None)
        if name:
            self._names[user] = name
        else:
            self._names.pop(user, None)


def named(people: Sequence[Person]) -> str:
    """Some people on one line."""
    more = len(people) - MAX_NAMED
    return ", ".join(map(str, people[:MAX_NAMED])) + (f" and {more} more" if more > 0 else "")


def readable(name: str) -> str:
    """A name as one short line without hidden characters; "" for one that looks like an ID or the operator."""
    shown = "".join(sign for sign in name if sign.isspace() or unicodedata.category(sign)[0] != "C")
    line = " ".join(shown.split())[:NAME_CHARS].rstrip()
    return "" if _LIKE_AN_ID.search(line) or line.casefold() == OPERATOR else line
