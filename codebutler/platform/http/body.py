"""What a caller sends, as far as it is waited for and kept."""

from __future__ import annotations

import asyncio

from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response


async def read_body(request: Request, most_bytes: int, within_s: float) -> bytes | Response:
    """The body; or the refusal to answer with, when it is too large or does not come within ``within_s`` seconds."""
    body = bytearray()
    try:
        async with asyncio.timeout(within_s):
            async for chunk in request.stream():
                body += chunk
                if len(body) > most_bytes:
                    return PlainTextResponse(f"the body is larger than {_size(most_bytes)}\n", 413)
    except (TimeoutError, ClientDisconnect):
        return PlainTextResponse("the body did not come\n", 408, {"Connection": "close"})
    return bytes(body)


def _size(count: int) -> str:
    return f"{count // 2**20} MiB" if count >= 2**20 else f"{count // 1024} KiB"
