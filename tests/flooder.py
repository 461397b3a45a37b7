"""A hostile host: sends one message for ever, as fast as its machine can. Its credential, the subject and the body come
on its standard input."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from codebutler.cluster.connection import connected_client
from codebutler.cluster.membership import ClusterMembership
from codebutler.domain.clock import SystemClock

AT_ONCE_BYTES = 200_000
HELD_UP_S = 30.0


@asynccontextmanager
async def flooding(membership: ClusterMembership, subject: str, body: bytes) -> AsyncIterator[None]:
    """It floods while the block runs."""
    given = [msgspec.to_builtins(membership), subject, base64.b64encode(body).decode()]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.flooder"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps(given).encode() + b"\n")
        async with asyncio.timeout(HELD_UP_S):
            assert await process.stdout.readline() == b"begun\n"
        yield
        assert process.returncode is None, "it has ended by itself"
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def flood(membership: ClusterMembership, subject: str, body: bytes) -> None:
    """Past the client's own bounds."""
    async with connected_client(membership, SystemClock()) as (client, _):
        message = b"PUB %s %d\r\n%s\r\n" % (subject.encode(), len(body), body)
        many = message * max(1, AT_ONCE_BYTES // len(message))
        sys.stdout.write("begun\n")
        sys.stdout.flush()
        assert client._transport is not None
        while True:
            client._transport.write(many)
            await client._transport.drain()  # type: ignore[no-untyped-call]  # nats-py has no types there


if __name__ == "__main__":
    told, where, what = json.loads(sys.stdin.readline())
    asyncio.run(flood(msgspec.convert(told, ClusterMembership), where, base64.b64decode(what)))
