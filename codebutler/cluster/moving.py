"""Moves a repository from one host to another: runs on the old host end, it releases the repository, and the new host
gets the events that it had not taken."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping

from msgspec.structs import replace

from codebutler.cluster.buckets import BusError
from codebutler.cluster.bus import Bus
from codebutler.cluster.fleet import Fleet, HostedRepo
from codebutler.cluster.host import BEAT_S
from codebutler.cluster.leases import LOOK_S, Epochs
from codebutler.cluster.messages import ClusterCodec, EventForHost, ToHost, encode
from codebutler.cluster.questions import digest_of
from codebutler.cluster.subjects import calls_of, consumer_of, events_to, stream_in, stream_out
from codebutler.config.channels import assigned
from codebutler.domain.clock import Clock
from codebutler.domain.errors import ProtocolError, RegistryError
from codebutler.domain.model import MessagePosted
from codebutler.supervisor.workers import Mover

WORKERS_BEAT_S = 5.0
QUIET_S = WORKERS_BEAT_S + BEAT_S + LOOK_S
"""The longest time until we learn that a worker has stored an event: through its own report and its host's."""

log = logging.getLogger("codebutler.cluster")


class HostMoves:
    """The steps of ``Mover``. ``prepare`` creates a host's stream, and in it a repository's consumer."""

    def __init__(
        self,
        bus: Bus,
        authority: Epochs,
        fleet: Fleet,
        clock: Clock,
        remotes: Mapping[str, HostedRepo],
        prepare: Callable[[str, str], Awaitable[None]],
    ) -> None:
        self._bus = bus
        self._hosts = authority.hosts
        self._fleet = fleet
        self._clock = clock
        self._remotes = remotes
        self._prepare = prepare
        self._codec: ClusterCodec[ToHost] = ClusterCodec(ToHost)
        self.mover = Mover(self._hold, self._release, self._ended, self._sent, self._taken_over)

    def _hold(self, name: str, leaves: str) -> None:
        self._remote(name).hold(leaves)

    def _release(self, name: str) -> None:
        self._remote(name).release()

    def _remote(self, name: str) -> HostedRepo:
        if name not in self._remotes:
            raise RegistryError(f"no repository named {name} is served now")
        return self._remotes[name]

    async def _sent(self, name: str) -> None:
        while self._remote(name).sending:
            await self._clock.sleep(LOOK_S)

    async def _ended(self, name: str) -> None:
        """Wait until the repository stays quiet for QUIET_S: the host's report on its worker is some seconds old."""
        quiet_since_s: float | None = None
        while True:
            now_s = self._clock.boottime()
            if not await self._is_quiet(self._remote(name)):
                quiet_since_s = None
            elif quiet_since_s is None:
                quiet_since_s = now_s
            elif now_s - quiet_since_s >= QUIET_S:
                return
            await self._clock.sleep(LOOK_S)

    async def _is_quiet(self, remote: HostedRepo) -> bool:
        """Whether nothing is on its way to the worker or from it, and it has nothing to do."""
        host, name, row = remote.host, remote.repo.name, remote.row
        if row is None or not self._hosts.is_awake(host) or row.worker.state not in ("running", "sleeping"):
            return False
        turns, worker = row.turns, row.worker
        if any(
            (remote.sending, worker.undelivered, worker.outbox, turns.running, turns.queued, turns.waiting)
        ):
            return False
        try:
            untaken = await self._bus.counts(stream_in(host), events_to(host, name))
            undone = await self._bus.counts(stream_out(host), calls_of(host, name))
        except BusError:
            return False
        return not untaken and not undone

    async def _taken_over(self, name: str, old: str) -> int:
        """Move the untaken events to the new host. The old host takes none once it knows that the repository is no
        longer its own. Nor does a silent host, whose lease has ended: it is fenced, however late it wakes."""
        while not self._has_let_go(name, old):
            await self._clock.sleep(LOOK_S)
        remote = self._remote(name)
        stream, subject = stream_in(old), events_to(old, name)
        await self._prepare(remote.host, name)
        doubtful = await self._bus.handed_out(stream, consumer_of(name))
        lost = 0
        while (found := await self._bus.first(stream, subject)) is not None:
            seq, body = found
            event = self._event(body, remote, is_doubtful=seq <= doubtful)
            if event is None:
                lost += 1
            else:
                # If we die now, the next leader repeats this: the server recognises the message ID, and later the
                # worker the event's key.
                where = events_to(remote.host, name)
                await self._bus.publish(where, encode(event), f"moved {old} {seq} {event.event.key}")
            await self._bus.drop(stream, seq)
        await self._bus.drop_consumer(stream, consumer_of(name))
        return lost

    def _has_let_go(self, name: str, old: str) -> bool:
        digest = digest_of(tuple(assigned(each.repo) for each in self._remotes.values() if each.host == old))
        return self._hosts.is_away(old) or self._fleet.has_left(name, old, digest)

    def _event(self, body: bytes, remote: HostedRepo, *, is_doubtful: bool) -> EventForHost | None:
        """The event for the new host. The old one may have stored a doubtful event: for a message, a person is asked;
        any other event is dropped (None). It keeps the epoch of the gateway that sent it: the host asks the leader
        about an older one."""
        try:
            event = self._codec.decode(body)
        except ProtocolError as error:
            log.warning("%s", error)
            return None
        if not isinstance(event, EventForHost):
            return None
        if is_doubtful:
            if not isinstance(event.event, MessagePosted):
                log.warning(
                    "dropped a %s that %s may already have handled", type(event.event).__name__, remote.leaves
                )
                return None
            asked = replace(event.event, handled="maybe", late=True, stale=True)
            event = replace(event, event=asked)
        return replace(event, host=remote.host)
