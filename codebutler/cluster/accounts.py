"""Which hosts belong to the cluster: their accounts on the NATS servers. Changes need no restart of a server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from msgspec.structs import replace
from nats.aio.client import Client
from nats.errors import Error as NatsError

from codebutler.cluster.authority import REMOVED, ClusterAuthority, said_in
from codebutler.cluster.connection import ANSWER_S, connected_client
from codebutler.cluster.membership import ClusterMembership
from codebutler.domain.clock import Clock
from codebutler.domain.errors import CodeButlerError

PATIENCE_S = 15.0


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
            authority.of_system(int(clock.now().timestamp())),
            servers=gateway.servers,
            ca=gateway.ca,
            client_certificate=gateway.client_certificate,
            client_key=gateway.client_key,
        )
        async with connected_client(system, clock, PATIENCE_S) as (client, _):
            yield cls(client, authority, clock)

    async def invite(self, host: str) -> ClusterMembership:
        """Create its account; returns its credential, of which there is no copy."""
        _, claims, membership = self._authority.invited(host, self._now_s())
        await self._push(claims)
        return membership

    async def remove(self, host: str) -> bool:
        """End its accounts: its connections are closed, and its credentials are refused from now on. False if it has
        none."""
        accounts = [each for each in await self._hosts() if each["name"] == host]
        for each in accounts:
            # The servers keep the newer of two versions: this one must be newer even if our clock is behind that of the
            # invitation.
            at_s = max(self._now_s(), each["iat"] + 1)
            await self._push(self._authority.removed(each["sub"], host, at_s))
        return bool(accounts)

    async def hosts(self) -> tuple[str, ...]:
        """The names of the hosts."""
        return tuple(sorted({each["name"] for each in await self._hosts()}))

    async def _hosts(self) -> list[dict[str, Any]]:
        """The signed claims of their accounts."""
        listed = (await self._asked("$SYS.REQ.CLAIMS.LIST")).get("data", [])
        claims = await asyncio.gather(*map(self._claims, listed))
        return [each for each in claims if _is_host(each)]

    async def _claims(self, account: str) -> dict[str, Any]:
        return said_in((await self._request(f"$SYS.REQ.ACCOUNT.{account}.CLAIMS.LOOKUP")).decode())

    async def _push(self, claims: str) -> None:
        answer = await self._asked("$SYS.REQ.CLAIMS.UPDATE", claims.encode())
        if "error" in answer:
            raise CodeButlerError(
                f"the NATS server refused the change: {answer['error'].get('description', '')}"
            )

    async def _asked(self, subject: str, body: bytes = b"") -> dict[str, Any]:
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
