"""A connection to the NATS servers with a member's credential; it reconnects automatically.

Bodies that are too large for one NATS message, split into several.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from uuid import uuid4

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from codebutler.cluster.authority import Key
from codebutler.cluster.membership import GATEWAY, ClusterMembership
from codebutler.domain.clock import Clock
from codebutler.domain.errors import CodeButlerError, ConfigError
from codebutler.platform.tasks import first_of

ANSWER_S = 5.0
LONGEST_RETRY_S = 2.0
REFUSALS = 2
"""How often each server may refuse us before that is final: a server that has just come back may not know all members
yet."""

log = logging.getLogger("codebutler.cluster")


class Rejections:
    """Whether the servers refuse a member for good: it was removed, or never belonged to them."""

    def __init__(self, membership: ClusterMembership) -> None:
        self.final = asyncio.Event()
        self.latest = "no server answers"
        self._name = membership.name
        self._left = self._limit = REFUSALS * len(membership.servers)

    @property
    def error(self) -> ConfigError:
        """The line for people."""
        if self._name == GATEWAY:
            return ConfigError(
                "the NATS servers refuse this gateway, because their keys differ from its cluster.json: start them "
                "with the folders that `codebutler cluster create` wrote, or copy the cluster.json that it wrote"
            )
        return ConfigError(
            f"the NATS servers refuse {self._name}: it was removed from the cluster, or invited again; "
            "get a new token (`codebutler cluster invite`), and run `codebutler host join`"
        )

    async def troubled(self, error: Exception) -> None:
        """The client calls it for each error."""
        self.latest = str(error) or type(error).__name__
        log.warning("NATS: %s", self.latest)
        told = self.latest.lower()
        # "Authentication Timeout" is no refusal: one side was too busy to say who it is.
        if "authorization" in told or ("authentication" in told and "timeout" not in told):
            self._left -= 1
        if self._left <= 0:
            self.final.set()

    async def back(self) -> None:
        """The client calls it once it is connected again."""
        self._left = self._limit

    async def closed(self) -> None:
        """The client calls it when it gives up, which it does only if a server told it to."""
        self.final.set()


@asynccontextmanager
async def connected_client(
    membership: ClusterMembership, clock: Clock, patience_s: float | None = None
) -> AsyncIterator[tuple[Client, Rejections]]:
    """Waits until a server answers. Raises ConfigError if it refuses us, CodeButlerError after ``patience_s``."""
    client, refusals, key = Client(), Rejections(membership), Key(membership.seed)
    until_s = clock.monotonic() + patience_s if patience_s is not None else None
    context = tls_context(membership) if membership.is_encrypted else None
    try:
        while not client.is_connected:
            connecting = client.connect(
                servers=list(membership.servers),
                name=membership.name,
                user_jwt_cb=lambda: bytearray(membership.credential, "ascii"),
                signature_cb=lambda nonce: base64.b64encode(key.sign(nonce.encode())),
                error_cb=refusals.troubled,
                reconnected_cb=refusals.back,
                closed_cb=refusals.closed,
                tls=context,
                tls_handshake_first=context is not None,
                max_reconnect_attempts=-1,
                reconnect_time_wait=1,
                connect_timeout=int(ANSWER_S),
                ping_interval=2,
                max_outstanding_pings=2,
                pending_size=64 * 2**20,
            )
            try:
                left_s = None if until_s is None else max(0.0, until_s - clock.monotonic())
                async with asyncio.timeout(left_s):
                    await first_of(connecting, refusals.final.wait())
            except TimeoutError:
                if until_s is not None and clock.monotonic() >= until_s:
                    where = ", ".join(membership.servers)
                    raise CodeButlerError(f"cannot connect to {where}: {refusals.latest}") from None
            except (OSError, NatsError):
                await clock.sleep(LONGEST_RETRY_S)
            if refusals.final.is_set():
                raise refusals.error
        yield client, refusals
    finally:
        # While it reconnects, closing raises the error of the lost connection.
        with suppress(NatsError, OSError):
            await client.close()
        # If the server ended the connection while data was unsent, nats-py leaves it open.
        if (transport := client._transport) is not None:  # noqa: SLF001 - nats-py offers nothing else
            transport.close()  # type: ignore[no-untyped-call]  # nats-py has no types there
            await asyncio.sleep(0)


def tls_context(membership: ClusterMembership) -> ssl.SSLContext:
    """Trusts the cluster's authority only. Raises ConfigError."""
    try:
        context = ssl.create_default_context(cadata=membership.ca or None)
        if membership.client_certificate:
            context.load_cert_chain(membership.client_certificate, membership.client_key or None)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"cluster.json: the certificates cannot be used: {error}") from None
    return context


PART_BYTES = 700 * 2**10
"""Below a NATS server's default limit of 1 MiB."""
PARTS = "Cb-Part"
PART = re.compile(r"([0-9a-f]{32}) ([0-9]{1,2}) ([0-9]{1,2})")


def pieces_of(body: bytes, part_bytes: int) -> list[tuple[bytes, dict[str, str]]]:
    """Each message's content and headers, in order."""
    pieces = [body[at : at + part_bytes] for at in range(0, len(body), part_bytes)]
    if len(pieces) == 1:
        return [(body, {})]
    whole = uuid4().hex
    return [(piece, {PARTS: f"{whole} {number} {len(pieces)}"}) for number, piece in enumerate(pieces)]


class BodyParts:
    """Collects the messages of large bodies. A message with invalid headers counts as a whole body, which then cannot
    be decoded."""

    def __init__(self) -> None:
        self._found: dict[str, dict[int, Msg]] = {}

    def whole(self, message: Msg) -> list[Msg]:
        """The messages of the body that this one completes; [] while parts are missing."""
        named = PART.fullmatch((message.headers or {}).get(PARTS, ""))
        if named is None:
            return [message]
        name, number, count = named[1], int(named[2]), int(named[3])
        found = self._found.setdefault(name, {})
        found[number] = message
        if len(found) < count:
            return []
        del self._found[name]
        return [found[each] for each in sorted(found)]
