"""The calls that hosts make, taken from their streams: each is carried out once, answered, and then acknowledged."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing

from codebutler.cluster.buckets import BusError
from codebutler.cluster.bus import IN_FLIGHT, Bus, Delivered
from codebutler.cluster.floods import Seldom
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
from codebutler.domain.refs import MessageRef
from codebutler.platform.tasks import Tasks, beside
from codebutler.supervisor.port import Services

MAX_OUT_BYTES = 2**28
AT_ONCE = 16

log = logging.getLogger("codebutler.cluster")


class HostCalls:
    """The calls of one host. ``served`` finds a repository of it; ``returned`` takes an event that it gives back.

    If we stop in the middle, the next leader gets the call again, and treats it as unsure.
    """

    def __init__(
        self,
        host: str,
        bus: Bus,
        authority: Epochs,
        services: Services,
        served: Callable[[str], RepoSettings | None],
        returned: Callable[[ReturnedCall], Awaitable[None]],
    ) -> None:
        self._host = host
        self._bus = bus
        self._authority = authority
        self._services = services
        self._served = served
        self._returned = returned
        self._codec: ClusterCodec[Call] = ClusterCodec(Call)
        self._tasks = Tasks(lambda name, error: log.error("%s failed: %r", name, error))
        self._handling: set[int] = set()
        self._mistakes = Seldom()
        self._operations: dict[tuple[str, str], asyncio.Lock] = {}

    async def run(self) -> None:
        """Take and carry out calls until cancelled."""
        stream = stream_out(self._host)
        await self._bus.ensure_stream(stream, calls_of(self._host, ">"), MAX_OUT_BYTES)
        await self._bus.ensure_consumer(stream, GATEWAY, calls_of(self._host, ">"), IN_FLIGHT)
        try:
            async with aclosing(self._bus.consume(stream, GATEWAY, AT_ONCE)) as messages:
                async for delivered in messages:
                    if delivered.seq not in self._handling:
                        self._handling.add(delivered.seq)
                        self._tasks.start(self._handle(delivered), name=f"call of {self._host}")
        finally:
            await self._tasks.close(0)

    async def _handle(self, delivered: Delivered) -> None:
        try:
            async with beside(delivered.working(), name="working"):
                if await self._is_done(delivered):
                    await delivered.ack()
        except BusError as error:
            log.warning("a call from %s is waiting: %s", self._host, error)
        finally:
            self._handling.discard(delivered.seq)

    async def _is_done(self, delivered: Delivered) -> bool:
        """Carry it out, unless its sender is fenced. False: it must be delivered again."""
        try:
            call = self._codec.decode(delivered.body)
        except ProtocolError as error:
            self._complain("cannot read a message from %s: %s", self._host, error)
            return True
        epoch = await self._authority.hosts.epoch_of(self._host)
        if call.epoch < epoch:
            words = "refused a call from %s: its epoch is %d, the current one is %d"
            self._complain(words, self._host, call.epoch, epoch)
            return True
        if call.epoch > epoch or not self._authority.is_held:
            return False  # another gateway leads
        repo = self._served(call.repo)
        if repo is None:
            self._complain("refused a call from %s: %s is not one of its repositories", self._host, call.repo)
            if isinstance(call, ReportCall):  # the host does not store it for later
                await self._refuse(call)
            return True
        answer = await self._answer(repo, call, again=delivered.again)
        if answer is None:
            return False
        await self._bus.publish(answers_to(self._host), encode(answer), f"answer {call.call}")
        return True

    def _complain(self, text: str, *args: object) -> None:
        """Once a minute: a hostile host could fill the log."""
        if self._mistakes.admits(self._host, self._bus.clock.monotonic()):
            log.warning(text, *args)

    async def _refuse(self, call: ReportCall) -> None:
        why = f"{call.repo} is not served by this host"
        answer = CallAnswer(
            epoch=self._authority.epoch, host=self._host, call=call.call, failed=True, code="fenced", text=why
        )
        await self._bus.publish(answers_to(self._host), encode(answer), f"answer {call.call}")

    async def _answer(self, repo: RepoSettings, call: Call, *, again: bool) -> CallAnswer | None:
        """The answer; None if the chat cannot be reached and nothing was done."""
        answer = CallAnswer(epoch=self._authority.epoch, host=self._host, call=call.call)
        try:
            match call:
                case SendCall():
                    ref = await self._sent(repo, call, again=again)
                    return CallAnswer(epoch=answer.epoch, host=answer.host, call=answer.call, ref=ref)
                case EndedCall(ended=ended):
                    await self._services.turn_ended(repo, ended)
                case DownCall(why=why):
                    await self._services.quarantined(repo, why)
                case ReportCall(report=report):
                    await self._services.reported(repo, report)
                case ReturnedCall():
                    await self._returned(call)
        except ChatUnreachableError:
            return None
        except CodeButlerError as error:
            code = error.code if isinstance(error, ChatError) else "internal_error"
            return CallAnswer(
                epoch=answer.epoch,
                host=answer.host,
                call=answer.call,
                failed=True,
                code=code,
                text=str(error),
            )
        return answer

    async def _sent(self, repo: RepoSettings, call: SendCall, *, again: bool) -> MessageRef:
        """Send an operation, never twice at the same time: a host that restarted asks for it again."""
        key = (call.repo, call.op_id)
        lock = self._operations.setdefault(key, asyncio.Lock())
        unsure = call.unsure or again or lock.locked()
        try:
            async with lock:
                return await self._services.send(repo, call.op_id, call.operation, unsure=unsure)
        finally:
            if not lock.locked():
                self._operations.pop(key, None)
