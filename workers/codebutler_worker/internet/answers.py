"""Answers of services, which may be longer than we would like."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx


async def read_at_most(response: httpx.Response, limit_bytes: int) -> bytes | None:
    """The whole answer, unpacked; None if it is longer. Raises httpx.HTTPError."""
    found = bytearray()
    async for piece in response.aiter_bytes():
        found += piece
        if len(found) > limit_bytes:
            return None
    return bytes(found)
