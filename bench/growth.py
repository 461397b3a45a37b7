"""What a gateway and its hosts need as hosts and repositories grow: a tenth of them first, then all."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from bench.figures import Figure, limit, median, percentile
from bench.gateways import DEADLINE_S, Leading, Way, each_says, gateway, servers, until_there
from bench.scene import BenchError, Pace
from codebutler.cluster.bus import Bus
from codebutler.cluster.leases import RENEW_S
from codebutler.cluster.membership import ClusterMembership, stream_in, token_of
from tests.natsserver import NatsServer, bus
from tests.seam import Host, host, remote

SPEAKERS = 20
ROUNDS = 2
IDLE_S = 5.0
PROBE, PLACE = "probe", "C-probe"
"""A repository on a host of our own process: there it is seen when an event is stored."""


@dataclass(frozen=True, kw_only=True)
class Needed:
    """By so many hosts with so many repositories each. Memory in MB; ``busy``: processor time while nothing happens,
    as a part of one processor, of gateway, hosts and NATS."""

    hosts: int
    repos: int
    ready_s: float
    per_s: float
    way_ms: float
    slow_way_ms: float
    renewal_s: float
    over_s: float
    host_mb: float
    gateway_mb: float
    nats_mb: float
    host_kb: float
    shared_kb: float
    busy: tuple[float, float, float]

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.hosts} hosts × {self.repos} repositories"

    def __str__(self) -> str:
        gateway, hosts, nats = self.busy
        return (
            f"{self.name}: all served in {self.ready_s:.1f} s, {self.per_s:.0f} events/s, an event's way "
            f"{self.way_ms:.1f} ms (p99 {self.slow_way_ms:.1f}), longest renewal {self.renewal_s * 1000:.0f} ms, "
            f"take-over {self.over_s:.1f} s; gateway {self.gateway_mb:.0f} MB, a host {self.host_mb:.0f} MB, NATS "
            f"{self.nats_mb:.0f} MB; idle: gateway {gateway:.1%}, all hosts {hosts:.1%}, NATS {nats:.1%} of a processor"
        )


async def growth(place: Path, pace: Pace) -> list[Figure]:
    """Seven figures of the larger number, one against the smaller."""
    place.mkdir()
    hosts, repos = pace.cluster_hosts, pace.cluster_repos
    small = await _needed(place / "small", max(1, hosts // 4), max(1, repos * 2 // 5), pace.events)
    print(f"  cluster: {small}")
    large = await _needed(place / "large", hosts, repos, pace.events)
    print(f"  cluster: {large}")
    grown = Figure(
        what=f"{large.name}: time per event, all speak at once",
        measured=1000 / large.per_s,
        against=1000 / small.per_s,
        against_what=small.name,
        reach=2.0,
    )
    return [
        limit(f"{large.name}: until all are served", large.ready_s, 60, "s"),
        grown,
        limit(f"{large.name}: an event's way while the others are idle (median)", large.way_ms, 10),
        limit(f"{large.name}: longest renewal of the gateway's lease", large.renewal_s, RENEW_S, "s"),
        limit(f"{large.name}: a gateway dies: until the next one delivers", large.over_s, 10, "s"),
        limit(f"{large.name}: memory of a host per repository", large.host_kb, 500, "kB"),
        limit(f"{large.name}: memory of the gateway and of NATS per repository", large.shared_kb, 500, "kB"),
    ]


class Machines:
    """Hosts as processes of their own, with their NATS server and the gateway."""

    def __init__(self, server: NatsServer, names: Sequence[str], pids: Sequence[int], repos: int) -> None:
        self.server = server
        self.names = names
        self.pids = pids
        self.repos = {f"{name}-{number}": name for name in names for number in range(repos)}

    def add(self, leading: Leading) -> None:
        """All repositories, and the one that is watched."""
        for repo, name in self.repos.items():
            leading.hosts.add(remote(repo, f"C-{repo}", name))
        leading.hosts.add(remote(PROBE, PLACE, PROBE))

    async def all_say(self, leading: Leading, number: int) -> None:
        """Return once their hosts have it."""
        names = list(self.repos)
        await asyncio.gather(*(each_says(leading, names[at::SPEAKERS], number) for at in range(SPEAKERS)))
        await until_there(lambda: not leading.journal.pending_count)
        async with bus(self.server) as looking, asyncio.timeout(DEADLINE_S):
            while await self._untaken(looking):  # noqa: ASYNC110 - NATS tells nobody
                await asyncio.sleep(0.05)

    async def _untaken(self, looking: Bus) -> bool:
        jetstream = looking._jetstream  # noqa: SLF001 - nobody else asks
        found = [await jetstream.stream_info(stream_in(name)) for name in self.names]
        return any(each.state.messages for each in found)

    def memory_mb(self) -> tuple[float, float, float]:
        """Of the largest host, of the gateway and of NATS."""
        return max(map(_mb, self.pids)), _mb(os.getpid()), _mb(self.server.pid)

    def processor_s(self) -> tuple[float, float, float]:
        """Of the gateway, of all hosts and of NATS until now."""
        return _processor_s(os.getpid()), sum(map(_processor_s, self.pids)), _processor_s(self.server.pid)


async def _needed(place: Path, hosts: int, repos: int, events: int) -> Needed:
    place.mkdir()
    names = [f"host{number}" for number in range(1, hosts + 1)]
    async with AsyncExitStack() as stack, AsyncExitStack() as first:
        server = await stack.enter_async_context(servers(place, 1, [*names, PROBE]))
        assert isinstance(server, NatsServer)
        leading = await first.enter_async_context(gateway(server, place / "first.db"))
        pids = [await _process(stack, server.membership(name), place) for name in names]
        here = await stack.enter_async_context(host(server, PROBE))
        await until_there(lambda: all(leading.leases.is_awake(name) for name in names))
        machines = Machines(server, names, pids, repos)
        before = machines.memory_mb()
        began = time.perf_counter()
        machines.add(leading)
        await machines.all_say(leading, 1)
        ready_s = time.perf_counter() - began
        after = machines.memory_mb()
        began = time.perf_counter()
        for number in range(2, ROUNDS + 2):
            await machines.all_say(leading, number)
        per_s = ROUNDS * len(machines.repos) / (time.perf_counter() - began)
        way = Way()
        for number in range(1, events + 1):
            await way.time(leading.journal, leading.hosts, here.spawner.disk(PROBE), number, PLACE)
        was_s, since = machines.processor_s(), time.perf_counter()
        await asyncio.sleep(IDLE_S)
        span_s = time.perf_counter() - since
        gateway_s, hosts_s, nats_s = (
            (now - was) / span_s for now, was in zip(machines.processor_s(), was_s, strict=True)
        )
        over_s = await _taken_over(machines, first, place, here, events + 1)
        grown = [now - was for now, was in zip(after, before, strict=True)]
        return Needed(
            hosts=hosts,
            repos=repos,
            ready_s=ready_s,
            per_s=per_s,
            way_ms=median(way.whole) * 1000,
            slow_way_ms=percentile(way.whole, 99) * 1000,
            renewal_s=max(leading.leadership.took_s),
            over_s=over_s,
            host_mb=after[0],
            gateway_mb=after[1],
            nats_mb=after[2],
            host_kb=grown[0] * 1024 / repos,
            shared_kb=(grown[1] + grown[2]) * 1024 / len(machines.repos),
            busy=(gateway_s, hosts_s, nats_s),
        )


async def _taken_over(
    machines: Machines, first: AsyncExitStack, place: Path, here: Host, number: int
) -> float:
    """Seconds from the end of the gateway, with its disk, until the next one's event is stored on a host."""
    began = time.perf_counter()
    await first.aclose()
    async with gateway(machines.server, place / "second.db") as second:
        machines.add(second)
        await Way().time(second.journal, second.hosts, here.spawner.disk(PROBE), number, PLACE)
        return time.perf_counter() - began


async def _process(stack: AsyncExitStack, membership: ClusterMembership, place: Path) -> int:
    """Its PID."""
    token = token_of(membership)
    with (place / f"{membership.name}.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.hosted", token, stdout=log, stderr=log
        )
    stack.push_async_callback(_end, process)
    return process.pid


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


def _processor_s(pid: int) -> float:
    """What it has used of processors."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
