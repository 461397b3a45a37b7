"""A gateway and hosts over NATS: how much time they add to a message, how soon a standby leads, and what many hosts
with many repositories need.

Gateway and hosts run as they do in the product, with workers that store each event and start no agent: so what is left
is the way of an event. It is measured from the journal's being asked to accept it until the worker has stored it, over
the local seam and over NATS, in turns. All of it is kept in memory where there is a file system of that
kind, so that a shared disk does not decide: on a disk, each of three syncs adds its time. The hosts of
the last figures are processes of their own, and each is asked for its memory once every repository has had a message.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path

from bench.ack import in_memory
from bench.figures import Figure, limit, median
from bench.gateways import Way, each_says, gateway, servers, until_there
from bench.growth import growth
from bench.scene import BenchError, Pace
from codebutler.cluster.leases import LEADER_TTL_S
from codebutler.domain.clock import SystemClock
from codebutler.intake.journal import Journal
from codebutler.supervisor.port import Shared
from codebutler.supervisor.supervisor import Supervisor
from tests.nodefaults import CHANNELS, everything, say
from tests.seam import StoringSpawner, host, remote
from tests.workers.services import RecordingServices, entry, repo

WARM_UP = 20
CONVERSATIONS = 20


async def measure(place: Path, pace: Pace) -> list[Figure]:
    """Six figures, and those of ``bench.growth``."""
    with in_memory(place) as held:
        return await _measured(held, pace)


async def _measured(place: Path, pace: Pace) -> list[Figure]:
    added_ms, accepted_ms = {}, {}
    for count in (1, 3):
        local, remotely = await _ways(place / f"way{count}", count, pace.events)
        added_ms[count] = (median(remotely.whole) - median(local.whole)) * 1000
        accepted_ms[count] = (median(remotely.accepted) - median(local.accepted)) * 1000
        print(f"  cluster: {count} server(s): {_ms(local.whole)} local, {_ms(remotely.whole)} over NATS")
    per_s = {count: await _throughput(place / f"rate{count}", count, pace.events) for count in (1, 3)}
    over_s, lost = await _takeover(place / "takeover")
    print(f"  cluster: {per_s[1]:.0f} and {per_s[3]:.0f} events/s with one server and with three")
    return [
        limit("added to an event's way, one NATS server (median)", added_ms[1], 3),
        limit("added to an event's way, three NATS servers (median)", added_ms[3], 10),
        limit("added before the chat hears yes, three NATS servers (median)", accepted_ms[3], 10),
        limit("time per event at the gateway, three NATS servers", 1000 / per_s[3], 10),
        limit("a gateway dies: until the standby accepts", over_s, 10, "s"),
        limit("messages lost or doubled by that", lost, 0, ""),
        *await growth(place / "growth", pace),
    ]


async def _ways(place: Path, count: int, events: int) -> tuple[Way, Way]:
    """The same events over both seams, in turns."""
    local, remotely = Way(), Way()
    place.mkdir()
    async with AsyncExitStack() as stack:
        journal = await stack.enter_async_context(Journal.open(place / "local.db", SystemClock()))
        spawner = StoringSpawner()
        shared = Shared(spawner.spawn, RecordingServices(), SystemClock(), lambda: 0.0)
        supervisor = await stack.enter_async_context(Supervisor(shared))
        supervisor.add(repo())
        supervisor.start()
        found = await stack.enter_async_context(servers(place, count))
        leading = await stack.enter_async_context(gateway(found, place / "gateway.db"))
        leading.hosts.add(remote())
        here = await stack.enter_async_context(host(found))
        for number in range(1, WARM_UP + events + 1):
            await local.time(journal, supervisor, spawner.disk(), number)
            await remotely.time(leading.journal, leading.hosts, here.spawner.disk(), number)
            await asyncio.sleep(0.01)
    for way in (local, remotely):
        del way.accepted[:WARM_UP], way.whole[:WARM_UP]
    return local, remotely


async def _throughput(place: Path, count: int, events: int) -> float:
    """Events per second that many conversations say at once, until each is with its host."""
    place.mkdir()
    spawner = StoringSpawner()
    names = [f"repo{number}" for number in range(CONVERSATIONS)]
    async with (
        servers(place, count) as found,
        gateway(found, place / "gateway.db") as leading,
        host(found, spawner=spawner),
    ):
        for name in names:
            leading.hosts.add(remote(name, f"C-{name}"))
        await each_says(leading, names, 1)
        await until_there(lambda: all(spawner.disk(name).keys for name in names))
        each = max(2, events // 10)
        began = time.perf_counter()
        await asyncio.gather(
            *(each_says(leading, [name], number) for name in names for number in range(2, each + 1))
        )
        await until_there(lambda: all(len(spawner.disk(name).keys) == each for name in names))
        return CONVERSATIONS * (each - 1) / (time.perf_counter() - began)


async def _takeover(place: Path) -> tuple[float, int]:
    """Seconds from the death of the gateway that leads, with its disk, until the standby accepts; how many messages
    were lost or doubled."""
    place.mkdir()
    each = 30
    async with everything(place, LEADER_TTL_S) as (_, gateways, hosts):
        for number in range(1, each + 1):
            for name, channel in CHANNELS.items():
                await say(gateways, entry(number, f"{name} {number}", channel))
            if number == each // 2:
                victim = next(gateway for gateway in gateways if gateway.leads)
                began = time.monotonic()
                await victim.kill(with_disk=True)
                await until_there(lambda: any(gateway.leads for gateway in gateways))
                await say(gateways, entry(number + 1, f"shop {number + 1}", CHANNELS["shop"]))
                over_s = time.monotonic() - began

        def stored() -> int:
            return sum(len(disk.texts) for made in hosts for disk in made.spawner.disks.values())

        with suppress(BenchError):
            await until_there(lambda: stored() >= each * len(CHANNELS))
        return over_s, abs(each * len(CHANNELS) - stored())


def _ms(seconds: Sequence[float]) -> str:
    return f"{median(seconds) * 1000:.2f} ms"
