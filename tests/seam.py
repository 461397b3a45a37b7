"""The seam between the parent and its repositories, over pipes and over NATS: the same to both of its sides."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from codebutler.cluster.gateway import HostWorkers
from codebutler.cluster.host import HostLink, LocalRepos
from codebutler.cluster.leases import Epochs, HostLeases, Leadership, SharedNotes
from codebutler.cluster.services import HeldLease, HostServices
from codebutler.config.schema import RepoSettings
from codebutler.domain.clock import SystemClock
from codebutler.platform.tasks import beside, first_of
from codebutler.protocol.messages import PROTOCOL_VERSION, Deliver, Heartbeat, Hello, Ready, Stored
from codebutler.supervisor.port import Shared
from codebutler.supervisor.supervisor import Supervisor
from codebutler.supervisor.workers import Workers
from tests.natsserver import Servers, bus, nats_server
from tests.workers.inprocess import FakeWorker
from tests.workers.services import RecordingServices, repo

DEADLINE_S = 30.0
HAS = ("shop", "tools")
"""What is registered on each host."""
BEAT_S = 2.0


class Disk:
    """What the workers of one repository have in their store: each event once, by its key, in the order it came."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.texts: list[str] = []
        self.deliveries: list[str] = []
        self.is_full = False

    def take(self, delivered: Deliver) -> bool:
        self.deliveries.append(delivered.event.key)
        if self.is_full:
            return False
        if delivered.event.key not in self.keys:
            self.keys.append(delivered.event.key)
            self.texts.append(getattr(delivered.event, "text", ""))
        return True


class StoringWorker(FakeWorker):
    """Stores every event on its disk, and says so. It says that it lives, or the supervisor would replace it and, after
    some times, give its repository a rest of ten minutes."""

    def __init__(self, pid: int, disk: Disk) -> None:
        super().__init__(pid)
        self._disk = disk
        self.load = Heartbeat()
        """What it has to do, as it says."""
        self._beats = asyncio.create_task(self._beat(), name=f"heart of {pid}")

    async def _beat(self) -> None:
        while not self._dead.done():
            self.say(self.load)
            await asyncio.sleep(BEAT_S)

    def send(self, message: object) -> None:
        super().send(message)
        if isinstance(message, Deliver) and self._disk.take(message):
            self.say(Stored(seq=message.seq))


class StoringSpawner:
    """Its workers are ready at once."""

    def __init__(self) -> None:
        self.workers: dict[str, list[StoringWorker]] = {}
        self.disks: dict[str, Disk] = {}

    def disk(self, name: str = "shop") -> Disk:
        return self.disks.setdefault(name, Disk())

    async def spawn(self, name: str) -> StoringWorker:
        made = self.workers.setdefault(name, [])
        worker = StoringWorker(1000 + len(made), self.disk(name))
        made.append(worker)
        worker.say(Hello(version=PROTOCOL_VERSION, pid=worker.pid), Ready())
        return worker

    async def worker(self, name: str = "shop", number: int = 0) -> StoringWorker:
        await until(lambda: len(self.workers.get(name, ())) > number)
        return self.workers[name][number]


@dataclass
class Seam:
    """``workers`` is what the parent has of its repositories; ``services`` what they have of the parent."""

    workers: Workers
    services: RecordingServices
    spawner: StoringSpawner = field(default_factory=StoringSpawner)


async def until(condition: Callable[[], object], within_s: float = DEADLINE_S) -> None:
    """Looks again and again: what happens here happens in several tasks and a server."""
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110 - it happens in many places
            await asyncio.sleep(0.01)


@asynccontextmanager
async def over_pipes(_directory: Path) -> AsyncIterator[Seam]:
    services, spawner = RecordingServices(), StoringSpawner()
    async with Supervisor(Shared(spawner.spawn, services, SystemClock(), lambda: 0.0)) as supervisor:
        supervisor.add(repo())
        supervisor.start()
        yield Seam(supervisor, services, spawner)


@asynccontextmanager
async def over_nats(directory: Path) -> AsyncIterator[Seam]:
    async with nats_server(directory) as server, gateway(server) as opened:
        opened.hosts.add(remote())
        async with host(server) as here:
            yield Seam(opened.hosts, opened.services, here.spawner)


def remote(name: str = "shop", channel: str = "C01", host: str = "laptop") -> RepoSettings:
    """As the gateway has it."""
    return RepoSettings(name=name, path=f"{host}:{name}", channel_id=channel, config=repo().config)


@dataclass
class Gateway:
    hosts: HostWorkers
    services: RecordingServices
    authority: Epochs
    notes: SharedNotes


@asynccontextmanager
async def gateway(server: Servers, ttl_s: float = 30.0) -> AsyncIterator[Gateway]:
    """One that leads. At its end it vanishes, and lets go of its lease."""
    clock, services = SystemClock(), RecordingServices()
    async with bus(server) as connected:
        leadership = await Leadership.candidate(connected, uuid4().hex, clock, ttl_s)
        async with asyncio.timeout(DEADLINE_S):
            await leadership.acquire()
        authority = Epochs(leadership, await HostLeases.open(connected, clock))
        notes = await SharedNotes.open(connected, leadership, clock)
        async with (
            beside(leadership.renew_until_lost(), name="keep"),
            HostWorkers(connected, authority, services, clock, notes) as hosts,
        ):
            hosts.start()
            yield Gateway(hosts, services, authority, notes)
        await leadership.release()


@dataclass
class Host:
    spawner: StoringSpawner
    standing: HeldLease
    services: HostServices
    link: HostLink
    running: asyncio.Task[None]

    def taken(self, text: str) -> bool:
        """Whether the repository has that message on its disk."""
        return text in self.spawner.disk().texts


@asynccontextmanager
async def host(
    server: Servers, name: str = "laptop", spawner: StoringSpawner | None = None
) -> AsyncIterator[Host]:
    """A process of that host. At its end it vanishes, and its workers with it. ``spawner``: with this disk."""
    clock, spawner = SystemClock(), spawner or StoringSpawner()
    standing = HeldLease(name, uuid4().hex)
    recorded = RecordingServices()
    async with AsyncExitStack() as stack:
        connected = await stack.enter_async_context(bus(server, name))
        services = HostServices(connected, standing, recorded.log, recorded.audit)
        stack.push_async_callback(services.close)
        shared = Shared(spawner.spawn, services, clock, lambda: 0.0)
        supervisor = await stack.enter_async_context(Supervisor(shared))
        supervisor.start()
        link = HostLink(connected, standing, services, supervisor, _local, clock)
        running = asyncio.create_task(first_of(link.run(), connected.wait_refused()), name=f"host {name}")
        try:
            yield Host(spawner, standing, services, link, running)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


def _local(given: tuple[RepoSettings, ...]) -> LocalRepos:
    """Everything is here."""
    return LocalRepos({each.name: each for each in given}, registered=HAS)
