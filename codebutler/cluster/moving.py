"""Moves a repository from one host to another: runs on the old host end, it releases the repository, and the new host
gets the events that it had not taken. And what a host leaves behind that is removed from the cluster: its waiting
events and calls are counted, reported, and deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping

from msgspec.structs import replace

from codebutler.cluster.buckets import BusError
from codebutler.cluster.bus import Bus
from codebutler.cluster.fleet import Fleet, HostedRepo
from codebutler.cluster.leases import POLL_S, Epochs
from codebutler.cluster.membership import REMOVALS, calls_of, consumer_of, events_to, stream_in, stream_out
from codebutler.cluster.messages import HEARTBEAT_S, ClusterCodec, EventForHost, HostRemoved, ToHost, encode
from codebutler.cluster.questions import assignment_digest
from codebutler.config.channels import settings_for_host
from codebutler.config.schema import RepoSettings
from codebutler.domain.clock import Clock
from codebutler.domain.errors import CodeButlerError, ProtocolError, RegistryError
from codebutler.domain.model import MessagePosted
from codebutler.supervisor.port import Services
from codebutler.supervisor.workers import Mover

WORKERS_BEAT_S = 5.0
QUIET_PERIOD_S = WORKERS_BEAT_S + HEARTBEAT_S + POLL_S
"""The longest time until we learn that a worker has stored an event: through its own report and its host's."""

log = logging.getLogger("codebutler.cluster")


class HostMoves:
    """The steps of ``Mover``. ``prepare`` creates a host's stream, and in it a repository's consumer."""

    def __init__(
        self,
        bus: Bus,
        epochs: Epochs,
        fleet: Fleet,
        clock: Clock,
        remotes: Mapping[str, HostedRepo],
        prepare: Callable[[str, str], Awaitable[None]],
    ) -> None:
        self._bus = bus
        self._hosts = epochs.hosts
        self._fleet = fleet
        self._clock = clock
        self._remotes = remotes
        self._prepare = prepare
        self._codec: ClusterCodec[ToHost] = ClusterCodec(ToHost)
        self.mover = Mover(self._hold, self._release, self._wait_quiet, self._wait_sent, self._take_over)

    def _hold(self, name: str, leaves: str) -> None:
        self._remote(name).hold(leaves)

    def _release(self, name: str) -> None:
        self._remote(name).release()

    def _remote(self, name: str) -> HostedRepo:
        if name not in self._remotes:
            raise RegistryError(f"no repository named {name} is served now")
        return self._remotes[name]

    async def _wait_sent(self, name: str) -> None:
        while self._remote(name).sending_count:
            await self._clock.sleep(POLL_S)

    async def _wait_quiet(self, name: str) -> None:
        """Wait until the repository stays quiet for QUIET_S: the host's report on its worker is some seconds old."""
        quiet_since_s: float | None = None
        while True:
            now_s = self._clock.boottime()
            if not await self._is_quiet(self._remote(name)):
                quiet_since_s = None
            elif quiet_since_s is None:
                quiet_since_s = now_s
            elif now_s - quiet_since_s >= QUIET_PERIOD_S:
                return
            await self._clock.sleep(POLL_S)

    async def _is_quiet(self, remote: HostedRepo) -> bool:
        """Whether nothing is on its way to the worker or from it, and it has nothing to do."""
        host, name, row = remote.host, remote.repo.name, remote.row
        if row is None or not self._hosts.is_awake(host) or row.worker.state not in ("running", "sleeping"):
            return False
        turns, worker = row.turns, row.worker
        if any(
            (
                remote.sending_count,
                worker.undelivered,
                worker.outbox,
                turns.running,
                turns.queued,
                turns.waiting,
            )
        ):
            return False
        try:
            untaken = await self._bus.message_counts(stream_in(host), events_to(host, name))
            undone = await self._bus.message_counts(stream_out(host), calls_of(host, name))
        except BusError:
            return False
        return not untaken and not undone

    async def _take_over(self, name: str, old: str) -> int:
        """Move the untaken events to the new host. The old host takes none once it knows that the repository is no
        longer its own. Nor does a silent host, whose lease has ended: it is fenced, however late it wakes."""
        while not self._is_released(name, old):
            await self._clock.sleep(POLL_S)
        remote = self._remote(name)
        stream, subject = stream_in(old), events_to(old, name)
        await self._prepare(remote.host, name)
        doubtful = await self._bus.last_delivered(stream, consumer_of(name))
        lost = 0
        while (found := await self._bus.oldest_message(stream, subject)) is not None:
            seq, body = found
            event = self._event_for_new_host(body, remote, is_doubtful=seq <= doubtful)
            if event is None:
                lost += 1
            else:
                # If we die now, the next leader repeats this: the server recognises the message ID, and later the
                # worker the event's key.
                new_subject = events_to(remote.host, name)
                await self._bus.publish(new_subject, encode(event), f"moved {old} {seq} {event.event.key}")
            await self._bus.delete_message(stream, seq)
        await self._bus.delete_consumer(stream, consumer_of(name))
        return lost

    def _is_released(self, name: str, old: str) -> bool:
        digest = assignment_digest(
            tuple(settings_for_host(each.repo) for each in self._remotes.values() if each.host == old)
        )
        return self._hosts.is_away(old) or self._fleet.has_released(name, old, digest)

    def _event_for_new_host(
        self, body: bytes, remote: HostedRepo, *, is_doubtful: bool
    ) -> EventForHost | None:
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
                    "dropped a %s that %s may already have handled",
                    type(event.event).__name__,
                    remote.old_host,
                )
                return None
            uncertain = replace(event.event, handled="maybe", late=True, stale=True)
            event = replace(event, event=uncertain)
        return replace(event, host=remote.host)


async def purge_host(bus: Bus, host: str) -> HostRemoved:
    """Count the messages in its streams, and delete them. Its credential must be revoked already. Raises BusError."""
    events = events_to(host, "")
    subjects = await bus.message_counts(stream_in(host), f"{events}>")
    calls = await bus.message_counts(stream_out(host), ">")
    for stream in (stream_in(host), stream_out(host)):
        await bus.purge(stream)
    waited = {subject.removeprefix(events).replace("=", "."): count for subject, count in subjects.items()}
    return HostRemoved(epoch=0, host=host, waited=waited, calls=sum(calls.values()))


async def announce_removal(bus: Bus, removed: HostRemoved) -> bool:
    """Have the gateway that leads tell the channels. False if none does."""
    try:
        await bus.ask(REMOVALS, encode(removed))
    except BusError:
        return False
    return True


class RemovalListener:
    """At the gateway: tells the channels of a removed host's repositories, which ``repos`` finds."""

    def __init__(
        self, epochs: Epochs, services: Services, repos: Callable[[str], tuple[RepoSettings, ...]]
    ) -> None:
        self._epochs = epochs
        self._services = services
        self._repos = repos
        self._codec: ClusterCodec[HostRemoved] = ClusterCodec(HostRemoved)

    async def on_removed(self, _subject: str, body: bytes) -> bytes | None:
        """Handle the message of a command on this machine: no host can send one here."""
        if not self._epochs.is_held:
            return None
        try:
            removed = self._codec.decode(body)
        except ProtocolError as error:
            log.warning("%s", error)
            return None
        log.info("%s was removed from the cluster", removed.host)
        self._epochs.hosts.mark_left(removed.host)
        for repo in self._repos(removed.host):
            try:
                await self._services.quarantined(repo, _notice(removed, repo.name))
            except CodeButlerError as error:
                log.warning("could not post in %s that its host was removed: %s", repo.name, error)
        return body


def _notice(removed: HostRemoved, repo: str) -> str:
    count = removed.waited.get(repo, 0)
    removed_text = f"its host {removed.host} was removed from the cluster."
    if not count:
        return removed_text
    waited = "One message waited for it and is" if count == 1 else f"{count} messages waited for it and are"
    return f"{removed_text} {waited} dropped: once the repository is on another host, send again what you still need."
