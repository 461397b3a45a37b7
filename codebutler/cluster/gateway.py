"""The gateway's view of its hosts: their workers, behind the same port (``Workers``) as the supervisor's own."""

from __future__ import annotations

import asyncio
import logging
import platform
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from functools import partial
from types import TracebackType

from msgspec import structs

from codebutler.cluster.absence import AbsenceNotices
from codebutler.cluster.buckets import BusError
from codebutler.cluster.bus import Bus
from codebutler.cluster.calls import HostCalls
from codebutler.cluster.connection import FloodGuard, LogLimiter
from codebutler.cluster.fleet import Fleet, HostedRepo
from codebutler.cluster.leases import Epochs
from codebutler.cluster.membership import (
    ANSWERS,
    REMOVALS,
    STAND_BY,
    answers_to,
    consumer_of,
    events_to,
    news_of,
    orders_to,
    questions_of,
    stream_in,
)
from codebutler.cluster.messages import (
    DROPPED,
    AskOrder,
    CheckPullsOrder,
    ClusterCodec,
    EventForHost,
    HostHeartbeat,
    HostNews,
    Order,
    OrderDone,
    ReturnedCall,
    StandingBy,
    StopOrder,
    WorkerOrder,
    encode,
)
from codebutler.cluster.moving import HostMoves, RemovalListener
from codebutler.cluster.questions import HostQuestions
from codebutler.config.permission import Where, admitted, may
from codebutler.config.schema import RepoSettings
from codebutler.domain.clock import Clock
from codebutler.domain.errors import (
    ChatError,
    CodeButlerError,
    FrameTooLargeError,
    ProtocolError,
    RegistryError,
)
from codebutler.domain.refs import ConversationRef, PersonRef
from codebutler.intake.records import Entry, Notes
from codebutler.platform.tasks import Tasks, cancel
from codebutler.protocol.conversations import Question as WorkerQuestion
from codebutler.protocol.messages import StopReason
from codebutler.supervisor.port import Services
from codebutler.supervisor.queues import T
from codebutler.supervisor.supervisor import RESTART_GRACE_S, RepoRow
from codebutler.supervisor.workers import ClusterRow, Mover

MAX_IN_BYTES = 2**28
ASK_S = 65.0
PREPARED_AT_ONCE = 16
LEASE_WAIT_S = 5.0
STATUS_S = 1.0

log = logging.getLogger("codebutler.cluster")


class HostWorkers:
    """The port ``Workers``, over NATS. An async context manager: leaving it stops no run on any host."""

    def __init__(self, bus: Bus, epochs: Epochs, services: Services, clock: Clock, notes: Notes) -> None:
        self._bus = bus
        self._epochs = epochs
        self._services = services
        self._clock = clock
        self._remotes: dict[str, HostedRepo] = {}
        self._channels: dict[ConversationRef, HostedRepo] = {}
        self._callers: set[str] = set()
        self._streams: set[str] = set()
        """Hosts whose stream exists."""
        self._prepare_slots = asyncio.Semaphore(PREPARED_AT_ONCE)
        self._urgent_slots = asyncio.Semaphore(PREPARED_AT_ONCE)
        """For repositories with an event: they do not wait for thousands without one."""
        self._tasks = Tasks(lambda name, error: log.error("%s failed: %r", name, error))
        self._fleet = Fleet(epochs, clock, platform.node())
        self._absence = AbsenceNotices(epochs.hosts, self._untaken_counts, notes, services, clock)
        self._questions = HostQuestions(epochs, services, self._repos_of, self._on_heartbeat, clock)
        self._fleet.incompatible = self._questions.incompatible
        self._log_limiter = LogLimiter()
        self._news: ClusterCodec[HostNews] = ClusterCodec(HostNews)
        self._standbys: ClusterCodec[StandingBy] = ClusterCodec(StandingBy)
        self._order_results: ClusterCodec[OrderDone] = ClusterCodec(OrderDone)
        self._stack = AsyncExitStack()
        self._started = False

    async def __aenter__(self) -> HostWorkers:
        for of, handler in ((questions_of, self._on_question), (news_of, self._on_news)):
            floods = FloodGuard(partial(self._subjects, of))
            await self._stack.enter_async_context(self._bus.listening(of("*"), handler, floods))
        removals = RemovalListener(self._epochs, self._services, self._repos_of)
        await self._stack.enter_async_context(self._bus.listening(REMOVALS, removals.on_removed))
        await self._stack.enter_async_context(self._bus.listening(STAND_BY, self._on_standby))
        self._tasks.start(self._absence.run(), name="absences")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()
        await self.shutdown(0)

    # The port

    def add(self, repo: RepoSettings) -> None:
        """Serve ``repo`` from now on. Raises RegistryError if its name or its channel is taken."""
        if repo.name in self._remotes:
            raise RegistryError(f"a repository named {repo.name} is already served")
        if repo.channel_id in self._channels:
            raise RegistryError(f"the channel of {repo.name} belongs to another repository")
        remote = HostedRepo(repo)
        self._remotes[repo.name] = self._channels[repo.channel_id] = remote
        remote.task = self._tasks.start(self._deliver(remote), name=f"events for {repo.name}")
        self._tasks.start(
            self._prepare(remote.host, repo.name, self._prepare_slots), name=f"consumer of {repo.name}"
        )
        self._listen_to(remote.host)

    def _listen_to(self, host: str) -> None:
        if host not in self._callers:
            self._callers.add(host)
            self._tasks.start(self._serve_calls(host), name=f"calls of {host}")

    async def remove(self, name: str, grace_s: float) -> None:  # noqa: ARG002 - the host's own
        """The host learns of it at its next beat. Raises RegistryError."""
        remote = self._remote(name)
        del self._remotes[name], self._channels[remote.repo.channel_id]
        if remote.task is not None:
            await cancel({remote.task})

    def reconfigure(self, repo: RepoSettings, grace_s: float = RESTART_GRACE_S) -> None:  # noqa: ARG002 - as above
        """The host learns of it at its next beat; if it is another host now, that one gets new events. Raises
        RegistryError."""
        remote = self._remote(repo.name)
        if self._channels.get(repo.channel_id, remote) is not remote:
            raise RegistryError(f"the channel of {repo.name} belongs to another repository")
        del self._channels[remote.repo.channel_id]
        self._channels[repo.channel_id] = remote
        remote.repo = repo
        self._listen_to(remote.host)

    def start(self) -> None:
        """From now on hosts are told their repositories; they start the workers themselves."""
        self._started = True

    async def wait_started(self) -> None:
        """Does nothing: the gateway is ready without any host."""

    @property
    def is_starting(self) -> bool:
        """Never: the hosts start the workers."""
        return False

    def deliver(self, entry: Entry) -> None:
        """Queue the event for its host's stream; once that has it on disk, the journal may forget it."""
        if (remote := self._channels.get(entry.channel)) is not None:
            remote.enqueue(entry)

    def stop_turns(self, name: str, user: PersonRef) -> None:
        """End all turns of the repository. Raises RegistryError."""
        self._order(StopOrder(epoch=self._epochs.epoch, repo=name, user=user))

    def look_at_pulls(self, name: str, numbers: tuple[int, ...]) -> None:
        """There is news of these pull requests, none = of any."""
        if name in self._remotes:
            self._order(CheckPullsOrder(epoch=self._epochs.epoch, repo=name, numbers=numbers))

    def tell_total(self) -> None:
        """The hosts learn of it at their next beat."""
        self._questions.on_use_changed()

    def wake(self, name: str) -> None:
        """Start the worker now if it does not run. Raises RegistryError."""
        self._order(WorkerOrder(epoch=self._epochs.epoch, repo=name, how="wake"))

    def restart(self, name: str) -> None:
        """End the worker, and start it again. Raises RegistryError."""
        self._order(WorkerOrder(epoch=self._epochs.epoch, repo=name, how="restart"))

    def _order(self, order: StopOrder | CheckPullsOrder | WorkerOrder) -> None:
        host = self._remote(order.repo).host
        self._tasks.start(self._bus.broadcast(orders_to(host), encode(order)), name=f"order for {order.repo}")

    async def ask(self, name: str, question: WorkerQuestion, kind: type[T]) -> T:
        """What the repository's worker answers. Raises CodeButlerError if it does not, RegistryError."""
        remote = self._remote(name)
        order: Order = AskOrder(epoch=self._epochs.epoch, repo=name, question=question)
        try:
            body = await self._bus.ask(orders_to(remote.host), encode(order), ASK_S)
        except BusError as error:
            raise CodeButlerError(
                self._fleet.away_reason(remote.host) or "the host did not answer: try again"
            ) from error
        result = self._order_results.decode(body)
        if not isinstance(result.answer, kind):
            raise CodeButlerError(result.problem or "the host gave an unexpected answer")
        return result.answer

    def down(self, name: str) -> str:
        """Why it stays down; "" while it is served."""
        remote = self._remotes.get(name)
        if remote is None:
            return ""
        if away := self._fleet.away_reason(remote.host):
            return away
        row = remote.row
        return row.problem if row is not None and row.worker.state in ("stopped", "quarantined") else ""

    def rows(self) -> tuple[RepoRow, ...]:
        """Every repository, as its host last reported it."""
        return tuple(map(self._fleet.row, self._remotes.values()))

    async def status(self) -> tuple[RepoRow, ...]:
        """The same, with the events that the hosts have not taken."""
        untaken = await self._all_untaken_counts()
        return tuple(
            self._fleet.row(each, untaken.get(each.host, {}).get(each.repo.name, 0))
            for each in self._remotes.values()
        )

    async def cluster(self) -> ClusterRow:
        """The gateways, and every host that has a repository."""
        untaken = await self._all_untaken_counts()
        repos = {host: tuple(each.name for each in self._repos_of(host)) for host in self._hosts}
        return self._fleet.cluster(repos, {host: sum(counts.values()) for host, counts in untaken.items()})

    def _subjects(self, of: Callable[[str], str]) -> set[str]:
        return set(map(of, self._hosts))

    @property
    def _hosts(self) -> set[str]:
        return {remote.host for remote in self._remotes.values()}

    async def _all_untaken_counts(self) -> dict[str, Mapping[str, int]]:
        """Events that were not taken, by host and repository; without hosts for which NATS does not answer soon."""
        found: dict[str, Mapping[str, int]] = {}

        async def look(host: str) -> None:
            with suppress(BusError):
                found[host] = await self._untaken_counts(host)

        with suppress(TimeoutError):
            async with asyncio.timeout(STATUS_S):
                await asyncio.gather(*map(look, self._hosts))
        return found

    @property
    def mover(self) -> Mover:
        """Moves repositories between the hosts."""
        moves = HostMoves(self._bus, self._epochs, self._fleet, self._clock, self._remotes, self._prepare)
        return moves.mover

    @property
    def outbox_pending(self) -> int:
        """How many operations the workers have not seen completed, by the hosts' last reports."""
        return self._fleet.outbox_pending

    async def shutdown(self, grace_s: float, reason: StopReason = "shutdown") -> None:  # noqa: ARG002 - they go on
        """Stop talking to the hosts; they continue to work."""
        await self._questions.close()
        await self._tasks.close(0)

    # Events on their way to the hosts

    async def _deliver(self, remote: HostedRepo) -> None:
        prepared = ""
        while True:
            entry = await remote.waiting.get()
            if (host := remote.host) != prepared:
                await self._prepare(host, remote.repo.name)
                prepared = host
            while not self._epochs.is_held:
                await self._clock.sleep(LEASE_WAIT_S)  # anything sent now would be refused
            try:
                event = await self._absence.reclassify(remote.repo, entry.event)
                await self._publish(remote, structs.replace(entry, event=event))
                self._absence.on_sent(remote.repo, entry.event)
            except FrameTooLargeError as error:
                log.warning("event %d cannot be delivered and is dropped: %s", entry.seq, error)
            try:
                await self._services.settle(entry.seq)
            except CodeButlerError as error:
                log.warning("event %d stays in the journal: %s", entry.seq, error)
            remote.unsettled.discard(entry.seq)

    async def _prepare(self, host: str, repo: str, slots: asyncio.Semaphore | None = None) -> None:
        async with slots or self._urgent_slots:
            if host not in self._streams:
                await self._bus.ensure_stream(stream_in(host), f"cb.in.{host}.>", MAX_IN_BYTES)
                self._streams.add(host)
            # One at a time: only then is the order kept when a host dies between two.
            await self._bus.ensure_consumer(
                stream_in(host), consumer_of(repo), events_to(host, repo), in_flight=1
            )

    async def _publish(self, remote: HostedRepo, entry: Entry) -> None:
        epoch = self._epochs.epoch
        event = EventForHost(
            epoch=epoch,
            host=remote.host,
            repo=remote.repo.name,
            event=entry.event,
            request=entry.request,
            received_at=entry.received_at,
            trace=entry.trace,
        )
        subject, key = events_to(event.host, event.repo), f"{epoch} {entry.event.key}"
        await self._bus.publish(subject, encode(event), key)

    async def _untaken_counts(self, host: str) -> Mapping[str, int]:
        """Events in the host's stream, by repository. Raises BusError."""
        counts = await self._bus.message_counts(stream_in(host), events_to(host, "*"))
        found = {each.name: counts.get(events_to(host, each.name), 0) for each in self._repos_of(host)}
        return {name: count for name, count in found.items() if count}

    # What the hosts say

    async def _serve_calls(self, host: str) -> None:
        await self._bus.ensure_stream(stream_in(host), f"cb.in.{host}.>", MAX_IN_BYTES)
        await self._bus.ensure_consumer(stream_in(host), ANSWERS, answers_to(host))

        def find_repo(name: str) -> RepoSettings | None:
            remote = self._remotes.get(name)
            return remote.repo if remote is not None and remote.accepts_reports_of(host) else None

        calls = HostCalls(host, self._bus, self._epochs, self._services, find_repo, self._check_returned)
        await calls.run()

    async def _check_returned(self, call: ReturnedCall) -> None:
        """An event from a gateway that no longer leads: its host takes it now, in its original place, if its author is
        still allowed. Raises ChatError if not."""
        repo = self._remotes[call.repo].repo
        decision = may(admitted(call.event.user), "see", Where(repo.config, repo.channel_id))
        if call.event.channel != repo.channel_id or not decision.allowed:
            raise ChatError("its author is no longer allowed to send it", DROPPED)

    async def _on_question(self, subject: str, body: bytes) -> bytes | None:
        host = subject.rpartition(".")[2]
        if not self._started:
            return None  # a host that gets an empty assignment ends its workers
        return await self._questions.handle(host, body)

    async def _on_news(self, subject: str, body: bytes) -> None:
        host = subject.rpartition(".")[2]
        try:
            news = self._news.decode(body)
        except ProtocolError as error:
            if self._log_limiter.admits(host, self._clock.monotonic()):
                log.warning("news of %s: %s", host, error)
            return
        remote = self._remotes.get(news.repo)
        if remote is None or remote.host != host:
            return
        if news.epoch == await self._epochs.hosts.epoch_of(host):
            self._services.show(remote.repo, news.with_local_times(self._clock.now()))

    def _on_heartbeat(self, host: str, beat: HostHeartbeat) -> None:
        self._fleet.on_heartbeat(host, beat, self._remotes.values())
        if not beat.leaves:
            self._absence.on_heartbeat(host, self._repos_of(host))

    async def _on_standby(self, _subject: str, body: bytes) -> None:
        with suppress(ProtocolError):
            self._fleet.on_standby(self._standbys.decode(body))

    # What we know of them

    def _repos_of(self, host: str) -> tuple[RepoSettings, ...]:
        return tuple(remote.repo for remote in self._remotes.values() if remote.host == host)

    def _remote(self, name: str) -> HostedRepo:
        remote = self._remotes.get(name)
        if remote is None:
            raise RegistryError(f"no repository named {name} is served: see `codebutler repos`")
        return remote
