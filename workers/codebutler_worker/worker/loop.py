"""One repository's worker: takes what the parent delivers, until it is told to end or the parent is gone."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from contextlib import suppress
from functools import partial

from codebutler.config.programs import program_names
from codebutler.domain.errors import EXIT_FAILED, ProtocolError, StoreError
from codebutler.platform.killpoints import reached
from codebutler.protocol.messages import (
    PROTOCOL_VERSION,
    Configure,
    Deliver,
    Doing,
    FetchFailed,
    FileChunk,
    FileTranscript,
    Goodbye,
    Heartbeat,
    Hello,
    Ready,
    SendFailed,
    Sent,
    Shutdown,
    StopTurns,
    Stored,
    ThreadFetched,
    ToWorker,
)
from codebutler.protocol.pipe import MessagePipe
from codebutler_worker.commands.table import answer_of
from codebutler_worker.conversation.parked import recover
from codebutler_worker.conversation.reports import ActivityReports, Reminders
from codebutler_worker.conversation.scheduler import TurnScheduler
from codebutler_worker.memory.review import Reviews, model_of
from codebutler_worker.present.lines import count
from codebutler_worker.runtime.deferred import DeferredCommands
from codebutler_worker.runtime.runtime import Runtime
from codebutler_worker.runtime.turns import UNFINISHED, Todo
from codebutler_worker.worker.inbox import EventInbox

HEARTBEAT_S = 5.0
END_AGENTS_S = 5.0


async def greet(channel: MessagePipe[ToWorker]) -> Configure | None:
    """Say Hello and wait to be told who we are; None if the parent is gone. Raises ProtocolError."""
    channel.send(Hello(version=PROTOCOL_VERSION, pid=os.getpid()))
    async for message in channel.messages():
        if isinstance(message, Configure):
            return message
        raise ProtocolError(f"expected Configure, got {type(message).__name__}")
    return None


class Worker:
    """The receive loop and what runs beside it."""

    def __init__(self, channel: MessagePipe[ToWorker], runtime: Runtime) -> None:
        self._channel = channel
        self._runtime = runtime
        self._inbox = EventInbox(runtime.settings, runtime.skills)
        self._scheduler = TurnScheduler(runtime, self._tell_load)
        self._deferred = DeferredCommands(runtime, answer_of, self._tell_load)
        self._reports = ActivityReports(runtime)
        reviews = Reviews(runtime, model_of(runtime.settings, runtime.clock), self._deferred.start)
        self._reminders = Reminders(runtime, self._tell_load)
        self._watching = (self._reports, reviews, self._reminders)
        self._exit_code = 0
        self._ending: asyncio.Task[None] | None = None

    async def run(self) -> int:
        """Say Ready, recover, and serve until Shutdown or until the parent is gone; returns the exit code.

        Raises StoreError when an event cannot be stored: it was not acknowledged, so a restart gets it again.
        """
        tasks = []
        try:
            self._channel.send(Ready())
            if left := await self._runtime.store.anything_open(UNFINISHED):
                await self._take_up()
            loops = {"scheduler": self._scheduler.run(at_once=left), "heartbeat": self._beat()}
            loops |= {type(each).__name__.lower(): each.run() for each in self._watching}
            for name, work in loops.items():
                task = asyncio.create_task(work, name=name)
                task.add_done_callback(self._ended)
                tasks.append(task)
            async for message in self._channel.messages():
                await self._handle(message)
            return self._exit_code
        finally:
            await self._close([*tasks, *([self._ending] if self._ending else [])])

    async def _take_up(self) -> None:
        """Go on with what the previous worker left: everything that ``Store.anything_open`` looks for."""
        reached("restore.before")
        await self._runtime.outbox.restore()
        reached("recover.before")
        programs = program_names(self._runtime.settings.config)
        interrupted = await self._runtime.commit(partial(recover, programs=programs))
        reached("recover.after")
        for record in interrupted:
            self._runtime.send(record)
        if interrupted:
            self._runtime.log("WRN", f"interrupted: {count(len(interrupted), 'run')}; each thread is asked")
        await self._deferred.restore()
        self._reports.refresh()

    def end(self, grace_s: float) -> None:
        """End as if the parent had said Shutdown (a signal did)."""
        self._shut_down(Shutdown(reason="shutdown", grace_s=grace_s))

    async def _handle(self, message: ToWorker) -> None:
        match message:
            case Deliver():
                await self._deliver(message)
            case Sent(op_id=op_id, ts=ts):
                await self._runtime.outbox.sent(op_id, ts)
            case SendFailed(op_id=op_id, code=code):
                self._runtime.log("WRN", f"the chat refused an operation: {code}")
                await self._runtime.outbox.failed(op_id, code)
            case StopTurns(user=user):
                todo = await self._runtime.commit(self._inbox.stop_everything)
                self._scheduler.stop(todo.stop, user)
                self._scheduler.wake()
            case FileChunk() | FileTranscript() | FetchFailed():
                self._runtime.fetcher.take(message)
            case ThreadFetched():
                self._runtime.threads.take(message)
            case Shutdown():
                self._shut_down(message)
            case Configure():
                raise ProtocolError("configured twice")

    async def _deliver(self, message: Deliver) -> None:
        seq, event, request = message.seq, message.event, message.request
        reached("inbox.before")
        try:
            todo = await self._runtime.commit(
                partial(self._inbox.take, seq=seq, event=event, request=request)
            )
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - one bad event must not stop those behind it
            self._runtime.log("ERR", f"an event could not be taken: {error!r}")
            await self._runtime.commit(partial(self._inbox.give_up, seq=seq, event=event))
            todo = Todo()
        reached("inbox.after")
        # First the load, then the receipt: a worker with nothing undelivered and no load is put to sleep.
        if todo.deferred:
            self._deferred.start(todo.deferred)
        self._scheduler.wake()
        self._tell_load()
        reached("stored.before")
        self._channel.send(Stored(seq=seq))
        reached("stored.after")
        if todo.begins:
            # The first sign that it is heard: shown under the thread, it costs none of the scarce calls.
            self._runtime.send(Doing(thread_ts=todo.begins, text="is working"))
        for tag, text in todo.log:
            self._runtime.log(tag, text)
        for record in todo.audit:
            self._runtime.send(record)
        self._scheduler.carry_out(todo)
        for conversation in todo.forgotten:
            self._runtime.agents.release(conversation)

    def _shut_down(self, order: Shutdown) -> None:
        """A repeated order replaces the one before: the parent asks again when it wants it sooner."""
        if self._ending is not None:
            self._ending.cancel()
        self._ending = asyncio.create_task(self._wind_up(order), name="shutdown")

    async def _wind_up(self, order: Shutdown) -> None:
        """Let running turns finish within the grace, then let the outbox drain, then say Goodbye."""
        # A sleeping worker would be woken by the next event only: it finishes what is queued, too.
        if order.reason != "sleep":
            self._scheduler.pause()
        self._scheduler.wake()
        # The parent kills when the grace is over: keep some of it for the end itself.
        reserve_s = min(order.grace_s / 3, END_AGENTS_S)
        await self._within(order.grace_s - reserve_s, self._finish())
        self._scheduler.pause()
        await self._within(reserve_s, self._end_agents())
        if order.reason == "sleep" and (self._scheduler.busy or self._unsaid):
            # Asleep, nobody would go on with it: a failed exit is restarted.
            self._exit_code = EXIT_FAILED
        self._channel.send(Goodbye(reason=order.reason))
        await self._channel.drain()
        self._channel.close()

    async def _finish(self) -> None:
        await self._scheduler.idle()
        await self._deferred.idle()
        await self._runtime.outbox.drained()

    async def _end_agents(self) -> None:
        await asyncio.gather(self._scheduler.close(), self._deferred.close(), self._runtime.agents.close())

    async def _within(self, seconds: float, work: Coroutine[None, None, None]) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(work, seconds)

    async def _beat(self) -> None:
        while True:
            self._tell_load()
            await self._runtime.clock.sleep(HEARTBEAT_S)

    def _tell_load(self) -> None:
        waiting, queued = self._scheduler.waiting, self._scheduler.queued
        running = max(0, self._scheduler.running - waiting)
        parked, outbox = self._scheduler.parked, self._unsaid
        asking = waiting + self._reminders.interrupted
        self._channel.send(
            Heartbeat(running=running, queued=queued, waiting=asking, parked=parked, outbox=outbox)
        )
        for each in self._watching:
            each.look((running, queued, waiting))

    @property
    def _unsaid(self) -> int:
        """How many operations the chat has not taken yet, and how many commands are still to be answered."""
        return self._runtime.outbox.pending + self._deferred.running

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Without one of its loops a worker only looks alive: end it, and a new one takes over."""
        if not task.cancelled() and (error := task.exception()):
            self._runtime.log("ERR", f"the {task.get_name()} broke: {error!r}")
            self._exit_code = EXIT_FAILED
            self._channel.close()

    async def _close(self, tasks: list[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._within(END_AGENTS_S, self._end_agents())
        await self._runtime.close()
