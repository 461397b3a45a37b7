"""A gateway and hosts over NATS: what that adds to a message's way, how soon a stand-by leads, and what many hosts with
many repositories need.

Gateway and hosts run as they do in the product, with workers that store each event and start no agent: so what is left
is the way of an event. It is measured from the journal's being asked to accept it until the worker has stored it, over
the local seam and over NATS, in turns. All of it is kept in memory where there is a file system of that
kind, so that a shared disk does not decide: on a disk, each of three syncs adds its time. The hosts of
the last figures are processes of their own, and each is asked for its memory once every repository has had a message.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bench.ack import in_memory
from bench.figures import Figure, limit, median
from bench.scene import BenchError, Pace
from codebutler.cluster.bus import Bus
from codebutler.cluster.gateway import HostWorkers
from codebutler.cluster.journal import MAX_TAKEN_BYTES, GatewayJournal
from codebutler.cluster.leases import LEADER_TTL_S, Epochs, HostLeases, Leadership
from codebutler.cluster.membership import ClusterMembership, token_of
from codebutler.cluster.subjects import TAKEN_BUCKET, stream_in
from codebutler.domain.clock import SystemClock
from codebutler.domain.errors import StoreError
from codebutler.intake.journal import Journal
from codebutler.platform.tasks import beside
from codebutler.supervisor.port import Shared
from codebutler.supervisor.supervisor import Supervisor
from codebutler.supervisor.workers import Workers
from tests.natsserver import NatsCluster, NatsServer, Servers, bus
from tests.nodefaults import CHANNELS, SettlingServices, everything, say
from tests.seam import StoringSpawner, host, remote, until
from tests.workers.services import RecordingServices, entry, repo

DEADLINE_S = 120.0
WARM_UP = 20
CONVERSATIONS = 20


async def measure(place: Path, pace: Pace) -> list[Figure]:
    """Eight figures."""
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
    hosts, repos = pace.cluster_hosts, pace.cluster_repos
    needed = await _many(place / "many", hosts, repos)
    print(f"  cluster: {per_s[1]:.0f} and {per_s[3]:.0f} events/s with one server and with three")
    print(
        f"  cluster: {hosts} hosts × {repos}: gateway {needed.gateway_mb:.0f} MB, host {needed.host_mb:.0f} MB, "
        f"NATS {needed.nats_mb:.0f} MB, each served in {needed.ready_s:.1f} s"
    )
    many = f"{hosts} hosts × {repos} repositories"
    return [
        limit("added to an event's way, one NATS server (median)", added_ms[1], 3),
        limit("added to an event's way, three NATS servers (median)", added_ms[3], 10),
        limit("added before the chat hears yes, three NATS servers (median)", accepted_ms[3], 10),
        limit("time per event at the gateway, three NATS servers", 1000 / per_s[3], 10),
        limit("a gateway dies: until the stand-by accepts", over_s, 10, "s"),
        limit("messages lost or doubled by that", lost, 0, ""),
        limit(f"{many}: memory of a host per repository", needed.per_repo_kb, 500, "kB"),
        limit(f"{many}: memory of the gateway and of NATS per repository", needed.shared_kb, 500, "kB"),
    ]


@dataclass(frozen=True)
class Needed:
    """By many hosts, in MB and per repository in kB."""

    host_mb: float
    gateway_mb: float
    nats_mb: float
    per_repo_kb: float
    shared_kb: float
    ready_s: float


class Way:
    """Seconds until an event was accepted, and until it was stored."""

    def __init__(self) -> None:
        self.accepted: list[float] = []
        self.whole: list[float] = []

    async def time(self, journal: Journal, workers: Workers, spawner: StoringSpawner, number: int) -> None:
        """Of one event."""
        said, disk = entry(number, f"message {number}"), spawner.disk()
        began = time.perf_counter()
        found = await journal.append(said.event, said.request)
        assert found is not None
        self.accepted.append(time.perf_counter() - began)
        workers.deliver(found)
        async with asyncio.timeout(DEADLINE_S):
            while len(disk.keys) < number:  # noqa: ASYNC110 - a look for each round of the loop
                await asyncio.sleep(0)
        self.whole.append(time.perf_counter() - began)


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
        servers = await stack.enter_async_context(_servers(place, count))
        accepting, hosts, _ = await stack.enter_async_context(_gateway(servers, place / "gateway.db"))
        hosts.add(remote())
        here = await stack.enter_async_context(host(servers))
        for number in range(1, WARM_UP + events + 1):
            await local.time(journal, supervisor, spawner, number)
            await remotely.time(accepting, hosts, here.spawner, number)
            await asyncio.sleep(0.01)
    for way in (local, remotely):
        del way.accepted[:WARM_UP], way.whole[:WARM_UP]
    return local, remotely


@asynccontextmanager
async def _servers(
    place: Path, count: int, hosts: Sequence[str] = ("laptop", "tower")
) -> AsyncIterator[NatsServer | NatsCluster]:
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


@asynccontextmanager
async def _gateway(
    servers: Servers, path: Path
) -> AsyncIterator[tuple[GatewayJournal, HostWorkers, HostLeases]]:
    clock = SystemClock()
    async with bus(servers) as connected:
        leadership = await Leadership.candidate(connected, "bench", clock)
        await leadership.acquire()
        leases = await HostLeases.opened(connected, clock)
        authority = Epochs(leadership, leases)
        bucket = await connected.bucket(TAKEN_BUCKET, max_bytes=MAX_TAKEN_BYTES)
        async with (
            beside(leadership.keep(), name="lease"),
            GatewayJournal(bucket, lambda: leadership.is_held, path, clock) as journal,
            HostWorkers(connected, authority, SettlingServices(journal), clock, journal) as hosts,
        ):
            hosts.start()
            yield journal, hosts, leases


async def _throughput(place: Path, count: int, events: int) -> float:
    """Events per second that many conversations say at once, until each is with its host."""
    place.mkdir()
    spawner = StoringSpawner()
    names = [f"repo{number}" for number in range(CONVERSATIONS)]
    async with (
        _servers(place, count) as servers,
        _gateway(servers, place / "gateway.db") as (journal, hosts, _),
        host(servers, spawner=spawner),
    ):
        for name in names:
            hosts.add(remote(name, f"C-{name}"))
        await _each(journal, hosts, names, 1)
        await _until(lambda: all(spawner.disk(name).keys for name in names))
        each = max(2, events // 10)
        began = time.perf_counter()
        await asyncio.gather(
            *(_each(journal, hosts, [name], number) for name in names for number in range(2, each + 1))
        )
        await _until(lambda: all(len(spawner.disk(name).keys) == each for name in names))
        return CONVERSATIONS * (each - 1) / (time.perf_counter() - began)


async def _each(journal: GatewayJournal, hosts: HostWorkers, names: Sequence[str], number: int) -> None:
    for name in names:
        said = entry(number, f"{name} {number}", f"C-{name}")
        for _ in range(100):  # as a chat that repeats
            try:
                found = await journal.append(said.event, said.request)
            except StoreError:  # refused: again
                continue
            if found is not None:
                hosts.deliver(found)
            break


async def _takeover(place: Path) -> tuple[float, int]:
    """Seconds from the death of the gateway that leads, with its disk, until the stand-by accepts; how many messages
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
                await _until(lambda: any(gateway.leads for gateway in gateways))
                await say(gateways, entry(number + 1, f"shop {number + 1}", CHANNELS["shop"]))
                over_s = time.monotonic() - began

        def stored() -> int:
            return sum(len(disk.texts) for made in hosts for disk in made.spawner.disks.values())

        with suppress(BenchError):
            await _until(lambda: stored() >= each * len(CHANNELS))
        return over_s, abs(each * len(CHANNELS) - stored())


async def _many(place: Path, hosts: int, repos: int) -> Needed:
    place.mkdir()
    names = [f"host{number}" for number in range(1, hosts + 1)]
    async with AsyncExitStack() as stack:
        servers = await stack.enter_async_context(_servers(place, 1, names))
        assert isinstance(servers, NatsServer)
        journal, gateway, leases = await stack.enter_async_context(_gateway(servers, place / "gateway.db"))
        processes = [await _process(stack, servers.membership(name), place) for name in names]
        await _until(lambda: all(leases.is_awake(name) for name in names))
        pids = [process.pid for process in processes]
        empty_mb, own_mb, server_mb = max(map(_mb, pids)), _mb(os.getpid()), _mb(servers.pid)
        began = time.perf_counter()
        for name in names:
            for number in range(repos):
                gateway.add(remote(f"{name}-{number}", f"C-{name}-{number}", name))
        waiting = {stream_in(name) for name in names}
        served = [f"{name}-{number}" for name in names for number in range(repos)]
        await asyncio.gather(
            *(_each(journal, gateway, served[at::CONVERSATIONS], 1) for at in range(CONVERSATIONS))
        )
        await _until(lambda: not journal.pending_count)
        async with bus(servers) as looking:
            await _taken(looking, waiting)
        ready_s = time.perf_counter() - began
        full_mb, gateway_mb, nats_mb = max(map(_mb, pids)), _mb(os.getpid()), _mb(servers.pid)
        shared_mb = gateway_mb - own_mb + nats_mb - server_mb
        return Needed(
            host_mb=full_mb,
            gateway_mb=gateway_mb,
            nats_mb=nats_mb,
            per_repo_kb=(full_mb - empty_mb) * 1024 / repos,
            shared_kb=shared_mb * 1024 / (hosts * repos),
            ready_s=ready_s,
        )


async def _taken(looking: Bus, streams: set[str]) -> None:
    """The hosts have everything."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            found = [await looking._jetstream.stream_info(name) for name in streams]  # noqa: SLF001 - nobody else asks
            if not any(each.state.messages for each in found):
                return
            await asyncio.sleep(0.1)


async def _process(
    stack: AsyncExitStack, membership: ClusterMembership, place: Path
) -> asyncio.subprocess.Process:
    token = token_of(membership)
    with (place / f"{membership.name}.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.hosted", token, stdout=log, stderr=log
        )
    stack.push_async_callback(_end, process)
    return process


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.wait()


def _mb(pid: int) -> float:
    """What the process holds in memory."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise BenchError(f"the memory of {pid} cannot be read")


def _ms(seconds: Sequence[float]) -> str:
    return f"{median(seconds) * 1000:.2f} ms"


async def _until(condition: Callable[[], object]) -> None:
    try:
        await until(condition, within_s=DEADLINE_S)
    except TimeoutError:
        raise BenchError("the cluster did not get there in time") from None
