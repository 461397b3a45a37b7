"""An httpx transport that connects to public addresses only, and to exactly the one it has checked.

A name is looked up once for each request. If any of its addresses is not public, nothing is asked of it: a name with
one public and one private address is an attack, and a second look-up could give another answer (DNS rebinding).
The connection goes to the checked address; the name is kept for the Host header and the certificate.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable

import httpx

from codebutler_worker.internet.addresses import is_public
from codebutler_worker.internet.urls import PageRefusedError

Resolve = Callable[[str, int], Awaitable[tuple[str, ...]]]
"""The addresses of a host. Raises OSError if it has none."""


async def system_resolve(host: str, port: int) -> tuple[str, ...]:
    """What this machine's resolver says. Raises OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    # "fe80::1%eth0": the scope comes apart from the address, and makes it a neighbour's.
    told = (
        f"{address[0]}%{address[3]}" if len(address) == 4 and address[3] else address[0]
        for *_, address in found
    )
    return tuple(dict.fromkeys(str(each) for each in told))


class PublicTransport(httpx.AsyncBaseTransport):
    """One for each fetch. No proxies and no connection kept: a kept one belongs to the name it was opened for.

    ``dial`` says where a checked address really is; only tests, which have no internet, need one.
    """

    def __init__(
        self,
        resolve: Resolve = system_resolve,
        verify: ssl.SSLContext | None = None,
        dial: Callable[[str, int], tuple[str, int]] | None = None,
    ) -> None:
        self._resolve = resolve
        self._dial = dial
        context = verify or httpx.create_ssl_context()
        limits = httpx.Limits(max_connections=1, max_keepalive_connections=0)
        self._inner = httpx.AsyncHTTPTransport(verify=context, limits=limits, trust_env=False)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Raises PageRefusedError before anything is connected, and httpx's errors after."""
        host = request.url.host
        port = request.url.port or (443 if request.url.scheme == "https" else 80)
        address = await self._checked(host, port)
        place, port = self._dial(address, port) if self._dial else (address, port)
        pinned = httpx.Request(
            request.method,
            request.url.copy_with(host=place, port=port),
            headers=request.headers,  # with the Host that was asked for
            stream=request.stream,
            extensions={**request.extensions, "sni_hostname": host},
        )
        return await self._inner.handle_async_request(pinned)

    async def aclose(self) -> None:
        """End the connection."""
        await self._inner.aclose()

    async def _checked(self, host: str, port: int) -> str:
        try:
            addresses = await self._resolve(host, port)
        except (OSError, UnicodeError):
            addresses = ()
        if not addresses:
            raise PageRefusedError(f"no server is known by the name {host[:100]}")
        if not all(is_public(address) for address in addresses):
            raise PageRefusedError(f"{host[:100]} is not on the public internet")
        # IPv4 first: a machine without IPv6 would wait for an answer that cannot come.
        return min(addresses, key=lambda address: ":" in address)
