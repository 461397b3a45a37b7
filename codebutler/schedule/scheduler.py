"""Runs jobs and timers when they are due. The schedule is on disk before anything is posted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from datetime import datetime
from math import inf
from uuid import UUID, uuid4, uuid5

from msgspec import structs

from codebutler.chat.chats import Chats
from codebutler.chat.listeners import Listeners
from codebutler.domain.clock import Clock
from codebutler.domain.errors import ChatError, ChatUnreachableError, StoreError
from codebutler.domain.message import said
from codebutler.domain.model import OPERATOR, Event, MessagePosted, Post, TurnOutcome
from codebutler.domain.refs import ConversationRef, MessageRef, PersonRef
from codebutler.intake.intake import Outcome
from codebutler.intake.records import Kept, Notes
from codebutler.platform.tasks import Tasks, wait_for
from codebutler.schedule import state as transitions
from codebutler.schedule.files import FoundJobs, News
from codebutler.schedule.jobs import Job
from codebutler.schedule.state import JobRun, Schedule, Timer
from codebutler.text.markup import plain

LOOK_S = 5.0
SETTLE_S = 0.5
SHORTEST_S = 0.05
QUIET_S, RESTLESS_S = 1.0, 60.0
"""A job that watches files starts this long after their last change, or after the first one if they never rest."""
NOTE = "schedule"

_OPERATIONS = UUID("5c6c0f0b-3f0e-5b39-9d1b-6a1c4d0e8a57")

Publish = Callable[[ConversationRef, str, Post, bool], Awaitable[MessageRef]]
"""Posts (channel, key, post, unsure) once for each key and returns its ref. ``unsure``: it may stand there already.
Raises ChatError."""
Accept = Callable[[Event], Awaitable[Outcome]]
"""Journals an event and returns its outcome. Raises StoreError."""

Report = Callable[[Job, str, bool], Awaitable[MessageRef]]
"""Posts the report of a job (job, key, unsure), as Publish does."""

log = logging.getLogger("codebutler.schedule")


class IdempotentPublisher:
    """Posts in channels for the supervisor; the same key has the same operation id across restarts."""

    def __init__(self, chats: Chats, listeners: Listeners) -> None:
        self._chats = chats
        self._listeners = listeners

    async def publish(self, channel: ConversationRef, key: str, post: Post, unsure: bool) -> MessageRef:
        """Post once, however often it is tried; returns the ref. Raises ChatError."""
        ref = await self._chats.submit(channel, uuid5(_OPERATIONS, key).hex, post, unsure=unsure)
        for listener in self._listeners.followers.get(channel, ()):
            listener.delivered(post, ref)
        return ref


def scheduled(
    channel: ConversationRef, ref: MessageRef, now: datetime, *, user: PersonRef, text: str, job: str = ""
) -> MessagePosted:
    """Our own message ``ref`` as an event: what ``user`` wants to be done now."""
    return MessagePosted(
        channel=channel,
        ref=ref,
        sent_at=now.timestamp(),
        order=ref,
        is_direct=False,
        user=user,
        text=text,
        origin="schedule",
        job=job,
    )


class Scheduler:
    """Starts jobs and timers in time. ``run`` runs until cancelled; ``jobs`` and ``schedule`` are the current ones."""

    def __init__(
        self, notes: Notes, publish: Publish, look: Callable[[], FoundJobs], clock: Clock, tasks: Tasks
    ) -> None:
        self.jobs: Mapping[str, Job] = {}
        self._kept = Kept(notes, NOTE, Schedule())
        self._publish = publish
        self._look = look
        self._clock = clock
        self._tasks = tasks
        self._accept: Accept | None = None
        self._report: Report | None = None
        self._on_read: Callable[[FoundJobs], None] = lambda _: None
        self._wake = asyncio.Event()
        self._posting: dict[str, asyncio.Task[None]] = {}
        self._changed_s: dict[str, float] = {}
        """By job: when files that it watches last changed."""
        self._tried: set[str] = set()
        self._ready = asyncio.Event()
        self._looks = self._looked = self._wanted = 0
        self._seen = asyncio.Event()

    @property
    def schedule(self) -> Schedule:
        """What is due, and what is running."""
        return self._kept.value

    async def run(
        self,
        accept: Accept,
        on_read: Callable[[FoundJobs], None] = lambda _: None,
        report: Report | None = None,
    ) -> None:
        """Runs until cancelled. Waits while the disk is full. ``on_read`` is called with the content of the files."""
        self._accept = accept
        self._report = report
        self._on_read = on_read
        while True:
            look_s = LOOK_S
            try:
                look_s = await self._tick()
            except StoreError as error:
                log.warning("jobs are waiting for the disk: %s", error)
            await self._pause(look_s)

    async def ready(self) -> None:
        """Wait until the files have been read and the schedule is loaded."""
        await self._ready.wait()

    async def look_again(self) -> None:
        """Wait until the files have been read again and are stable, but not long: the disk may be full."""
        self._wanted = wanted = self._looks + 1
        self._wake.set()
        until_s = self._clock.monotonic() + LOOK_S
        while self._looked < wanted and (left_s := until_s - self._clock.monotonic()) > 0:
            self._seen.clear()
            await wait_for(self._clock, self._seen, left_s)

    async def change(self, change: Callable[[Schedule], Schedule]) -> None:
        """Change the schedule, on disk first. Raises StoreError; then nothing has changed."""
        await self._kept.change(change)
        self._wake.set()

    def post(self, run: JobRun) -> None:
        """Post a run now, unless that is already in progress."""
        self._start(run.key, self._post_run(run))

    def changed(self, job: Job) -> None:
        """Files that the job watches have changed. Changes during its own run do not count."""
        self._tasks.start(self.watched(transitions.key_of(job), uuid4().hex), name=f"watch:{job.name}")

    async def watched(self, key: str, trigger: str) -> None:
        """The same of the job ``key``; the same ``trigger`` again is the same change. It is on disk when this returns;
        waits while the disk is full."""

        async def begin() -> None:
            now = self._clock.now()
            await self.change(lambda schedule: transitions.triggered(schedule, self.jobs, key, trigger, now))

        self._changed_s[key] = self._clock.monotonic()
        await self._insist(begin, "a job")
        for run in transitions.runs(self.schedule, self.jobs, OPERATOR):
            self.post(run)

    async def ended(self, channel: ConversationRef, messages: Collection[str], outcome: TurnOutcome) -> None:
        """Messages of the channel have their outcome, and one of them may be a run of ours. It is on disk when this
        returns; waits while the disk is full."""
        await self._ready.wait()
        if not any(state.awaited in messages for state in self.schedule.jobs.values()):
            return  # people's messages, as nearly always

        def after(schedule: Schedule) -> tuple[Schedule, str]:
            return transitions.ended(schedule, self.jobs, channel, messages, outcome)

        async def end() -> None:
            if key := after(self.schedule)[1]:
                await self._change_told(key, lambda schedule: after(schedule)[0])

        await self._insist(end, "the end of a job")

    async def _insist(self, work: Callable[[], Awaitable[None]], what: str) -> None:
        """Do it once the schedule is loaded, and again while the disk is full."""
        await self._ready.wait()
        while True:
            try:
                return await work()
            except StoreError as error:
                log.warning("%s is waiting for disk space: %s", what, error)
                await self._clock.sleep(LOOK_S)

    async def _tick(self) -> float:
        """Returns the seconds until the files must be checked again, at most."""
        self._looks = look = self._looks + 1
        if not self._ready.is_set():
            await self._kept.open()
            self._tried |= {f"timer:{timer.id}" for timer in self.schedule.timers}
        found = await asyncio.to_thread(self._look)
        self.jobs = found.jobs
        if not self._ready.is_set():
            self._tried |= {run.key for run in transitions.runs(self.schedule, self.jobs, OPERATOR)}
        self._on_read(found)
        for news in found.news:
            await self._tell(news)
        now = self._clock.now()
        await self.change(
            lambda schedule: transitions.begin(
                transitions.reconcile(schedule, self.jobs.values(), now, found.unread), self.jobs, now
            )
        )
        self._ready.set()
        for run in transitions.runs(self.schedule, self.jobs, OPERATOR):
            self.post(run)
        for timer in self.schedule.timers:
            if timer.at <= now:
                self._start(f"timer:{timer.id}", self._post_timer(timer))
        if found.unsettled:
            return SETTLE_S
        self._looked = look
        self._seen.set()
        return LOOK_S

    async def _pause(self, look_s: float) -> None:
        """Sleep until something may be due, or a file or the schedule may have changed."""
        if self._wanted > self._looks:
            return
        due = transitions.next_at(self.schedule, self.jobs)
        wait_s = look_s if due is None else min(look_s, (due - self._clock.now()).total_seconds())
        self._wake.clear()
        await wait_for(self._clock, self._wake, max(wait_s, SHORTEST_S))

    def _start(self, key: str, work: Coroutine[object, object, None]) -> None:
        running = self._posting.get(key)
        if running is not None and not running.done():
            work.close()
            return
        self._posting = {name: task for name, task in self._posting.items() if not task.done()}
        self._posting[key] = self._tasks.start(work, name=key)

    def _is_unsure(self, key: str) -> bool:
        """Whether it may have been posted already: by an earlier process, or here without an answer."""
        unsure = key in self._tried
        self._tried.add(key)
        return unsure

    async def _post_run(self, run: JobRun) -> None:
        key, job = transitions.key_of(run.job), run.job
        await self._until_quiet(key)
        header = Post(message=said(f"⏰ **{plain(job.label)}**: starting…"))
        try:
            if job.reports:
                assert self._report is not None, "who has jobs that report says how"
                await self._report(job, run.key, self._is_unsure(run.key))
                await self.change(lambda schedule: transitions.reported(schedule, key, self._clock.now()))
                return
            ref = await self._publish(job.channel, run.key, header, self._is_unsure(run.key))
            # Noted before it is handed in: its outcome may arrive at once.
            await self.change(lambda schedule: transitions.said(schedule, key, ref, self._clock.now()))
            now = self._clock.now()
            event = scheduled(job.channel, ref, now, user=run.user, text=job.text, job=job.name)
            if await self._accepted(event):
                await self.change(lambda schedule: transitions.taken(schedule, key))
            else:
                await self._failed(key)
        except (ChatUnreachableError, StoreError) as error:  # the chats are closing, or the disk is full
            log.warning("job %s is waiting: %s", key, error)
        except ChatError as error:
            log.warning("job %s could not be posted: %s", key, error)
            await self._failed(key)

    async def _until_quiet(self, key: str) -> None:
        """Wait until the files that the job watches have stopped changing, but not for ever."""
        until_s = self._clock.monotonic() + RESTLESS_S
        while (quiet_s := min(self._changed_s.get(key, -inf) + QUIET_S, until_s)) > self._clock.monotonic():
            await self._clock.sleep(quiet_s - self._clock.monotonic())
        self._changed_s.pop(key, None)

    async def _post_timer(self, timer: Timer) -> None:
        key = f"timer:{timer.id}"
        post = Post(message=said(f"⏰ {plain(timer.text)}"), thread=timer.thread)
        try:
            ref = await self._publish(timer.channel, key, post, self._is_unsure(key))
            now = self._clock.now()
            event = scheduled(timer.channel, ref, now, user=timer.user, text=timer.text)
            await self._accepted(structs.replace(event, thread=timer.thread))
            await self.change(lambda schedule: transitions.without_timer(schedule, timer.id))
        except (ChatUnreachableError, StoreError) as error:
            log.warning("timer %s is waiting: %s", timer.id, error)
        except ChatError as error:
            log.warning("timer %s could not be posted, and is dropped: %s", timer.id, error)
            await self.change(lambda schedule: transitions.without_timer(schedule, timer.id))

    async def _accepted(self, event: MessagePosted) -> bool:
        """False if it is refused. A message that was handed in before is not a second request. Raises StoreError."""
        assert self._accept is not None, "nothing is due before `run`"
        return await self._accept(event) in ("accepted", "duplicate")

    async def _failed(self, key: str) -> None:
        await self._change_told(key, lambda schedule: transitions.given_up(schedule, key, self._clock.now()))

    async def _change_told(self, key: str, change: Callable[[Schedule], Schedule]) -> None:
        """Tell the channel if this change pauses the job; a person who pauses it knows anyway."""
        before = transitions.paused_why(self.schedule, key)
        await self.change(change)
        job, why = self.jobs.get(key), transitions.paused_why(self.schedule, key)
        if why and not before and job is not None:
            why = f"⚠️ The job **{plain(job.name)}** has {plain(why)} and is paused. "
            await self._notice(job.channel, f"{why}`!jobs resume {job.name}` resumes it.")

    async def _tell(self, news: News) -> None:
        level = logging.WARNING if news.trouble else logging.INFO
        log.log(level, "%s%s", f"[{news.repo}] " if news.repo else "", news.line)
        if news.channel:
            await self._notice(news.channel, f"⏰ {plain(news.line)}")

    async def _notice(self, channel: ConversationRef, text: str) -> None:
        try:
            await self._publish(channel, uuid4().hex, Post(message=said(text)), False)  # noqa: FBT003 - it is new
        except ChatError as error:
            log.warning("a notice could not be posted in %s: %s", channel, error)
