"""Services of others that are asked over HTTP with a key of ours, one answer for each question."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from codebutler.domain.errors import CodeButlerError
from codebutler_worker.internet.proxy import proxy_of

if TYPE_CHECKING:
    import httpx

CONNECT_S = 10.0


class RemoteError(CodeButlerError):
    """The service gave no answer that can be taken; one line that says what to do. It never holds the key."""


@dataclass(frozen=True, slots=True)
class Remote:
    """A service, as people know it by ``name``; ``setting`` is the key of the configuration that holds its address.

    Holds no connection: each question makes its own. ``env`` names the proxies; the worker's own environment, which is
    scrubbed, names none.
    """

    name: str
    setting: str
    base_url: str
    api_key: str
    env: Mapping[str, str]
    limit_bytes: int

    async def post(self, path: str, timeout_s: float, **content: Any) -> tuple[int, bytes]:
        """Status and body of the answer; ``content`` is httpx's (``json``, ``data``, ``files``). Raises RemoteError."""
        import httpx  # half a megabyte that most workers never need

        url = f"{self.base_url.rstrip('/')}/{path}"
        headers = {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}
        timeout = httpx.Timeout(timeout_s, connect=CONNECT_S)
        try:
            async with (
                httpx.AsyncClient(timeout=timeout, proxy=proxy_of(url, self.env), trust_env=False) as client,
                client.stream("POST", url, headers=headers, **content) as response,
            ):
                body = await _read_at_most(response, self.limit_bytes)
        except httpx.TimeoutException:
            raise RemoteError(f"{self.name} did not answer in time: try again") from None
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise RemoteError(
                f"{self.name} cannot be reached ({type(error).__name__}): check {self.setting}"
            ) from None
        if body is None:
            raise RemoteError(f"{self.name} sent more than can be taken: ask for less")
        return response.status_code, body


async def _read_at_most(response: httpx.Response, limit_bytes: int) -> bytes | None:
    """The whole answer, unpacked; None if it is longer. Raises httpx.HTTPError."""
    found = bytearray()
    async for piece in response.aiter_bytes():
        found += piece
        if len(found) > limit_bytes:
            return None
    return bytes(found)
