"""A host: its beats to the gateway, the repositories it is given, and their events, one at a time and each once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing, suppress
from uuid import uuid4

from msgspec import Struct

from codebutler.cluster.buckets import BusError
from codebutler.cluster.bus import Bus, DeliveredMessage
from codebutler.cluster.leases import HOST_TTL_S, LeaseLostError
from codebutler.cluster.membership import ANSWERS, consumer_of, orders_to, questions_of, stream_in
from codebutler.cluster.messages import (
    CLUSTER_VERSION,
    DROPPED,
    HEARTBEAT_S,
    AskOrder,
    CallAnswer,
    CheckPullsOrder,
    ClusterCodec,
    EventForHost,
    Granted,
    HostHeartbeat,
    Order,
    OrderDone,
    Refused,
    Reply,
    ReturnedCall,
    StopOrder,
    ToHost,
    WorkerOrder,
    encode,
)
from codebutler.cluster.services import HeldLease, HostServices
from codebutler.config.schema import RepoSettings
from codebutler.domain.clock import Clock
from codebutler.domain.errors import ChatError, CodeButlerError, ProtocolError
from codebutler.domain.model import Event
from codebutler.domain.version import VERSION
from codebutler.intake.intake import LATE_S, dated
from codebutler.intake.records import Entry
from codebutler.platform.tasks import beside, cancel, ungrouped, wait_for
from codebutler.protocol.conversations import ANSWERED_BY
from codebutler.supervisor.supervisor import RESTART_GRACE_S, RepoRow
from codebutler.supervisor.workers import Workers

UNANSWERED = 3
"""After this many beats without an answer we try another server: ours may be cut off from the gateway."""
REFRESH_S = 10.0
POLL_S = 0.2
ANSWERS_AT_ONCE = 64

log = logging.getLogger("codebutler.cluster")


class LocalRepos(Struct, frozen=True):
    """The part of an assignment that this machine can serve: settings by name, and rows of what it cannot serve.
    ``registered``: the names of all repositories that it has."""

    served: dict[str, RepoSettings]
    missing: tuple[RepoRow, ...] = ()
    registered: tuple[str, ...] = ()


class HostLink:
    """Connects this host to its gateway; ``run`` until cancelled. ``local`` finds the part of an assignment that is on
    this machine; it blocks."""

    def __init__(
        self,
        bus: Bus,
        lease: HeldLease,
        services: HostServices,
        workers: Workers,
        local: Callable[[tuple[RepoSettings, ...]], LocalRepos],
        clock: Clock,
    ) -> None:
        self.granted = asyncio.Event()
        self._assignment_changed = asyncio.Event()
        self._bus = bus
        self._lease = lease
        self._services = services
        self._workers = workers
        self._local = local
        self._clock = clock
        self._digest = self._waiting_reason = self._totals = self._runs = ""
        self._assignment: tuple[RepoSettings, ...] = ()
        self._served: dict[str, RepoSettings] = {}
        self._missing: tuple[RepoRow, ...] = ()
        self._registered: tuple[str, ...] = ()
        self._loops: dict[str, asyncio.Task[None]] = {}
        self._replies: ClusterCodec[Reply] = ClusterCodec(Reply)
        self._orders: ClusterCodec[Order] = ClusterCodec(Order)
        self._messages: ClusterCodec[ToHost] = ClusterCodec(ToHost)

    async def run(self) -> None:
        """Raises LeaseLostError if another process is this host, or its version does not fit."""
        orders = self._bus.listening(orders_to(self._lease.host), self._on_order)
        try:
            with ungrouped():
                async with orders, asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._send_heartbeats(), name="beats")
                    tasks.create_task(self._receive_answers(), name="answers")
                    tasks.create_task(self._refresh_regularly(), name="repositories")
        finally:
            await cancel(set(self._loops.values()))

    async def _refresh_regularly(self) -> None:
        """Runs beside the beats, because ending a worker may take long."""
        while True:
            try:
                await self._refresh()
            except (CodeButlerError, OSError) as error:
                log.error("cannot read the repositories: %s", error)  # noqa: TRY400 - a line is enough
            await wait_for(self._clock, self._assignment_changed, REFRESH_S)
            self._assignment_changed.clear()

    async def _refresh(self) -> None:
        """Serve the part of the assignment that is here: it may have changed, and so may files on this disk."""
        local = await asyncio.to_thread(self._local, self._assignment)
        for row in set(local.missing) - set(self._missing):
            log.error("%s is not served: %s", row.name, row.problem)
        self._missing, self._registered = local.missing, local.registered
        for name in self._served.keys() - local.served.keys():
            await cancel({self._loops.pop(name)})
            await self._workers.remove(name, RESTART_GRACE_S)
            del self._served[name]
        for name, settings in local.served.items():
            if name not in self._served:
                self._workers.add(settings)
                self._loops[name] = asyncio.create_task(self._receive_events(name), name=f"events of {name}")
            elif settings != self._served[name]:
                self._workers.reconfigure(settings)
            self._served[name] = settings

    # Beats

    async def _send_heartbeats(self) -> None:
        unanswered = 0
        while True:
            requested_s = self._clock.boottime()
            try:
                await self._send_heartbeat(requested_s)
                unanswered = 0
            except (BusError, ProtocolError) as error:
                log.debug("no gateway answers: %s", error)
                unanswered += 1
                if unanswered % UNANSWERED == 0:
                    await self._bus.reconnect()
            await self._clock.sleep(HEARTBEAT_S)

    async def announce_leaving(self) -> None:
        """Tell the gateway that this process ends. Without a gateway, another process of this host has to wait."""
        with suppress(BusError, ProtocolError):
            await self._bus.ask(questions_of(self._lease.host), encode(self._heartbeat(leaves=True)))

    def _heartbeat(self, *, leaves: bool = False) -> HostHeartbeat:
        return HostHeartbeat(
            epoch=self._lease.epoch,
            version=CLUSTER_VERSION,
            instance=self._lease.instance,
            rows=(*self._workers.rows(), *self._missing),
            outbox=self._workers.outbox_pending,
            known=self._digest,
            leaves=leaves,
            release=VERSION,
            totals=self._totals,
            runs=self._runs,
            has=self._registered,
        )

    async def _send_heartbeat(self, requested_s: float) -> None:
        body = await self._bus.ask(questions_of(self._lease.host), encode(self._heartbeat()))
        reply = self._replies.decode(body)
        if reply.epoch < self._lease.gateway_epoch:
            log.warning("ignored a gateway whose lease has expired (epoch %d)", reply.epoch)
        elif isinstance(reply, Refused) and (self._lease.epoch or not reply.for_now):
            raise LeaseLostError(f"the gateway refuses this host: {reply.why}")
        elif isinstance(reply, Refused):
            if reply.why != self._waiting_reason:
                log.warning("waiting: %s", reply.why)
            self._waiting_reason = reply.why
        elif isinstance(reply, Granted):
            self._on_granted(reply, requested_s)

    def _on_granted(self, granted: Granted, requested_s: float) -> None:
        lease, is_new = self._lease, granted.epoch != self._lease.gateway_epoch
        lease.epoch, lease.gateway_epoch = granted.host_epoch, granted.epoch
        lease.valid_until_s = requested_s + HOST_TTL_S
        if granted.totals is not None:
            self._services.totals, self._totals = granted.totals, granted.totals_known
            self._workers.tell_total()
        if granted.runs is not None:
            self._services.runs, self._runs = granted.runs, granted.runs_known
            self._services.on_runs()
        if granted.repos is not None:
            self._assignment, self._digest = granted.repos, granted.digest
            self._assignment_changed.set()
        if is_new:
            self._services.resend_reports()
        self.granted.set()

    # Messages

    async def _receive_answers(self) -> None:
        await self.granted.wait()
        stream = stream_in(self._lease.host)
        async with aclosing(self._bus.consume(stream, ANSWERS, ANSWERS_AT_ONCE)) as messages:
            async for delivered in messages:
                message = self._decode(delivered)
                if isinstance(message, CallAnswer):
                    # From any gateway: it reports what has already happened.
                    self._services.on_answer(message)
                await delivered.ack()

    async def _receive_events(self, name: str) -> None:
        """Take a repository's events one at a time: the next one comes when the worker has stored this one."""
        stream = stream_in(self._lease.host)
        async with aclosing(self._bus.consume(stream, consumer_of(name))) as messages:
            async for delivered in messages:
                async with beside(delivered.keep_claimed(), name="working"):
                    while self._clock.boottime() >= self._lease.valid_until_s:
                        # we may have slept: another process may be this host now
                        await self._clock.sleep(POLL_S)
                    message = self._decode(delivered)
                    try:
                        if isinstance(message, EventForHost) and message.repo == name:
                            await self._deliver(message, delivered.seq)
                    except CodeButlerError as error:
                        # Not acknowledged: it comes again.
                        log.warning("an event for %s is waiting: %s", name, error)
                        continue
                await delivered.ack()

    async def _deliver(self, message: EventForHost, seq: int) -> None:
        if all(each.name != message.repo for each in self._assignment):
            raise CodeButlerError("it has moved to another host")  # as this host has only just learned
        if message.epoch < self._lease.gateway_epoch and not await self._is_wanted(message):
            return
        if message.event.channel != self._served[message.repo].channel_id:
            log.warning(
                "refused an event of %s for %s, which has another channel",
                message.event.channel,
                message.repo,
            )
            return
        stored = self._services.stored_event(seq)
        event = self._mark_late(message)
        entry = Entry(seq, event.channel, event, message.request, message.received_at, trace=message.trace)
        try:
            self._workers.deliver(entry)
            await stored.wait()
        finally:
            self._services.forget(seq)

    async def _is_wanted(self, message: EventForHost) -> bool:
        """Ask the leader about an event from a gateway that no longer leads. Meanwhile the event keeps its place: if it
        were sent again, later ones would overtake it. Raises ChatError if there is no decision."""
        call = ReturnedCall(
            epoch=self._lease.epoch,
            call=uuid4().hex,
            repo=message.repo,
            event=message.event,
            request=message.request,
            received_at=message.received_at,
        )
        try:
            await self._services.call(call)
        except ChatError as error:
            if error.code == DROPPED:
                log.warning("dropped an event for %s: %s", message.repo, error)
                return False
            raise
        return True

    def _mark_late(self, message: EventForHost) -> Event:
        """Mark an event that waited for us as late; after `catchUp.maxAgeHours` a person is asked about it."""
        now = self._clock.now()
        if (now - message.received_at).total_seconds() <= LATE_S:
            return message.event
        max_age_hours = self._served[message.repo].config.catch_up.max_age_hours
        return dated(message.event, now, message.received_at, max_age_hours)

    def _decode(self, delivered: DeliveredMessage) -> ToHost | None:
        """None for a message that is not for us: the server delivers to any subject that a sender names."""
        try:
            message = self._messages.decode(delivered.body)
        except ProtocolError as error:
            log.warning("%s", error)
            return None
        return message if message.host == self._lease.host else None

    async def _on_order(self, _subject: str, body: bytes) -> bytes | None:
        try:
            order = self._orders.decode(body)
            if order.epoch < self._lease.gateway_epoch or order.repo not in self._served:
                return None
            match order:
                case StopOrder(repo=repo, user=user):
                    self._workers.stop_turns(repo, user)
                case CheckPullsOrder(repo=repo, numbers=numbers):
                    self._workers.look_at_pulls(repo, numbers)
                case WorkerOrder(repo=repo, how="wake"):
                    self._workers.wake(repo)
                case WorkerOrder(repo=repo):
                    self._workers.restart(repo)
                case AskOrder(repo=repo, question=question):
                    answer = await self._workers.ask(repo, question, ANSWERED_BY[type(question)])
                    return encode(OrderDone(epoch=self._lease.epoch, answer=answer))
        except CodeButlerError as error:
            return encode(OrderDone(epoch=self._lease.epoch, problem=str(error)))
        return None
