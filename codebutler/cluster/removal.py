"""Removes a host's streams from the cluster: its waiting events and calls are counted, reported, and deleted."""

from __future__ import annotations

import logging
from collections.abc import Callable

from codebutler.cluster.buckets import BusError
from codebutler.cluster.bus import Bus
from codebutler.cluster.leases import Epochs
from codebutler.cluster.messages import ClusterCodec, HostRemoved, encode
from codebutler.cluster.subjects import REMOVALS, events_to, stream_in, stream_out
from codebutler.config.schema import RepoSettings
from codebutler.domain.errors import CodeButlerError, ProtocolError
from codebutler.supervisor.port import Services

log = logging.getLogger("codebutler.cluster")


async def emptied(bus: Bus, host: str) -> HostRemoved:
    """Count the messages in its streams, and delete them. Its credential must be revoked already. Raises BusError."""
    events = events_to(host, "")
    subjects = await bus.counts(stream_in(host), f"{events}>")
    calls = await bus.counts(stream_out(host), ">")
    for stream in (stream_in(host), stream_out(host)):
        await bus.purge(stream)
    waited = {subject.removeprefix(events).replace("=", "."): count for subject, count in subjects.items()}
    return HostRemoved(epoch=0, host=host, waited=waited, calls=sum(calls.values()))


async def announced(bus: Bus, removed: HostRemoved) -> bool:
    """Have the gateway that leads tell the channels. False if none does."""
    try:
        await bus.ask(REMOVALS, encode(removed))
    except BusError:
        return False
    return True


class Removals:
    """At the gateway: tells the channels of a removed host's repositories, which ``repos`` finds."""

    def __init__(
        self, authority: Epochs, services: Services, repos: Callable[[str], tuple[RepoSettings, ...]]
    ) -> None:
        self._authority = authority
        self._services = services
        self._repos = repos
        self._codec: ClusterCodec[HostRemoved] = ClusterCodec(HostRemoved)

    async def told(self, _subject: str, body: bytes) -> bytes | None:
        """Handle the message of a command on this machine: no host can send one here."""
        if not self._authority.is_held:
            return None
        try:
            removed = self._codec.decode(body)
        except ProtocolError as error:
            log.warning("%s", error)
            return None
        log.info("%s was removed from the cluster", removed.host)
        self._authority.hosts.left(removed.host)
        for repo in self._repos(removed.host):
            try:
                await self._services.quarantined(repo, _notice(removed, repo.name))
            except CodeButlerError as error:
                log.warning("could not post in %s that its host was removed: %s", repo.name, error)
        return body


def _notice(removed: HostRemoved, repo: str) -> str:
    count = removed.waited.get(repo, 0)
    gone = f"its host {removed.host} was removed from the cluster."
    if not count:
        return gone
    waited = "One message waited for it and is" if count == 1 else f"{count} messages waited for it and are"
    return f"{gone} {waited} dropped: once the repository is on another host, send again what you still need."
