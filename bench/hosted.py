"""`python -m bench.hosted NAME URL`: a host's process, whose workers store each event and start no agent."""

from __future__ import annotations

import asyncio
import sys

from codebutler.cluster.membership import ClusterMembership
from tests.seam import host


class Address:
    """A server that somebody else started."""

    def __init__(self, url: str) -> None:
        self._url = url

    def membership(self, name: str) -> ClusterMembership:
        """As ``NatsServer``."""
        return ClusterMembership(servers=(self._url,), name=name, password=f"secret of {name}")


async def _run(name: str, url: str) -> None:
    async with host(Address(url), name) as here:
        await here.running


if __name__ == "__main__":
    asyncio.run(_run(*sys.argv[1:]))
