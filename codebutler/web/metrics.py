"""``GET /metrics`` for Prometheus, on the dashboard's port: only for addresses that the configuration allows. The
response names repositories and their costs, so by default nobody may read it. Pages of other sites cannot: browsers
hide our response from them, and foreign host names that resolve to us are refused."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING

from codebutler.config.section import MetricsSection
from codebutler.observe.metrics import MetricsFacts, exposition
from codebutler.platform.http import admits

if TYPE_CHECKING:
    from starlette.routing import Route

CLOSED = "Metrics are off: set metrics.allow, then restart the supervisor"
REFUSED = "Refused: metrics.allow does not include this address, or metrics.token is missing or wrong"


class MetricsPage:
    """The page for Prometheus. ``look`` reads the current state."""

    def __init__(self, section: MetricsSection, look: Callable[[], Awaitable[MetricsFacts]]) -> None:
        self._section = section
        self._look = look

    def admits(self, address: str, authorization: str) -> bool:
        """Whether a client may read it. Clients beyond this machine need a token."""
        if not any(_within(address, network) for network in self._section.allow):
            return False
        token = self._section.token
        if not token:
            return ip_address(address).is_loopback
        return hmac.compare_digest(authorization.encode(), f"Bearer {token}".encode())

    def route(self, bound_to: str) -> Route:
        """Imports Starlette: do not call from the event loop."""
        from starlette.requests import Request
        from starlette.responses import PlainTextResponse, Response
        from starlette.routing import Route

        async def scrape(request: Request) -> Response:
            if not self._section.allow:
                return PlainTextResponse(f"{CLOSED}\n", 404)
            headers, address = request.headers, request.client.host if request.client else ""
            named = admits(headers.get("host", ""), headers.get("origin"), bound_to)
            if not named or not self.admits(address, headers.get("authorization", "")):
                return PlainTextResponse(f"{REFUSED}\n", 403)
            body, kind = await asyncio.to_thread(exposition, await self._look())
            return Response(body, media_type=kind)

        return Route("/metrics", scrape)


def _within(address: str, network: str) -> bool:
    try:
        return ip_address(address) in ip_network(network, strict=False)
    except ValueError:
        return False
