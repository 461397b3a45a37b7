"""One repository's worker: handles what the parent delivers, until it is told to end or the parent is gone."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from contextlib import suppress
from functools import partial

from codebutler.config.programs import program_names
from codebutler.domain.errors import EXIT_FAILED, ProtocolError, StoreError
from codebutler.platform.kill_points import reached
from codebutler.platform.tasks import Tasks
from codebutler.protocol.conversations import AskDiff, AskFound, AskThread
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
    LookAtPulls,
    Ready,
    SendFailed,
    Sent,
    Shutdown,
    StopTurns,
    Stored,
    ThreadFetched,
    TotalUse,
    ToWorker,
)
from codebutler.protocol.pipe import MessagePipe
from codebutler.text.wording import count
from codebutler_worker.commands.find import find_for_parent
from codebutler_worker.commands.table import answer_of
from codebutler_worker.conversation.pages import run_changes, transcript
from codebutler_worker.conversation.parked import RESTARTED, leave_for_restart, recover
from codebutler_worker.conversation.reminders import Reminders
from codebutler_worker.conversation.reports import ActivityReports
from codebutler_worker.conversation.scheduler import TurnScheduler
from codebutler_worker.forge.following import PullFollower
from codebutler_worker.memory.review import Reviews, model_of
from codebutler_worker.runtime.deferred import DeferredCommands
from codebutler_worker.runtime.runtime import Runtime
from codebutler_worker.runtime.turns import UNFINISHED, Todo
from codebutler_worker.worker.inbox import EventInbox

HEARTBEAT_S = 5.0
END_AGENTS_S = 5.0


async def greet(channel: MessagePipe[ToWorker]) -> Configure | None:
    """Say Hello and wait for the settings; None if the parent is gone. Raises ProtocolError."""
    channel.send(Hello(version=PROTOCOL_VERSION, pid=os.getpid()))
    async for message in channel.messages():
        if isinstance(message, Configure):
            return message
        raise ProtocolError(f"expected Configure, got {type(message).__name__}")
    return None


class Worker:
    """The receive loop and the tasks beside it."""

    def __init__(self, channel: MessagePipe[ToWorker], runtime: Runtime) -> None:
        self._channel = channel
        self._runtime = runtime
        self._inbox = EventInbox(runtime.settings, runtime.skills)
        self._deferred = DeferredCommands(runtime, answer_of, self._tell_load, self._wake)
        self._scheduler = TurnScheduler(runtime, self._tell_load, self._deferred)
        self._reports = ActivityReports(runtime)
        reviews = Reviews(runtime, model_of(runtime.settings, runtime.clock), self._deferred.start)
        self._reminders = Reminders(runtime, self._tell_load)
        self._pulls = PullFollower(runtime, self._tell_load)
        self._watching = (self._reports, reviews, self._reminders, self._pulls)
        self._answers = Tasks(runtime.broke)
        self._exit_code = 0
        self._ending: asyncio.Task[None] | None = None

    async def run(self) -> int:
        """Say Ready, recover, and serve until Shutdown or until the parent is gone; returns the exit code.

        Raises StoreError if an event cannot be stored: it was not acknowledged, so it is delivered again
        after a restart.
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
        """Continue the previous worker's work: everything that ``Store.anything_open`` looks for."""
        reached("restore.before")
        await self._runtime.outbox.restore()
        reached("recover.before")
        programs = program_names(self._runtime.settings.config)
        interrupted = await self._runtime.commit(partial(recover, programs=programs))
        reached("recover.after")
        for record in interrupted:
            self._runtime.send(record)
        going_on = sum(record.decision == RESTARTED for record in interrupted)
        if going_on:
            self._runtime.log("INF", f"resuming after the restart: {count(going_on, 'run')}")
        if asked := len(interrupted) - going_on:
            self._runtime.log("WRN", f"interrupted: {count(asked, 'run')}; each thread is asked")
        await self._deferred.restore()
        self._reports.refresh()

    def end(self, grace_s: float) -> None:
        """End as if the parent had said Shutdown (a signal did)."""
        self._shut_down(Shutdown(reason="shutdown", grace_s=grace_s))

    async def _handle(self, message: ToWorker) -> None:
        match message:
            case Deliver():
                await self._deliver(message)
            case Sent(op_id=op_id, ref=ref):
                await self._runtime.outbox.settle(op_id, ref)
            case SendFailed(op_id=op_id, code=code):
                self._runtime.log("WRN", f"the chat refused an operation: {code}")
                await self._runtime.outbox.settle(op_id, code=code)
            case StopTurns(user=user):
                todo = await self._runtime.commit(self._inbox.stop_everything)
                self._deferred.withdraw(todo.withdrawn)
                self._scheduler.stop(todo.stop, user)
                self._scheduler.wake()
            case FileChunk() | FileTranscript() | FetchFailed() | ThreadFetched():
                self._runtime.fetcher.on_message(message)
            case TotalUse():
                self._runtime.elsewhere = message
            case AskDiff() | AskThread() | AskFound() | LookAtPulls():
                self._answers.start(self._tell(message), name=type(message).__name__)
            case Shutdown():
                self._shut_down(message)
            case Configure():
                raise ProtocolError("configured twice")

    async def _tell(self, asked: AskDiff | AskThread | AskFound | LookAtPulls) -> None:
        match asked:
            case AskDiff():
                self._channel.send(await run_changes(self._runtime, asked))
            case AskThread():
                self._channel.send(await transcript(self._runtime, asked))
            case AskFound():
                self._channel.send(await find_for_parent(self._runtime, asked))
            case LookAtPulls():
                await self._pulls.poll_soon(asked.numbers)

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
            self._runtime.log("ERR", f"could not take an event: {error!r}")
            await self._runtime.commit(partial(self._inbox.give_up, seq=seq, event=event))
            todo = Todo()
        reached("inbox.after")
        if message.trace:
            self._runtime.traces.came(event, message.trace)
        # First the load, then the receipt: a worker with nothing undelivered and no load is put to sleep.
        if todo.withdrawn or todo.deferred:
            self._deferred.withdraw(todo.withdrawn)
            self._deferred.start(todo.deferred)
        self._scheduler.wake()
        self._tell_load()
        reached("stored.before")
        self._channel.send(Stored(seq=seq))
        reached("stored.after")
        if todo.begins:
            # The first sign of life: a status under the thread costs none of the scarce calls.
            self._runtime.send(Doing(thread=todo.begins, text="is working"))
        for tag, text in todo.log:
            self._runtime.log(tag, text)
        for record in todo.audit:
            self._runtime.send(record)
        if todo.stop or todo.steer or todo.typed or todo.answers:
            self._scheduler.carry_out(todo)
        for conversation in todo.forgotten:
            self._runtime.agents.release(conversation)

    def _shut_down(self, order: Shutdown) -> None:
        """A repeated request replaces the one before: the parent repeats it to hurry us."""
        if self._ending is not None:
            self._ending.cancel()
        self._ending = asyncio.create_task(self._wind_up(order), name="shutdown")

    async def _wind_up(self, order: Shutdown) -> None:
        """Let running turns finish within the grace period, then drain the outbox, then say Goodbye."""
        # Only the next event would wake a sleeping worker: it finishes queued turns, too.
        if order.reason != "sleep":
            self._scheduler.pause()
        self._scheduler.wake()
        # The parent kills us when the grace period is over: keep some of it for the end itself.
        reserve_s = min(order.grace_s / 3, END_AGENTS_S)
        await self._within(order.grace_s - reserve_s, self._finish())
        self._scheduler.pause()
        if order.reason == "restart":
            leave = partial(leave_for_restart, config=self._runtime.settings.config)
            await self._within(reserve_s, self._runtime.commit(leave))
        await self._within(reserve_s, self._end_agents())
        if order.reason == "sleep" and (self._scheduler.busy or self._unsaid):
            # A sleeping worker would not continue it: a failed exit is restarted.
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

    def _wake(self) -> None:
        self._scheduler.wake()

    def _tell_load(self) -> None:
        waiting, queued = self._scheduler.waiting, self._scheduler.queued
        running = max(0, self._scheduler.running - waiting)
        parked, outbox = self._scheduler.parked, self._unsaid
        asking = waiting + self._scheduler.asking + self._reminders.interrupted
        self._channel.send(
            Heartbeat(
                running=running,
                queued=queued,
                waiting=asking,
                parked=parked,
                outbox=outbox,
                followed=self._pulls.followed,
            )
        )
        for each in self._watching:
            each.look((running, queued, waiting + self._scheduler.asking))

    @property
    def _unsaid(self) -> int:
        """How many operations the chat has not taken yet, plus the unanswered commands."""
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
        await asyncio.gather(*tasks, self._answers.close(0), return_exceptions=True)
        await self._within(END_AGENTS_S, self._end_agents())
        await self._runtime.close()
