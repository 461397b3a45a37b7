"""`python -m bench.hosted TOKEN`: a host's process, whose workers store each event and start no agent."""

from __future__ import annotations

import asyncio
import sys

from codebutler.cluster.membership import ClusterMembership, membership_from_token
from tests.seam import host


class Joined:
    """At a server that somebody else started."""

    def __init__(self, membership: ClusterMembership) -> None:
        self._membership = membership

    def membership(self, _name: str) -> ClusterMembership:
        """As ``NatsServer``."""
        return self._membership


async def _run(membership: ClusterMembership) -> None:
    async with host(Joined(membership), membership.name) as here:
        await here.running


if __name__ == "__main__":
    asyncio.run(_run(membership_from_token(sys.argv[1])))
