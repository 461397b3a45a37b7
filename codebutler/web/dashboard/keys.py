"""Who may see the dashboard: browsers with the home's key, which they get for a one-time ticket.

The key is stored in the home (0600), so open pages keep working after a restart. It is never part of a URL: a URL
ends up in a browser's arguments, where other users of the machine see it. A URL holds a ticket instead.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import re
from collections.abc import Callable

from codebutler.domain.clock import Clock
from codebutler.domain.errors import CodeButlerError
from codebutler.platform.files import PrivateDir

KEY_NAME = "dashboard.key"
KEY_BYTES = 32
TICKET_BYTES = 24
TICKET_S = 3600.0
MAX_TICKETS = 100
_KEY = re.compile(rb"[\w-]{43}\n?", re.ASCII)

log = logging.getLogger("codebutler.web.dashboard")


class Keys:
    """The key of one home and the tickets of one process. ``secret``: makes that many random bytes, as text for a
    URL; ``learn``: is called with the key, so that it is never shown."""

    def __init__(
        self, home: PrivateDir, clock: Clock, secret: Callable[[int], str], learn: Callable[[set[str]], None]
    ) -> None:
        self._home = home
        self._clock = clock
        self._secret = secret
        self._learn = learn
        self._key = ""
        self._loading = asyncio.Lock()
        self._tickets: dict[str, float] = {}

    def ticket(self) -> str:
        """A new ticket, valid once and for an hour."""
        self._forget()
        if len(self._tickets) >= MAX_TICKETS:
            del self._tickets[next(iter(self._tickets))]
        ticket = self._secret(TICKET_BYTES)
        self._tickets[ticket] = self._clock.monotonic() + TICKET_S
        return ticket

    async def redeem(self, ticket: str) -> str:
        """The key; "" for a used, expired or unknown ticket."""
        self._forget()
        found = next((known for known in self._tickets if _same(known, ticket)), "")
        if not found:
            return ""
        del self._tickets[found]
        return await self._known()

    async def admits(self, key: str) -> bool:
        """Whether this is the key."""
        return _same(await self._known(), key)

    async def proof(self, port: int, nonce: str) -> str:
        """Proof that the listener on ``port`` has the key, in hex. A page asks for it before it sends the key:
        another program may have taken the port in the meantime and relay our answers."""
        told = f"codebutler dashboard\n{port}\n{nonce}".encode()
        return hmac.new((await self._known()).encode(), told, hashlib.sha256).hexdigest()

    def _forget(self) -> None:
        now_s = self._clock.monotonic()
        self._tickets = {ticket: until_s for ticket, until_s in self._tickets.items() if until_s > now_s}

    async def _known(self) -> str:
        async with self._loading:
            if not self._key:
                self._key = await asyncio.to_thread(self._load)
                self._learn({self._key})
            return self._key

    def _load(self) -> str:
        """The home's key, or a new one. If the home cannot be written, the key is valid until the supervisor ends."""
        try:
            with self._home as home:
                kept = home.read(KEY_NAME) or b""
                if _KEY.fullmatch(kept):
                    return kept.decode().strip()
                made = self._secret(KEY_BYTES)
                home.write(KEY_NAME, f"{made}\n".encode())
                return made
        except (CodeButlerError, OSError) as error:
            log.warning(
                "the dashboard's key cannot be saved, open pages will need a new link: %s",
                error,
            )
            return self._secret(KEY_BYTES)


def _same(known: str, given: str) -> bool:
    return hmac.compare_digest(known.encode(), given.encode(errors="replace"))
