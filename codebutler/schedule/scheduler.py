"""Runs jobs and timers when they are due. The schedule is on disk before anything is posted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from datetime import datetime
from uuid import UUID, uuid4, uuid5

from msgspec import structs

from codebutler.chat.chats import Chats
from codebutler.control.listeners import Listeners
from codebutler.domain.clock import Clock
from codebutler.domain.errors import ChatError, StoreError
from codebutler.domain.message import said
from codebutler.domain.model import OPERATOR, Event, MessagePosted, Post, TurnOutcome
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
NOTE = "schedule"

_OPERATIONS = UUID("5c6c0f0b-3f0e-5b39-9d1b-6a1c4d0e8a57")

Publish = Callable[[str, str, Post, bool], Awaitable[str]]
"""Posts (channel, key, post, unsure) once for each key and returns its ts. ``unsure``: it may stand there already.
Raises ChatError."""
Accept = Callable[[Event], Awaitable[Outcome]]
"""Journals an event and says what became of it. Raises StoreError."""

log = logging.getLogger("codebutler.schedule")


class IdempotentPublisher:
    """Posts in channels on behalf of the supervisor; the same key has the same operation id in every life."""

    def __init__(self, chats: Chats, listeners: Listeners) -> None:
        self._chats = chats
        self._listeners = listeners

    async def publish(self, channel: str, key: str, post: Post, unsure: bool) -> str:
        """Post once, however often it is tried; returns the ts. Raises ChatError."""
        ts = await self._chats.submit(channel, uuid5(_OPERATIONS, key).hex, post, unsure=unsure)
        self._listeners.tell(channel, post, ts)
        return ts


def scheduled(channel: str, ts: str, now: datetime, *, user: str, text: str, job: str = "") -> MessagePosted:
    """Our own message ``ts`` as an event: what ``user`` wants to be done now."""
    return MessagePosted(
        channel=channel,
        ts=ts,
        sent_at=now.timestamp(),
        order=ts,
        is_direct=False,
        user=user,
        text=text,
        origin="schedule",
        job=job,
    )


class Scheduler:
    """``run`` is its life; ``jobs`` and ``schedule`` are what it knows now."""

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
        self._on_read: Callable[[FoundJobs], None] = lambda _: None
        self._wake = asyncio.Event()
        self._posting: dict[str, asyncio.Task[None]] = {}
        self._tried: set[str] = set()
        self._ready = asyncio.Event()
        self._looks = self._looked = self._wanted = 0
        self._seen = asyncio.Event()

    @property
    def schedule(self) -> Schedule:
        """What is due, and what runs."""
        return self._kept.value

    async def run(self, accept: Accept, on_read: Callable[[FoundJobs], None] = lambda _: None) -> None:
        """Until cancelled. While the disk is full it waits. ``on_read`` is told what the files say."""
        self._accept = accept
        self._on_read = on_read
        while True:
            look_s = LOOK_S
            try:
                look_s = await self._tick()
            except StoreError as error:
                log.warning("jobs wait for the disk: %s", error)
            await self._pause(look_s)

    async def ready(self) -> None:
        """Wait until the files have been read and the schedule is open."""
        await self._ready.wait()

    async def look_again(self) -> None:
        """Wait until the files have been read once more and hold still, but not long: the disk may be full."""
        self._wanted = wanted = self._looks + 1
        self._wake.set()
        until_s = self._clock.monotonic() + LOOK_S
        while self._looked < wanted and (left_s := until_s - self._clock.monotonic()) > 0:
            self._seen.clear()
            await wait_for(self._clock, self._seen, left_s)

    async def change(self, change: Callable[[Schedule], Schedule]) -> None:
        """Change the schedule, on disk first. Raises StoreError: then all is as it was."""
        await self._kept.change(change)
        self._wake.set()

    def post(self, run: JobRun) -> None:
        """Post a run now, unless that is under way."""
        self._start(run.key, self._post_run(run))

    def changed(self, job: Job) -> None:
        """Files that the job watches have changed. What it changes itself while it runs does not count."""
        state = self.schedule.jobs.get(transitions.key_of(job))
        if state is not None and not state.paused and not transitions.is_running(state, self._clock.now()):
            self.post(JobRun(job, f"job:{transitions.key_of(job)}:{uuid4().hex}", OPERATOR))

    async def ended(self, channel: str, messages: Collection[str], outcome: TurnOutcome) -> None:
        """Messages of the channel have their outcome: one of them may be a run of ours. It is on disk when this
        returns; while the disk is full, it waits."""
        await self.ready()
        while True:
            try:
                await self._note_ended(channel, messages, outcome)
                return
            except StoreError as error:
                log.warning("the end of a job waits for the disk: %s", error)
                await self._clock.sleep(LOOK_S)

    async def _tick(self) -> float:
        """Returns after how many seconds the files are to be looked at again, at the latest."""
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
                transitions.reconcile(schedule, self.jobs.values(), now), self.jobs, now
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
        """Until something may be due, a file may have changed, or the schedule did."""
        if self._wanted > self._looks:
            return
        due = transitions.next_at(self.schedule)
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
        header = Post(message=said(f"⏰ **{plain(job.label)}**: starting…"))
        try:
            ts = await self._publish(job.channel, run.key, header, self._is_unsure(run.key))
            # Noted before it is handed in: its end may come at once.
            await self.change(lambda schedule: transitions.said(schedule, key, ts, self._clock.now()))
            now = self._clock.now()
            event = scheduled(job.channel, ts, now, user=run.user, text=job.text, job=job.name)
            if await self._accepted(event):
                await self.change(lambda schedule: transitions.taken(schedule, key))
            else:
                await self._failed(key)
        except ChatError as error:
            log.warning("job %s could not be posted: %s", key, error)
            await self._failed(key)
        except StoreError as error:
            log.warning("job %s waits for the disk: %s", key, error)

    async def _post_timer(self, timer: Timer) -> None:
        key = f"timer:{timer.id}"
        post = Post(message=said(f"⏰ {plain(timer.text)}"), thread_ts=timer.thread_ts)
        try:
            ts = await self._publish(timer.channel, key, post, self._is_unsure(key))
            now = self._clock.now()
            event = scheduled(timer.channel, ts, now, user=timer.user, text=timer.text)
            await self._accepted(structs.replace(event, thread_ts=timer.thread_ts))
            await self.change(lambda schedule: transitions.without_timer(schedule, timer.id))
        except ChatError as error:
            log.warning("timer %s could not be posted, and is dropped: %s", timer.id, error)
            await self.change(lambda schedule: transitions.without_timer(schedule, timer.id))
        except StoreError as error:
            log.warning("timer %s waits for the disk: %s", timer.id, error)

    async def _accepted(self, event: MessagePosted) -> bool:
        """False if it is refused. What was handed in before is no second wish. Raises StoreError."""
        assert self._accept is not None, "nothing is due before `run`"
        return await self._accept(event) in ("accepted", "duplicate")

    async def _note_ended(self, channel: str, messages: Collection[str], outcome: TurnOutcome) -> None:
        _, key = transitions.ended(self.schedule, self.jobs, channel, messages, outcome)
        if key:
            await self._change_told(
                key, lambda schedule: transitions.ended(schedule, self.jobs, channel, messages, outcome)[0]
            )

    async def _failed(self, key: str) -> None:
        await self._change_told(key, lambda schedule: transitions.given_up(schedule, key, self._clock.now()))

    async def _change_told(self, key: str, change: Callable[[Schedule], Schedule]) -> None:
        """Tell the channel if that is what pauses the job; who has paused it knows."""
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

    async def _notice(self, channel: str, text: str) -> None:
        try:
            await self._publish(channel, uuid4().hex, Post(message=said(text)), False)  # noqa: FBT003 - it is new
        except ChatError as error:
            log.warning("a notice could not be posted in %s: %s", channel, error)
