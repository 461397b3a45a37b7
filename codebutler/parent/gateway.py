"""The composition root of a gateway: a supervisor whose workers are on the hosts of a cluster, while it leads."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from uuid import uuid4

from codebutler.cluster.buckets import BusError, KeyBucket, retry_until_answered
from codebutler.cluster.bus import Bus
from codebutler.cluster.gateway import HostWorkers
from codebutler.cluster.journal import MAX_ACCEPTED_BYTES, GatewayJournal
from codebutler.cluster.leases import (
    POLL_S,
    RENEW_S,
    Epochs,
    HostLeases,
    Leadership,
    LeaseLostError,
    SharedNotes,
)
from codebutler.cluster.membership import (
    ACCEPTED_BUCKET,
    HOSTS_BUCKET,
    LEADER_BUCKET,
    NOTES_BUCKET,
    STAND_BY,
    read_membership,
)
from codebutler.cluster.messages import StandingBy, encode
from codebutler.config.paths import Home
from codebutler.config.resolve import resolve_global
from codebutler.domain.clock import Clock
from codebutler.domain.version import VERSION
from codebutler.intake.records import Notes
from codebutler.parent.bootstrap import begun, chats_of, serve
from codebutler.parent.local import Beginning, Record
from codebutler.platform.signals import Stopping
from codebutler.platform.tasks import LoopThread, beside, first_of, ungrouped
from codebutler.supervisor.port import Services

SPREAD_S = 60.0
PATIENCE_S = 3.0
PROBE = "probe"
SHARED = (LEADER_BUCKET, HOSTS_BUCKET, NOTES_BUCKET, ACCEPTED_BUCKET)
UNANSWERED = 3
"""So many looks, while servers choose a new leader sooner."""


class RemoteWorkers:
    """The workers that run on the hosts."""

    are_remote = True

    def __init__(
        self, bus: Bus, leadership: Leadership, taken: KeyBucket, notes: SharedNotes, beginning: Beginning
    ) -> None:
        self.notes: Notes | None = notes
        self._notes = notes
        self._bus = bus
        self._leadership = leadership
        self._taken = taken
        self._clock = beginning.clock

    def start(self) -> None:
        """Does nothing: the hosts are already running."""

    def journal(self, path: Path, clock: Clock) -> GatewayJournal:
        """The journal's file, and the record of accepted events that all gateways share."""
        return GatewayJournal(self._taken, lambda: self._leadership.is_held, path, clock)

    @asynccontextmanager
    async def open(self, services: Services, record: Record) -> AsyncIterator[HostWorkers]:
        """Leaving the block stops nothing on the hosts."""
        leases = await HostLeases.open(self._bus, self._clock)
        authority = Epochs(self._leadership, leases)
        record("", "INF", f"this gateway is active (epoch {authority.epoch})")
        async with HostWorkers(self._bus, authority, services, self._clock, self._notes) as hosts:
            yield hosts


async def gateway(
    home: Home, env: Mapping[str, str], told: Callable[[str], None], stopping: Stopping | None = None
) -> None:
    """Wait until no other gateway leads, then lead and serve until ``stopping``, SIGTERM or SIGINT. ``told`` gets a
    line when this gateway stands by. Raises as ``supervise``, and ConfigError if the NATS servers no longer accept
    it."""
    home.ensure()
    membership = read_membership(home, gateway=True)
    chats_of(resolve_global(home, env).config)
    stopping = stopping or Stopping()
    async with (
        begun(home, env, stopping) as beginning,
        Bus.connected(membership, beginning.clock) as bus,
        # With thousands of repositories the loop and its connection can be busy for seconds; the lease cannot wait that
        # long.
        LoopThread("lease") as own,
        own.entered(Bus.connected(membership, beginning.clock)) as leasing,
    ):
        await first_of(_leading(bus, own, leasing, beginning, told), bus.wait_refused())


async def _leading(
    bus: Bus, own: LoopThread, leasing: Bus, beginning: Beginning, told: Callable[[str], None]
) -> None:
    """Lead again and again until asked to stop. ``leasing``: a connection that runs on ``own``."""
    asked = beginning.stopping.asked
    while not asked.is_set():
        leadership = await own.run(Leadership.candidate(leasing, uuid4().hex, beginning.clock))
        told("On standby: another gateway is active, or none has answered yet.")
        async with beside(_standing_by(bus, leadership), name="standby"):
            await first_of(own.run(leadership.acquire()), asked.wait())
        if leadership.is_held:
            await _lead(bus, own, leadership, beginning, told)


async def _standing_by(bus: Bus, leadership: Leadership) -> None:
    """Tell the leading gateway that this one stands by, until cancelled."""
    told = StandingBy(epoch=0, instance=leadership.instance, machine=platform.node(), version=VERSION)
    while True:
        await bus.broadcast(STAND_BY, encode(told))
        await asyncio.sleep(RENEW_S)


async def _lead(
    bus: Bus, own: LoopThread, leadership: Leadership, beginning: Beginning, told: Callable[[str], None]
) -> None:
    """Serve until ``stopping``, or until another gateway leads."""
    config = resolve_global(beginning.home, beginning.env).config
    try:
        with ungrouped():
            async with asyncio.TaskGroup() as tasks:
                beside_it = (
                    tasks.create_task(own.run(leadership.renew_until_lost()), name="lease"),
                    tasks.create_task(_alive(leadership, beginning.clock), name="alive"),
                    tasks.create_task(keep_connected(bus, leadership, beginning.clock), name="connection"),
                    tasks.create_task(_spread(bus, beginning.clock), name="replicas"),
                )
                notes = await SharedNotes.open(bus, leadership, beginning.clock)
                opening = partial(bus.bucket, ACCEPTED_BUCKET, max_bytes=MAX_ACCEPTED_BYTES)
                taken = await retry_until_answered(beginning.clock, opening)
                source = RemoteWorkers(bus, leadership, taken, notes, beginning)
                await serve(beginning, config, chats_of(config), source)
                for task in beside_it:
                    task.cancel()
    except LeaseLostError as error:
        told(f"No longer active: {error}.")
    finally:
        await own.run(leadership.release())


async def _alive(leadership: Leadership, clock: Clock) -> None:
    """Show the lease that this event loop still runs, until cancelled."""
    while True:
        leadership.report_alive()
        await clock.sleep(POLL_S)


async def keep_connected(bus: Bus, leadership: Leadership, clock: Clock) -> None:
    """Our server may be cut off from the others, or from one that leads what we need. The lease has a connection of
    its own: when that had to try another server, ours is asked for a write, since a server that is cut off may still
    answer what it knows. Until cancelled."""
    known, unanswered = -1, 0
    while True:
        moved, known = leadership.reconnections != known, leadership.reconnections
        try:
            async with asyncio.timeout(PATIENCE_S):
                if moved:
                    bucket = await bus.bucket(LEADER_BUCKET)
                    await bucket.set(PROBE, leadership.instance)
                await bus.streams.ping_leaders(SHARED)
            unanswered = 0
        except (BusError, TimeoutError):
            unanswered += 1
            if moved or unanswered >= UNANSWERED:
                known, unanswered = -1, 0
                await bus.reconnect()
        await clock.sleep(RENEW_S)


async def _spread(bus: Bus, clock: Clock) -> None:
    """Give streams more replicas when servers are added, until cancelled."""
    while True:
        with suppress(BusError):
            await bus.streams.spread()
        await clock.sleep(SPREAD_S)
