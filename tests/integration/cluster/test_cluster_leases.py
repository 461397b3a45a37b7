"""Who leads: one gateway at a time, also while the servers' answers are lost."""

from __future__ import annotations

import asyncio
from pathlib import Path

from nats.js.kv import KeyValue

from codebutler.cluster.buckets import BusError, KeyBucket
from codebutler.cluster.bus import Bus
from codebutler.cluster.leases import Leadership, LeaseLostError
from codebutler.cluster.membership import LEADER_BUCKET
from codebutler.domain.clock import SystemClock
from codebutler.platform.tasks import beside
from tests.natsserver import bus, nats_server

TTL_S = 6.0
CLOCK = SystemClock()


class MuteBucket(KeyBucket):
    """The server does what it is asked. Its second answer is lost, and after that nothing arrives there any more."""

    def __init__(self, store: KeyValue) -> None:
        super().__init__(store)
        self.answers = 1
        self.lost = 1

    async def put_if_latest(self, key: str, value: str, last: int | None) -> int | None:
        if self.answers > 0:
            self.answers -= 1
            return await super().put_if_latest(key, value, last)
        if self.lost > 0:
            self.lost -= 1
            await super().put_if_latest(key, value, last)
            await asyncio.Event().wait()  # its answer is lost
        if last is not None and (found := await self.get(key)) is not None and found[1] != last:
            return None  # as the server says: that is not the latest revision
        raise BusError


async def muted(connected: Bus) -> Leadership:
    bucket = await connected.bucket(LEADER_BUCKET, TTL_S)
    return Leadership(connected, MuteBucket(bucket._store), "first", CLOCK, TTL_S)


async def test_a_lease_lasts_from_its_last_renewal_on_and_not_from_when_that_was_learned(
    tmp_path: Path,
) -> None:
    """The answer to a renewal is lost; that it had effect is seen seconds later, and then nothing is heard at all."""
    async with nats_server(tmp_path) as server, bus(server) as one, bus(server) as two:
        first = await muted(one)
        second = await Leadership.candidate(two, "second", CLOCK, TTL_S)
        await first.acquire()

        async def keep() -> None:
            try:
                await first.renew_until_lost()
            except LeaseLostError:
                await asyncio.Event().wait()

        async with beside(keep(), name="keep"), asyncio.timeout(4 * TTL_S):
            await second.acquire()
            assert not first.is_held
