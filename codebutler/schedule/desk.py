"""What people and the operator may say about jobs and timers: `!jobs`, `!in`, `!at`, `codebutler jobs`."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime, tzinfo
from functools import partial
from typing import Any
from uuid import uuid4

from codebutler.domain.clock import Clock
from codebutler.domain.errors import CodeButlerError
from codebutler.domain.model import OPERATOR
from codebutler.schedule import book as books
from codebutler.schedule.book import Run, Timer, key_of
from codebutler.schedule.jobs import Job
from codebutler.schedule.scheduler import Scheduler
from codebutler.schedule.words import brief, listing, when
from codebutler.text.markup import plain

MAX_TIMERS = 50


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks, and from where; ``key`` is the same when the same wish comes again."""

    user: str
    repo: str
    channel: str
    thread_ts: str | None
    key: str


class ScheduleDesk:
    """Answers in plain text for the chat. Each wish may be carried out twice to the same effect."""

    def __init__(self, scheduler: Scheduler, clock: Clock, zone: tzinfo) -> None:
        self._scheduler = scheduler
        self._clock = clock
        self.zone = zone

    async def ready(self) -> None:
        """Wait until what is scheduled is known. Raises StoreError."""
        await self._scheduler.ready()

    async def look_again(self) -> None:
        """Wait until what the files say now is what is scheduled."""
        await self._scheduler.look_again()

    def listing(self, repo: str) -> str:
        """What is scheduled for a repository."""
        return listing(self._scheduler.book, self._scheduler.jobs, repo, self._clock.now(), self.zone)

    def run(self, repo: str, name: str, asker: Asker) -> str:
        """Say a job now, as whoever asks. Raises UnknownJobError."""
        job = self._job(repo, name)
        self._scheduler.say(Run(job, f"job:{key_of(job)}:{asker.key}", asker.user))
        return f"Starting **{plain(job.name)}**."

    async def pause(self, repo: str, name: str, why: str) -> str:
        """Let a job rest. Raises UnknownJobError, StoreError."""
        job = self._job(repo, name)
        await self._scheduler.change(partial(books.paused, key=key_of(job), why=why))
        return f"**{plain(job.name)}** is paused; `!jobs resume {job.name}` starts it again."

    async def resume(self, repo: str, name: str) -> str:
        """Let a job go on. Raises UnknownJobError, StoreError."""
        job = self._job(repo, name)
        await self._scheduler.change(partial(books.paused, key=key_of(job), why=""))
        due = self._scheduler.book.jobs[key_of(job)].next
        told = "never" if due is None else when(due, self._clock.now(), self.zone)
        return f"**{plain(job.name)}** goes on; next {told}."

    async def manage(self, action: str, name: str) -> str:
        """What the operator of this machine wants of any repository's job: run, pause or resume it.

        Raises UnknownJobError, StoreError.
        """
        await self._scheduler.ready()
        if action == "pause":
            return _plain(await self.pause("", name, "by the operator"))
        if action == "resume":
            return _plain(await self.resume("", name))
        owner = Asker(user=OPERATOR, repo="", channel="", thread_ts=None, key=uuid4().hex)
        return _plain(self.run("", name, owner))

    def rows(self) -> list[dict[str, Any]]:
        """Every job of every repository, as plain data for `codebutler jobs`."""
        return [
            {
                "name": job.name,
                "repo": job.repo,
                "channel": job.channel,
                "cron": job.when,
                "timezone": str(job.cron.zone) if job.cron else "",
                "next": _iso(state.next),
                "last": _iso(state.last),
                "last_ok": state.last_ok,
                "running": bool(state.awaited),
                "paused": state.paused if job.enabled else "switched off in the file",
                "failures": state.failures,
            }
            for key, job in self._scheduler.jobs.items()
            if (state := self._scheduler.book.jobs.get(key)) is not None
        ]

    async def set_timer(self, moment: datetime, text: str, asker: Asker) -> str:
        """Say something at that time, as whoever asks. Raises StoreError."""
        mine = [timer for timer in self._scheduler.book.timers if timer.repo == asker.repo]
        if len(mine) >= MAX_TIMERS:
            return (
                f"There are {MAX_TIMERS} timers here already: `!jobs` lists them, `!jobs cancel ID` ends one."
            )
        timer = Timer(
            id=hashlib.sha256(asker.key.encode()).hexdigest()[:6],
            at=moment,
            user=asker.user,
            repo=asker.repo,
            channel=asker.channel,
            text=text,
            thread_ts=asker.thread_ts,
        )
        await self._scheduler.change(partial(books.with_timer, timer=timer))
        told = when(moment, self._clock.now(), self.zone)
        return f"⏰ {told[0].upper()}{told[1:]}: {brief(timer)}. `!jobs cancel {timer.id}` withdraws it."

    async def cancel(self, timer_id: str, repo: str) -> str:
        """Withdraw a timer. Raises StoreError."""
        if not any(timer.id == timer_id and timer.repo == repo for timer in self._scheduler.book.timers):
            return f"There is no timer `{timer_id}` here; `!jobs` lists them."
        await self._scheduler.change(partial(books.without_timer, timer_id=timer_id))
        return f"The timer `{timer_id}` is withdrawn."

    def _job(self, repo: str, name: str) -> Job:
        jobs = [job for job in self._scheduler.jobs.values() if repo in ("", job.repo)]
        name = name.strip("` ")
        found = [job for job in jobs if name in (job.name, key_of(job))]
        if len(found) == 1:
            return found[0]
        if found:
            raise UnknownJobError(f"Several are named {name}: say one of {', '.join(map(key_of, found))}.")
        known = ", ".join(job.name for job in jobs) or "none"
        raise UnknownJobError(f"There is no job {name!r} here; there are: {known}.")


class UnknownJobError(CodeButlerError):
    """The name is no job's, or several jobs'."""


def _plain(text: str) -> str:
    return text.replace("*", "").replace("`", "")


def _iso(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment is not None else None
