"""What hosts ask the gateway to do: calls, taken from their streams, each of which is carried out once, answered, and
then acknowledged."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing

from codebutler.cluster.buckets import BusError
from codebutler.cluster.bus import IN_FLIGHT, Bus, DeliveredMessage
from codebutler.cluster.connection import LogLimiter
from codebutler.cluster.leases import Epochs
from codebutler.cluster.membership import GATEWAY, answers_to, calls_of, stream_out
from codebutler.cluster.messages import (
    Call,
    CallAnswer,
    ClusterCodec,
    DownCall,
    EndedCall,
    ReportCall,
    ReturnedCall,
    SendCall,
    encode,
)
from codebutler.config.schema import RepoSettings
from codebutler.domain.errors import ChatError, ChatUnreachableError, CodeButlerError, ProtocolError
from codebutler.domain.refs import NOWHERE, MessageRef
from codebutler.platform.tasks import Tasks, beside
from codebutler.supervisor.port import Services

MAX_OUT_BYTES = 2**28
CALLS_AT_ONCE = 16

log = logging.getLogger("codebutler.cluster")


class HostCalls:
    """The calls of one host. ``find_repo`` finds a repository of it; ``check_returned`` takes an event that it gives
    back.

    If we stop in the middle, the next leader gets the call again, and treats it as unsure.
    """

    def __init__(
        self,
        host: str,
        bus: Bus,
        epochs: Epochs,
        services: Services,
        find_repo: Callable[[str], RepoSettings | None],
        check_returned: Callable[[ReturnedCall], Awaitable[None]],
    ) -> None:
        self._host = host
        self._bus = bus
        self._epochs = epochs
        self._services = services
        self._find_repo = find_repo
        self._check_returned = check_returned
        self._codec: ClusterCodec[Call] = ClusterCodec(Call)
        self._tasks = Tasks(lambda name, error: log.error("%s failed: %r", name, error))
        self._handling: set[int] = set()
        self._log_limiter = LogLimiter()
        self._operations: dict[tuple[str, str], asyncio.Lock] = {}

    async def run(self) -> None:
        """Take and carry out calls until cancelled."""
        stream = stream_out(self._host)
        await self._bus.ensure_stream(stream, calls_of(self._host, ">"), MAX_OUT_BYTES)
        await self._bus.ensure_consumer(stream, GATEWAY, calls_of(self._host, ">"), IN_FLIGHT)
        try:
            async with aclosing(self._bus.consume(stream, GATEWAY, CALLS_AT_ONCE)) as messages:
                async for delivered in messages:
                    if delivered.seq not in self._handling:
                        self._handling.add(delivered.seq)
                        self._tasks.start(self._handle(delivered), name=f"call of {self._host}")
        finally:
            await self._tasks.close(0)

    async def _handle(self, delivered: DeliveredMessage) -> None:
        try:
            async with beside(delivered.keep_claimed(), name="working"):
                if await self._carry_out(delivered):
                    await delivered.ack()
        except BusError as error:
            log.warning("a call from %s is waiting: %s", self._host, error)
        finally:
            self._handling.discard(delivered.seq)

    async def _carry_out(self, delivered: DeliveredMessage) -> bool:
        """Carry it out, unless its sender is fenced. False: it must be delivered again."""
        try:
            call = self._codec.decode(delivered.body)
        except ProtocolError as error:
            self._warn_seldom("cannot read a message from %s: %s", self._host, error)
            return True
        epoch = await self._epochs.hosts.epoch_of(self._host)
        if call.epoch < epoch:
            words = "refused a call from %s: its epoch is %d, the current one is %d"
            self._warn_seldom(words, self._host, call.epoch, epoch)
            return True
        if call.epoch > epoch or not self._epochs.is_held:
            return False  # another gateway leads
        repo = self._find_repo(call.repo)
        if repo is None:
            self._warn_seldom(
                "refused a call from %s: %s is not one of its repositories", self._host, call.repo
            )
            if isinstance(call, ReportCall):  # the host does not store it for later
                why = f"{call.repo} is not served by this host"
                await self._publish(self._failure(call, "fenced", why))
            return True
        answer = await self._answer(repo, call, is_redelivery=delivered.is_redelivery)
        if answer is None:
            return False
        await self._publish(answer)
        return True

    def _warn_seldom(self, text: str, *args: object) -> None:
        """Once a minute: a hostile host could fill the log."""
        if self._log_limiter.admits(self._host, self._bus.clock.monotonic()):
            log.warning(text, *args)

    def _failure(self, call: Call, code: str, text: str) -> CallAnswer:
        epoch = self._epochs.epoch
        return CallAnswer(epoch=epoch, host=self._host, call=call.call, failed=True, code=code, text=text)

    async def _publish(self, answer: CallAnswer) -> None:
        await self._bus.publish(answers_to(self._host), encode(answer), f"answer {answer.call}")

    async def _answer(self, repo: RepoSettings, call: Call, *, is_redelivery: bool) -> CallAnswer | None:
        """The answer; None if the chat cannot be reached and nothing was done."""
        epoch, ref = self._epochs.epoch, NOWHERE
        try:
            match call:
                case SendCall():
                    ref = await self._send(repo, call, is_redelivery=is_redelivery)
                case EndedCall(ended=ended):
                    await self._services.turn_ended(repo, ended)
                case DownCall(why=why):
                    await self._services.quarantined(repo, why)
                case ReportCall(report=report):
                    await self._services.reported(repo, report)
                case ReturnedCall():
                    await self._check_returned(call)
        except ChatUnreachableError:
            return None
        except CodeButlerError as error:
            code = error.code if isinstance(error, ChatError) else "internal_error"
            return self._failure(call, code, str(error))
        return CallAnswer(epoch=epoch, host=self._host, call=call.call, ref=ref)

    async def _send(self, repo: RepoSettings, call: SendCall, *, is_redelivery: bool) -> MessageRef:
        """Send an operation, never twice at the same time: a host that restarted asks for it again."""
        key = (call.repo, call.op_id)
        lock = self._operations.setdefault(key, asyncio.Lock())
        unsure = call.unsure or is_redelivery or lock.locked()
        try:
            async with lock:
                return await self._services.send(repo, call.op_id, call.operation, unsure=unsure)
        finally:
            if not lock.locked():
                self._operations.pop(key, None)
