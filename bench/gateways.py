"""NATS servers, and gateways that lead over them, for the measurements of a cluster."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.scene import BenchError
from codebutler.cluster.gateway import HostWorkers
from codebutler.cluster.journal import MAX_ACCEPTED_BYTES, GatewayJournal
from codebutler.cluster.leases import Epochs, HostLeases, Leadership
from codebutler.cluster.membership import ACCEPTED_BUCKET
from codebutler.domain.clock import SystemClock
from codebutler.domain.errors import StoreError
from codebutler.intake.journal import Journal
from codebutler.platform.tasks import LoopThread, beside
from codebutler.supervisor.workers import Workers
from tests.natsserver import NatsCluster, NatsServer, Servers, bus
from tests.nodefaults import SettlingServices
from tests.seam import Disk, until
from tests.workers.services import entry

DEADLINE_S = 120.0


class Way:
    """Seconds until an event was accepted, and until it was stored."""

    def __init__(self) -> None:
        self.accepted: list[float] = []
        self.whole: list[float] = []

    async def time(
        self, journal: Journal, workers: Workers, disk: Disk, number: int, channel: str = "C01"
    ) -> None:
        """Of one event, until it is on that disk."""
        said = entry(number, f"message {number}", channel)
        began = time.perf_counter()
        found = await journal.append(said.event, said.request)
        assert found is not None
        self.accepted.append(time.perf_counter() - began)
        workers.deliver(found)
        async with asyncio.timeout(DEADLINE_S):
            while len(disk.keys) < number:  # noqa: ASYNC110 - a look for each round of the loop
                await asyncio.sleep(0)
        self.whole.append(time.perf_counter() - began)


@asynccontextmanager
async def servers(
    place: Path, count: int, hosts: Sequence[str] = ("laptop", "tower")
) -> AsyncIterator[NatsServer | NatsCluster]:
    """That many, with their files in ``place``; they know these hosts."""
    names = [place / f"n{number}" for number in range(1, count + 1)]
    for each in names:
        each.mkdir()
    made = [NatsServer(each, hosts=hosts) for each in names]
    servers = NatsCluster(made) if count > 1 else made[0]
    try:
        await servers.start()
        yield servers
    finally:
        await servers.kill()


class TimedLeadership(Leadership):
    """Notes how long each renewal took, in seconds."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.took_s: list[float] = []

    async def _write(self, last: int | None) -> int | None:
        began = time.perf_counter()
        try:
            return await super()._write(last)
        finally:
            self.took_s.append(time.perf_counter() - began)


@dataclass(frozen=True)
class Leading:
    """A gateway that leads."""

    journal: GatewayJournal
    hosts: HostWorkers
    leases: HostLeases
    leadership: TimedLeadership


@asynccontextmanager
async def gateway(servers: Servers, path: Path) -> AsyncIterator[Leading]:
    """As the product has it, its lease in a loop of its own. At its end it vanishes, and lets nobody lead at once."""
    clock = SystemClock()
    async with bus(servers) as connected, LoopThread("lease") as own, own.entered(bus(servers)) as leasing:
        leadership = await own.run(TimedLeadership.candidate(leasing, path.name, clock))
        assert isinstance(leadership, TimedLeadership)
        await own.run(leadership.acquire())
        leases = await HostLeases.open(connected, clock)
        authority = Epochs(leadership, leases)
        bucket = await connected.bucket(ACCEPTED_BUCKET, max_bytes=MAX_ACCEPTED_BYTES)
        async with (
            beside(own.run(leadership.renew_until_lost()), name="lease"),
            GatewayJournal(bucket, lambda: leadership.is_held, path, clock) as journal,
            HostWorkers(connected, authority, SettlingServices(journal), clock, journal) as hosts,
        ):
            hosts.start()
            yield Leading(journal, hosts, leases, leadership)


async def each_says(leading: Leading, names: Sequence[str], number: int) -> None:
    """One message in each of these repositories, one after the other."""
    for name in names:
        said = entry(number, f"{name} {number}", f"C-{name}")
        for _ in range(100):  # as a chat that repeats
            try:
                found = await leading.journal.append(said.event, said.request)
            except StoreError:  # refused: again
                continue
            if found is not None:
                leading.hosts.deliver(found)
            break


async def until_there(condition: Callable[[], object]) -> None:
    """Raises BenchError if it takes too long."""
    try:
        await until(condition, within_s=DEADLINE_S)
    except TimeoutError:
        raise BenchError("the cluster did not get there in time") from None
