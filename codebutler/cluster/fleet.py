"""What a gateway knows about the machines of its cluster: their repositories, and when they were last heard from."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from msgspec import structs

from codebutler.cluster.leases import RENEW_S, Epochs
from codebutler.cluster.messages import HostHeartbeat, StandingBy
from codebutler.config.registry import host_in
from codebutler.config.schema import RepoSettings
from codebutler.domain.clock import Clock
from codebutler.domain.model import ButtonClicked, Command
from codebutler.domain.version import VERSION
from codebutler.intake.records import Entry
from codebutler.supervisor.supervisor import RepoRow
from codebutler.supervisor.workers import ClusterRow, GatewayRow, HostRow

STANDBY_TIMEOUT_S = 4 * RENEW_S
"""A standby that has been silent for this long has ended."""
PROBLEM_CHARS = 1000


class HostedRepo:
    """A repository on a host, with its events until the stream has them. While it is moved, new ones are ``held``."""

    def __init__(self, repo: RepoSettings) -> None:
        self.repo = repo
        self.waiting: asyncio.Queue[Entry] = asyncio.Queue()
        self.unsettled: set[int] = set()
        self.row: RepoRow | None = None
        self.task: asyncio.Task[None] | None = None
        self.held: list[Entry] | None = None
        self.old_host = ""
        """The host that it is leaving, whose last calls are still carried out."""

    @property
    def host(self) -> str:
        """The host it is on now."""
        return host_in(self.repo.path)

    @property
    def sending_count(self) -> int:
        """How many events are on their way to a stream."""
        return len(self.unsettled) - len(self.held or ())

    def accepts_reports_of(self, host: str) -> bool:
        """Whether that host may report about it and make calls for it."""
        return host in (self.host, self.old_host)

    def enqueue(self, entry: Entry) -> None:
        """Queue an event, once."""
        if entry.seq in self.unsettled:
            return
        self.unsettled.add(entry.seq)
        if self.held is None or (not self.old_host and _is_about_running_work(entry)):
            self.waiting.put_nowait(entry)
        else:
            self.held.append(entry)

    def hold(self, old_host: str) -> None:
        """Hold new events; without ``old_host``, clicks and commands about running work still pass."""
        self.held, self.old_host = self.held or [], old_host

    def release(self) -> None:
        """Pass on the held events, in order."""
        held, self.held, self.old_host = self.held or [], None, ""
        for entry in held:
            self.waiting.put_nowait(entry)


def _is_about_running_work(entry: Entry) -> bool:
    """Whether the event is about running work: a click, or a command that ends it."""
    request = entry.request
    return isinstance(entry.event, ButtonClicked) or (
        isinstance(request, Command) and request.name in ("stop", "kill")
    )


class Fleet:
    """Learns from beats and from standbys. ``machine``: the name of this machine."""

    def __init__(self, epochs: Epochs, clock: Clock, machine: str) -> None:
        self.incompatible: Mapping[str, str] = {}
        """Hosts that are not served because their version does not fit, each with the reason."""
        self._epochs = epochs
        self._clock = clock
        self._machine = machine
        self._heartbeats: dict[str, HostHeartbeat] = {}
        self._standbys: dict[str, tuple[StandingBy, float]] = {}

    def on_heartbeat(self, host: str, beat: HostHeartbeat, remotes: Iterable[HostedRepo]) -> None:
        """A host that was granted its lease reports."""
        self._heartbeats[host] = structs.replace(beat, rows=())
        mine = {remote.repo.name: remote for remote in remotes if remote.host == host}
        for row in beat.rows:
            if (remote := mine.get(row.name)) is not None:
                repo = remote.repo
                problem, doubt = row.problem[:PROBLEM_CHARS], row.doubt[:PROBLEM_CHARS]
                remote.row = structs.replace(
                    row, path=repo.path, channel_id=repo.channel_id, host=host, problem=problem, doubt=doubt
                )

    @property
    def names(self) -> set[str]:
        """The names of the hosts that were heard from."""
        return set(self._heartbeats)

    def has_released(self, name: str, host: str, digest: str) -> bool:
        """Whether that host no longer serves the repository: it knows the assignment ``digest``, which lacks it, and
        its worker has ended."""
        beat = self._heartbeats.get(host)
        return beat is not None and beat.known == digest and all(row.name != name for row in beat.rows)

    def on_standby(self, gateway: StandingBy) -> None:
        """A gateway reports that it stands by."""
        self._standbys[gateway.instance] = gateway, self._clock.boottime()

    def away_reason(self, host: str) -> str:
        """Says in words that it is away, and since when; "" while it is awake."""
        if self._epochs.hosts.is_awake(host):
            return ""
        if why := self.incompatible.get(host):
            return why
        return f"its host {host} has been away since {self.last_heard(host):%Y-%m-%d %H:%M} UTC: messages wait for it"

    def last_heard(self, host: str) -> datetime:
        """When it was last heard from, or when this gateway began to listen."""
        return self._ago(self._epochs.hosts.silent_s(host))

    @property
    def outbox_pending(self) -> int:
        """How many operations the workers have not seen completed, by the hosts' last reports."""
        return sum(beat.outbox for beat in self._heartbeats.values())

    def row(self, remote: HostedRepo, untaken: int = 0) -> RepoRow:
        """The repository's row as its host last reported it, unless the host is away. ``untaken``: events in the
        stream."""
        known, problem = remote.row, self.away_reason(remote.host)
        if known is None or problem:
            known = RepoRow(
                name=remote.repo.name,
                path=remote.repo.path,
                channel_id=remote.repo.channel_id,
                problem=problem,
                host=remote.host,
            )
        undelivered = max(known.worker.undelivered, untaken + len(remote.unsettled))
        return structs.replace(known, worker=structs.replace(known.worker, undelivered=undelivered))

    def cluster(self, repos: Mapping[str, tuple[str, ...]], pending: Mapping[str, int]) -> ClusterRow:
        """The state of the cluster. ``repos`` and ``pending`` by host: the names of its repositories, and how many
        events it has not taken."""
        now, now_s = self._clock.now(), self._clock.boottime()
        gateways = [GatewayRow(machine=self._machine, version=VERSION, leads=True, seen=now)]
        for each, seen_s in self._standbys.values():
            if now_s - seen_s < STANDBY_TIMEOUT_S:
                seen = self._ago(now_s - seen_s)
                gateways.append(
                    GatewayRow(machine=each.machine, version=each.version, leads=False, seen=seen)
                )
        names = sorted({*repos, *self._heartbeats})
        hosts = tuple(self._host(name, repos.get(name, ()), pending.get(name)) for name in names)
        return ClusterRow(epoch=self._epochs.epoch, gateways=tuple(gateways), hosts=hosts)

    def _host(self, name: str, repos: tuple[str, ...], pending: int | None) -> HostRow:
        beat, leases = self._heartbeats.get(name), self._epochs.hosts
        awake = leases.is_awake(name)
        return HostRow(
            name=name,
            awake=awake,
            repos=repos,
            since=None if awake else self.last_heard(name),
            seen=self.last_heard(name) if beat else None,
            version=beat.release if beat else "",
            pending=pending,
            outbox=beat.outbox if beat else 0,
            has=beat.has if beat else None,
        )

    def _ago(self, seconds: float) -> datetime:
        return (self._clock.now() - timedelta(seconds=seconds)).replace(microsecond=0)
