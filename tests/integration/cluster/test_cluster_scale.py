"""What thousands of repositories ask of a gateway and of its NATS server."""

from __future__ import annotations

from pathlib import Path

from codebutler.cluster.bus import Bus
from codebutler.cluster.connection import LONGEST_RETRY_S
from codebutler.domain.clock import SystemClock
from codebutler.platform.tasks import beside
from tests.natsserver import bus, nats_server
from tests.seam import until


class NotedClock(SystemClock):
    """Sleeps shortly, and notes for how long it should have been."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await super().sleep(seconds / 100)


async def test_a_consumer_that_is_not_made_yet_is_asked_for_less_and_less(tmp_path: Path) -> None:
    async with nats_server(tmp_path) as server, bus(server) as gateway, bus(server, "laptop") as connected:
        clock, bodies = NotedClock(), list[bytes]()
        here = Bus(connected._client, connected._refusals, clock, 0)
        await gateway.ensure_stream("CB_IN_laptop", "cb.in.laptop.>", 2**20)

        async def consume() -> None:
            async for delivered in here.consume("CB_IN_laptop", "ev_shop"):
                bodies.append(delivered.body)
                await delivered.ack()

        async with beside(consume(), name="events"):
            await until(lambda: len(clock.slept) >= 6)
            assert clock.slept[:6] == [0.25, 0.5, 1.0, 2.0, LONGEST_RETRY_S, LONGEST_RETRY_S]
            await gateway.ensure_consumer("CB_IN_laptop", "ev_shop", "cb.in.laptop.ev.shop", in_flight=1)
            await gateway.publish("cb.in.laptop.ev.shop", b"hello", "1")
            await until(lambda: bodies == [b"hello"])
