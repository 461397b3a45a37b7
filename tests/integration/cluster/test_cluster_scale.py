"""What thousands of repositories ask of a gateway and of its NATS server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from nats.js.errors import NotFoundError

from codebutler.cluster import leases
from codebutler.cluster.bus import Bus
from codebutler.cluster.connection import LONGEST_RETRY_S
from codebutler.cluster.leases import Leadership, LeaseLostError
from codebutler.domain.clock import SystemClock
from codebutler.platform.tasks import LoopThread, beside
from tests.natsserver import NatsServer, bus, nats_server
from tests.seam import gateway, remote, until
from tests.workers.services import entry


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
        here = Bus(connected._client, connected._rejections, clock, 0)
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


TTL_S = 4.0


@asynccontextmanager
async def candidate(server: NatsServer, name: str) -> AsyncIterator[tuple[LoopThread, Leadership]]:
    """As a gateway has it: in a loop and over a connection of its own."""
    async with LoopThread(name) as own, own.entered(bus(server)) as connected:
        yield own, await own.run(Leadership.candidate(connected, name, SystemClock(), TTL_S))


async def test_a_lease_is_kept_while_the_gateway_is_busy(tmp_path: Path) -> None:
    async with (
        nats_server(tmp_path) as server,
        candidate(server, "first") as (own, first),
        candidate(server, "second") as (other, second),
    ):
        await own.run(first.acquire())
        first.report_alive()
        async with (
            beside(own.run(first.renew_until_lost()), name="lease"),
            beside(other.run(second.acquire()), name="other"),
        ):
            await asyncio.sleep(0)
            time.sleep(TTL_S + 2)  # noqa: ASYNC251 - this is what it is about: nothing else runs in this loop
            assert first.is_held
            assert not second.is_held
            first.report_alive()
        await own.run(first.release())
        await other.run(second.acquire())
        assert second.epoch > first.epoch


async def test_a_gateway_that_is_stuck_leads_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "STUCK_S", 1.0)
    async with (
        nats_server(tmp_path) as server,
        candidate(server, "first") as (own, first),
        candidate(server, "second") as (other, second),
    ):
        await own.run(first.acquire())
        first.report_alive()
        keeping = asyncio.create_task(own.run(first.renew_until_lost()))
        await other.run(second.acquire())
        assert not first.is_held
        with pytest.raises(LeaseLostError, match="was blocked for 1 s"):
            await keeping


async def test_a_repository_with_an_event_does_not_wait_for_those_without(tmp_path: Path) -> None:
    async with nats_server(tmp_path) as server, gateway(server) as opened, bus(server) as looking:
        for number in range(400):
            opened.hosts.add(remote(f"r{number}", f"C{number}"))
        opened.hosts.deliver(entry(1, "hello", "C399"))
        jetstream = looking._jetstream
        await until(lambda: opened.services.settled)
        urgent = await jetstream.consumer_info("CB_IN_laptop", "ev_r399")
        while True:
            with suppress(NotFoundError):
                other = await jetstream.consumer_info("CB_IN_laptop", "ev_r200")
                break
        assert urgent.created < other.created
