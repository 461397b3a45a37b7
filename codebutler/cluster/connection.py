"""A connection to the NATS servers with a member's credential, which reconnects automatically; which hosts belong to
the cluster (their accounts on the servers, whose changes need no restart), and which of them we listen to. Bodies that
are too large for one NATS message are split into several."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import re
import ssl
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any
from uuid import uuid4

from msgspec.structs import replace
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from codebutler.cluster.authority import REMOVED, ClusterAuthority, Key, decode_claims
from codebutler.cluster.membership import GATEWAY, ClusterMembership
from codebutler.domain.clock import Clock
from codebutler.domain.errors import CodeButlerError, ConfigError
from codebutler.platform.tasks import first_of
from codebutler.supervisor.limits import BYTES_BURST, BYTES_PER_S, TokenBucket

ANSWER_S = 5.0
LONGEST_RETRY_S = 2.0
REFUSALS = 2
"""How often each server may refuse us before that is final: a server that has just come back may not know all members
yet."""
PART_BYTES = 700 * 2**10
"""Below a NATS server's default limit of 1 MiB."""
PART_HEADER = "Cb-Part"
PART_PATTERN = re.compile(r"([0-9a-f]{32}) ([0-9]{1,2}) ([0-9]{1,2})")
PATIENCE_S = 15.0
MESSAGES_PER_S, MESSAGES_BURST = 2000.0, 4000.0
BLOCK_S = 10.0
LOG_INTERVAL_S = 60.0

log = logging.getLogger("codebutler.cluster")


class Rejections:
    """Whether the servers refuse a member for good: it was removed, or never belonged to them."""

    def __init__(self, membership: ClusterMembership) -> None:
        self.final = asyncio.Event()
        self.latest = "no server answers"
        self._name = membership.name
        self._remaining = self._limit = REFUSALS * len(membership.servers)

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

    async def on_error(self, error: Exception) -> None:
        """The client calls it for each error."""
        self.latest = str(error) or type(error).__name__
        log.warning("NATS: %s", self.latest)
        message = self.latest.lower()
        # "Authentication Timeout" is no refusal: one side was too busy to say who it is.
        if "authorization" in message or ("authentication" in message and "timeout" not in message):
            self._remaining -= 1
        if self._remaining <= 0:
            self.final.set()

    async def on_reconnect(self) -> None:
        """The client calls it once it is connected again."""
        self._remaining = self._limit

    async def on_close(self) -> None:
        """The client calls it when it gives up, which it does only if a server told it to."""
        self.final.set()


@asynccontextmanager
async def connected_client(
    membership: ClusterMembership, clock: Clock, patience_s: float | None = None
) -> AsyncIterator[tuple[Client, Rejections]]:
    """Waits until a server answers. Raises ConfigError if it refuses us, CodeButlerError after ``patience_s``."""
    client, rejections, key = Client(), Rejections(membership), Key(membership.seed)
    until_s = clock.monotonic() + patience_s if patience_s is not None else None
    context = tls_context(membership) if membership.is_encrypted else None
    try:
        while not client.is_connected:
            connecting = client.connect(
                servers=list(membership.servers),
                name=membership.name,
                user_jwt_cb=lambda: bytearray(membership.credential, "ascii"),
                signature_cb=lambda nonce: base64.b64encode(key.sign(nonce.encode())),
                error_cb=rejections.on_error,
                reconnected_cb=rejections.on_reconnect,
                closed_cb=rejections.on_close,
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
                remaining_s = None if until_s is None else max(0.0, until_s - clock.monotonic())
                async with asyncio.timeout(remaining_s):
                    await first_of(connecting, rejections.final.wait())
            except TimeoutError:
                if until_s is not None and clock.monotonic() >= until_s:
                    servers = ", ".join(membership.servers)
                    raise CodeButlerError(f"cannot connect to {servers}: {rejections.latest}") from None
            except (OSError, NatsError):
                await clock.sleep(LONGEST_RETRY_S)
            if rejections.final.is_set():
                raise rejections.error
        yield client, rejections
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


def split_body(body: bytes, part_bytes: int) -> list[tuple[bytes, dict[str, str]]]:
    """Each message's content and headers, in order."""
    pieces = [body[at : at + part_bytes] for at in range(0, len(body), part_bytes)]
    if len(pieces) == 1:
        return [(body, {})]
    body_id = uuid4().hex
    return [
        (piece, {PART_HEADER: f"{body_id} {number} {len(pieces)}"}) for number, piece in enumerate(pieces)
    ]


class BodyParts:
    """Collects the messages of large bodies. A message with invalid headers counts as a whole body, which then cannot
    be decoded."""

    def __init__(self) -> None:
        self._parts: dict[str, dict[int, Msg]] = {}

    def add(self, message: Msg) -> list[Msg]:
        """The messages of the body that this one completes; [] while parts are missing."""
        part = PART_PATTERN.fullmatch((message.headers or {}).get(PART_HEADER, ""))
        if part is None:
            return [message]
        name, number, count = part[1], int(part[2]), int(part[3])
        found = self._parts.setdefault(name, {})
        found[number] = message
        if len(found) < count:
            return []
        del self._parts[name]
        return [found[each] for each in sorted(found)]


class HostAccounts:
    """Create it with ``opened``. Every method raises CodeButlerError."""

    def __init__(self, client: Client, authority: ClusterAuthority, clock: Clock) -> None:
        self._client = client
        self._authority = authority
        self._clock = clock

    @classmethod
    @asynccontextmanager
    async def opened(
        cls, authority: ClusterAuthority, gateway: ClusterMembership, clock: Clock
    ) -> AsyncIterator[HostAccounts]:
        """Connected as the gateway is, with a credential that is valid for some minutes. Raises ConfigError,
        CodeButlerError."""
        system = replace(
            authority.system_membership(int(clock.now().timestamp())),
            servers=gateway.servers,
            ca=gateway.ca,
            client_certificate=gateway.client_certificate,
            client_key=gateway.client_key,
        )
        async with connected_client(system, clock, PATIENCE_S) as (client, _):
            yield cls(client, authority, clock)

    async def invite(self, host: str) -> ClusterMembership:
        """Create its account; returns its credential, of which there is no copy."""
        _, claims, membership = self._authority.new_host_account(host, self._now_s())
        await self._push(claims)
        return membership

    async def remove(self, host: str) -> bool:
        """End its accounts: its connections are closed, and its credentials are refused from now on. False if it has
        none."""
        accounts = [each for each in await self._host_claims() if each["name"] == host]
        for each in accounts:
            # The servers keep the newer of two versions: this one must be newer even if our clock is behind that of the
            # invitation.
            at_s = max(self._now_s(), each["iat"] + 1)
            await self._push(self._authority.removal_claims(each["sub"], host, at_s))
        return bool(accounts)

    async def hosts(self) -> tuple[str, ...]:
        """The names of the hosts."""
        return tuple(sorted({each["name"] for each in await self._host_claims()}))

    async def _host_claims(self) -> list[dict[str, Any]]:
        listed = (await self._request_json("$SYS.REQ.CLAIMS.LIST")).get("data", [])
        subjects = [f"$SYS.REQ.ACCOUNT.{account}.CLAIMS.LOOKUP" for account in listed]
        claims = [
            decode_claims(each.decode()) for each in await asyncio.gather(*map(self._request, subjects))
        ]
        return [each for each in claims if _is_host(each)]

    async def _push(self, claims: str) -> None:
        answer = await self._request_json("$SYS.REQ.CLAIMS.UPDATE", claims.encode())
        if "error" in answer:
            raise CodeButlerError(
                f"the NATS server refused the change: {answer['error'].get('description', '')}"
            )

    async def _request_json(self, subject: str, body: bytes = b"") -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(await self._request(subject, body))
        return answer

    async def _request(self, subject: str, body: bytes = b"") -> bytes:
        try:
            return (await self._client.request(subject, body, timeout=ANSWER_S)).data
        except (NatsError, OSError) as error:
            raise CodeButlerError(
                f"the NATS server did not answer: {error or type(error).__name__}"
            ) from error

    def _now_s(self) -> int:
        return int(self._clock.now().timestamp())


def _is_host(claims: dict[str, Any]) -> bool:
    """Only hosts import something."""
    nats = claims.get("nats", {})
    return bool(nats.get("imports")) and REMOVED not in nats.get("tags", ())


class FloodGuard:
    """For one subject per host. ``known_subjects`` are the subjects of the hosts that have repositories: we keep
    listening to them while another one is left out."""

    def __init__(self, known_subjects: Callable[[], Iterable[str]]) -> None:
        self.has_new_blocks = asyncio.Event()
        """Set when a host begins to be left out."""
        self._known_subjects = known_subjects
        self._blocked: set[str] = set()
        self._counts: dict[str, TokenBucket] = {}
        self._bytes: dict[str, TokenBucket] = {}

    def admits(self, subject: str, size_bytes: int, now_s: float) -> bool:
        """Whether the message is within what its host may send."""
        if subject in self._blocked:
            return False
        if subject not in self._counts:
            self._counts[subject] = TokenBucket(MESSAGES_PER_S, MESSAGES_BURST, now_s)
            self._bytes[subject] = TokenBucket(BYTES_PER_S, BYTES_BURST, now_s)
        if self._counts[subject].take(now_s) and self._bytes[subject].take(now_s, size_bytes):
            return True
        self._blocked.add(subject)
        self.has_new_blocks.set()
        return False

    def allowed_subjects(self) -> list[str]:
        """The subjects to listen to meanwhile."""
        return sorted(set(self._known_subjects()) - self._blocked)

    @property
    def blocked(self) -> list[str]:
        """The subjects that are left out now."""
        return sorted(self._blocked)

    def unblock_all(self) -> None:
        """Listen to everybody again."""
        self._blocked.clear()


class LogLimiter:
    """Which of a host's mistakes are logged: the first in a minute."""

    def __init__(self) -> None:
        self._next_s: dict[str, float] = {}

    def admits(self, host: str, now_s: float) -> bool:
        """Whether to log this one."""
        if now_s < self._next_s.get(host, now_s):
            return False
        self._next_s[host] = now_s + LOG_INTERVAL_S
        return True
