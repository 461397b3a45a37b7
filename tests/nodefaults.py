"""`python -m tests.nodefaults [--messages N] [--seed S] [--pause S]`: messages through random deaths of each part.

Two gateways, two hosts and three real NATS servers. Gateways and hosts are tasks here, with files of their own; the
servers are processes. Afterwards every message is on the disk of its host once, in the order it was written.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from uuid import uuid4

from msgspec.structs import replace

from codebutler.cluster.buckets import BusError, KeyBucket
from codebutler.cluster.bus import Bus
from codebutler.cluster.gateway import HostWorkers
from codebutler.cluster.journal import MAX_ACCEPTED_BYTES, GatewayJournal
from codebutler.cluster.leases import Epochs, HostLeases, Leadership, LeaseLostError
from codebutler.cluster.membership import ACCEPTED_BUCKET, stream_in
from codebutler.config.chats import SlackSection
from codebutler.config.schema import Config
from codebutler.domain.clock import SystemClock
from codebutler.domain.errors import StoreError
from codebutler.domain.refs import ConversationRef
from codebutler.intake.records import Entry
from codebutler.platform.tasks import beside
from tests.natsserver import NatsCluster, bus, whole
from tests.seam import StoringSpawner, host, remote
from tests.workers.services import RecordingServices, entry

HOSTS = {"laptop": ("shop", "books"), "tower": ("tools", "games")}
CHANNELS = {repo: f"C-{repo}" for repos in HOSTS.values() for repo in repos}
TTL_S = 3.0
SILENT_S = 60.0
PAUSE_S = 0.08
"""Or all is said before there are many faults."""
KINDS = ("gateway", "gateway", "standby", "host", "kill", "kill", "leader", "wipe", "pause")
ANAS = Config(slack=SlackSection(allowed_users=("U01",)))


class SettlingServices(RecordingServices):
    """What is settled, the journal may forget."""

    def __init__(self, journal: GatewayJournal) -> None:
        super().__init__()
        self._journal = journal

    async def settle(self, seq: int) -> None:
        await self._journal.settle(seq)


class MortalGateway:
    """Leads when it can. ``kill`` leaves its lease to run out, and may take its disk along."""

    def __init__(self, servers: NatsCluster, path: Path, ttl_s: float = TTL_S) -> None:
        self.path = path
        self._ttl_s = ttl_s
        self.notices: list[tuple[str, str]] = []
        """Of repositories that a host gave up."""
        self.leads: tuple[GatewayJournal, HostWorkers] | None = None
        self._servers = servers
        self._clock = SystemClock()
        self._dead = False
        self._task = asyncio.create_task(self._run())

    async def kill(self, *, with_disk: bool) -> None:
        self._dead, self.leads = True, None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if with_disk:
            for each in self.path.parent.glob(f"{self.path.name}*"):
                each.unlink()
        self._dead = False

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            try:
                async with bus(self._servers) as connected:
                    leadership = await Leadership.candidate(connected, uuid4().hex, self._clock, self._ttl_s)
                    await leadership.acquire()
                    async with beside(leadership.renew_until_lost(), name="lease"):
                        leases = await HostLeases.open(connected, self._clock)
                        bucket = await connected.bucket(ACCEPTED_BUCKET, max_bytes=MAX_ACCEPTED_BYTES)
                        await self._lead(connected, Epochs(leadership, leases), bucket)
            except (LeaseLostError, BusError, StoreError):
                continue
            finally:
                self.leads = None

    async def _lead(self, connected: Bus, authority: Epochs, bucket: KeyBucket) -> None:
        def is_held() -> bool:
            return authority.is_held and not self._dead

        async with GatewayJournal(bucket, is_held, self.path, self._clock) as journal:
            services = SettlingServices(journal)
            services.notices = self.notices
            async with HostWorkers(connected, authority, services, self._clock, journal) as hosts:
                for name, repos in HOSTS.items():
                    for repo in repos:
                        hosts.add(replace(remote(repo, CHANNELS[repo], name), config=ANAS))
                hosts.start()
                for pending in await journal.pending():
                    hosts.deliver(pending)
                self.leads = journal, hosts
                while authority.is_held:  # noqa: ASYNC110 - it runs out
                    await asyncio.sleep(0.05)
                self.leads = None


class MortalHost:
    """A process of a host after the other, each with the same disk."""

    def __init__(self, servers: NatsCluster, name: str) -> None:
        self.spawner = StoringSpawner()
        self._servers = servers
        self._name = name
        self._task = asyncio.create_task(self._run())

    async def restart(self) -> None:
        await self.kill()
        self._task = asyncio.create_task(self._run())

    async def kill(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            async with host(self._servers, self._name, self.spawner) as here:
                await asyncio.wait([here.running])


class Faults:
    """One at a time, and the next when the servers are whole again."""

    def __init__(
        self,
        servers: NatsCluster,
        gateways: list[MortalGateway],
        hosts: list[MortalHost],
        rng: random.Random,
        most: int | None = None,
    ) -> None:
        self.told: list[str] = []
        self._servers = servers
        self._gateways = gateways
        self._hosts = hosts
        self._rng = rng
        self._most = most

    async def run(self) -> None:
        """Until cancelled, or until there have been enough."""
        while self._most is None or len(self.told) < self._most:
            await asyncio.sleep(self._rng.uniform(0.3, 2.0))
            kind = self._rng.choice(KINDS)
            self.told.append(kind)
            if kind in ("gateway", "standby"):
                await self._gateway(leads=kind == "gateway")
            elif kind == "host":
                await self._rng.choice(self._hosts).restart()
            else:
                await self._server(kind)

    async def _gateway(self, *, leads: bool) -> None:
        """While nobody leads, either of them."""
        fitting = [each for each in self._gateways if bool(each.leads) == leads]
        victim = self._rng.choice(fitting or self._gateways)
        await victim.kill(with_disk=self._rng.random() < 0.5)
        victim.start()

    async def _server(self, kind: str) -> None:
        server = self._rng.choice(self._servers.servers)
        if kind == "leader":
            with contextlib.suppress(Exception):
                async with bus(self._servers) as connected:
                    info = await connected._jetstream.stream_info(stream_in("laptop"))
                    server = self._servers.named((info.cluster and info.cluster.leader) or server.name)
        if kind == "pause":
            server.pause()
            await asyncio.sleep(self._rng.uniform(0.5, 6.0))
            server.resume()
        else:
            await (server.wipe() if kind == "wipe" else server.kill())
            await asyncio.sleep(self._rng.uniform(0.0, 2.0))
            await server.start()
        await whole(self._servers)


async def say(gateways: list[MortalGateway], said: Entry) -> None:
    """As a chat: again and again until it is acknowledged."""
    while True:
        leads = next((each.leads for each in gateways if each.leads), None)
        if leads is not None:
            journal, hosts = leads
            with contextlib.suppress(StoreError):
                if (found := await journal.append(said.event, said.request)) is not None:
                    hosts.deliver(found)
                return
        await asyncio.sleep(0.05)


async def speak(
    gateways: list[MortalGateway], channel: ConversationRef, texts: list[str], pause_s: float
) -> None:
    for number, text in enumerate(texts, 1):
        await say(gateways, entry(number, text, channel))
        await asyncio.sleep(pause_s)


@asynccontextmanager
async def everything(
    directory: Path, ttl_s: float = TTL_S
) -> AsyncIterator[tuple[NatsCluster, list[MortalGateway], list[MortalHost]]]:
    servers = NatsCluster.of(directory)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(servers.kill)
        await servers.start()
        gateways = [MortalGateway(servers, directory / f"journal{number}.db", ttl_s) for number in (1, 2)]
        hosts = [MortalHost(servers, name) for name in HOSTS]
        try:
            yield servers, gateways, hosts
        finally:
            for each in hosts:
                await each.kill()
            for gateway in gateways:
                await gateway.kill(with_disk=False)


async def survive(
    directory: Path, messages: int, seed: int, pause_s: float = 0.0, most: int | None = None
) -> list[str]:
    """The faults there were. Raises AssertionError if a message was lost, doubled or overtaken."""
    rng = random.Random(seed)
    each = messages // len(CHANNELS)
    wanted = {repo: [f"{repo} {number}" for number in range(1, each + 1)] for repo in CHANNELS}
    async with everything(directory) as (servers, gateways, hosts):
        faults = Faults(servers, gateways, hosts, rng, most)
        disks = {
            repo: made.spawner.disk(repo)
            for made, name in zip(hosts, HOSTS, strict=True)
            for repo in HOSTS[name]
        }
        async with beside(faults.run(), name="faults"):
            await asyncio.gather(
                *(speak(gateways, CHANNELS[repo], texts, pause_s) for repo, texts in wanted.items())
            )
        for server in servers.servers:
            server.resume()
            if server.is_dead:
                await server.start()
        await _no_more_comes(lambda: sum(len(disks[repo].texts) for repo in CHANNELS), each * len(CHANNELS))
        given_up = [notice for gateway in gateways for notice in gateway.notices]
        assert not given_up, f"seed {seed}: {given_up} after {faults.told}"
        found = {repo: disks[repo].texts for repo in CHANNELS}
        lost = sorted(text for repo in CHANNELS for text in set(wanted[repo]) - set(found[repo]))
        assert not lost, f"seed {seed}: {len(lost)} lost, {lost[:10]} … after {faults.told}"
        for repo in CHANNELS:
            at = next((at for at, text in enumerate(wanted[repo]) if found[repo][at] != text), None)
            assert at is None, f"seed {seed}: order {found[repo][at : at + 5]} at {at} after {faults.told}"
            assert len(found[repo]) == each, f"seed {seed}: doubled in {repo} after {faults.told}"
        return faults.told


async def _no_more_comes(count: Callable[[], int], wanted: int) -> None:
    """Return when there are as many as wanted, or when nothing has come for long."""
    seen, since_s = -1, time.monotonic()
    while seen < wanted and time.monotonic() - since_s < SILENT_S:
        if (now := count()) != seen:
            seen, since_s = now, time.monotonic()
        await asyncio.sleep(0.1)


def main() -> int:
    """0 if nothing was lost, doubled or overtaken."""
    parser = argparse.ArgumentParser(prog="nodefaults", description=__doc__)
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument(
        "--pause", type=float, default=PAUSE_S, help="seconds between two messages of a channel"
    )
    given = parser.parse_args()
    seed = random.SystemRandom().randrange(10**6) if given.seed is None else given.seed
    sys.stdout.write(f"{given.messages} messages, seed {seed}\n")
    sys.stdout.flush()
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="cb-nodes-") as place:
        told = asyncio.run(survive(Path(place), given.messages, seed, given.pause))
    counts = ", ".join(f"{told.count(kind)} {kind}" for kind in sorted(set(told)))
    sys.stdout.write(
        f"0 lost, 0 doubled, order kept; {len(told)} faults ({counts}) in {time.monotonic() - began_s:.0f} s\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
