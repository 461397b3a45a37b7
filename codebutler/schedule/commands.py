"""Commands about time: `2h`, `18:00`, and how a job is shown."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial
from typing import Any
from uuid import uuid4

from msgspec import Struct

from codebutler.domain.clock import Clock
from codebutler.domain.errors import CodeButlerError
from codebutler.domain.model import OPERATOR
from codebutler.domain.refs import NO_CHANNEL, ConversationRef, MessageRef, PersonRef
from codebutler.schedule import state as transitions
from codebutler.schedule.jobs import Job
from codebutler.schedule.scheduler import Scheduler
from codebutler.schedule.state import JobRun, JobState, Schedule, Timer, key_of
from codebutler.text.markup import plain

LONGEST = timedelta(days=366)
_PART = re.compile(r"(\d{1,6})\s*(d|h|m|s)[a-z]*\s*", re.IGNORECASE)
_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_CLOCK = re.compile(r"(?:(\d{4})-(\d{2})-(\d{2})[ T])?(\d{1,2}):(\d{2})")

MAX_TIMERS = 50
DISABLED = "disabled in the file"
"""Stands for the reason of a pause."""


def split_in(argument: str, now: datetime) -> tuple[datetime, str]:
    """Split ``2h 30m check the deploy`` into (when, what). Raises ValueError with the text for the person."""
    rest, seconds = argument.strip(), 0
    while match := _PART.match(rest):
        seconds += int(match[1]) * _UNITS[match[2].lower()]
        rest = rest[match.end() :]
    if not seconds or not rest:
        raise ValueError(
            "Use `!in 2h30m TEXT`: days (d), hours (h), minutes (m), seconds (s), then what to do."
        )
    return now + _bounded(seconds), rest


def split_at(argument: str, now: datetime, zone: tzinfo) -> tuple[datetime, str]:
    """Split ``18:00 check the deploy`` or ``2026-12-24 18:00 …`` into (when, what). Raises ValueError with the text for
    the person."""
    match = _CLOCK.match(argument.strip())
    rest = argument.strip()[match.end() :].strip() if match else ""
    if not match or not rest:
        raise ValueError("Use `!at 18:00 TEXT` or `!at 2026-12-24 18:00 TEXT`.")
    here = now.astimezone(zone)
    try:
        moment = here.replace(hour=int(match[4]), minute=int(match[5]), second=0, microsecond=0, fold=0)
        if match[1]:
            moment = moment.replace(year=int(match[1]), month=int(match[2]), day=int(match[3]))
    except ValueError:
        raise ValueError(f"`{match[0]}` is not a valid time.") from None
    if moment <= here and not match[1]:
        moment += timedelta(days=1)
    if moment <= here:
        raise ValueError(f"`{match[0]}` has already passed.")
    _bounded((moment - now).total_seconds())
    return moment.astimezone(UTC), rest


def _bounded(seconds: float) -> timedelta:
    if seconds > LONGEST.total_seconds():
        raise ValueError("That is more than a year away: define a job in `jobs.yaml` instead.")
    return timedelta(seconds=seconds)


def listing(schedule: Schedule, jobs: Mapping[str, Job], repo: str, now: datetime, zone: tzinfo) -> str:
    """A repository's schedule, as Markdown."""
    mine = [
        (job, schedule.jobs[key]) for key, job in jobs.items() if job.repo == repo and key in schedule.jobs
    ]
    lines = [f"• **{plain(job.name)}** {_state(job, state, now, zone)}" for job, state in mine]
    timers = [timer for timer in schedule.timers if timer.repo == repo]
    lines += [f"• timer `{timer.id}` {when(timer.at, now, zone)}: {brief(timer)}" for timer in timers]
    if not lines:
        return (
            "Nothing is scheduled. Jobs are defined in `.codebutler/jobs.yaml`; `!in 2h TEXT` sets a timer."
        )
    return "\n".join(lines)


def brief(timer: Timer) -> str:
    """The beginning of a timer's text."""
    text = " ".join(timer.text.split())
    return f"“{text[:80]}{'…' if len(text) > 80 else ''}”"


def _state(job: Job, state: JobState, now: datetime, zone: tzinfo) -> str:
    last = "" if state.last is None else f", last {when(state.last, now, zone)} {_verdict(state)}"
    if state.paused:
        return f"is paused: {state.paused} (`!jobs resume {job.name}`){last}"
    if not job.enabled:
        return f"is disabled in the file{last}"
    due = (
        "" if job.cron is None else " never" if state.next is None else f" next {when(state.next, now, zone)}"
    )
    running = ", running now" if state.awaited else ""
    return f"`{job.when}`{due}{running}{last}"


def _verdict(state: JobState) -> str:
    if state.awaited:
        return "…"
    return {True: "✅", False: "❌", None: ""}[state.last_ok]


def when(moment: datetime, now: datetime, zone: tzinfo) -> str:
    """A time in words, relative to today."""
    there, here = moment.astimezone(zone), now.astimezone(zone)
    if there.date() == here.date():
        return f"at {there:%H:%M}"
    if there.date() == (here + timedelta(days=1)).date():
        return f"tomorrow at {there:%H:%M}"
    return f"on {there:%Y-%m-%d} at {there:%H:%M}"


class Asker(Struct, frozen=True):
    """Who asks, and from where; ``key`` is the same if the same request is repeated."""

    user: PersonRef
    repo: str
    channel: ConversationRef
    thread: MessageRef | None
    key: str


class ScheduleCommands:
    """Answers in Markdown for the chat. Repeating a request has no further effect."""

    def __init__(self, scheduler: Scheduler, clock: Clock, zone: tzinfo) -> None:
        self._scheduler = scheduler
        self._clock = clock
        self.zone = zone

    async def ready(self) -> None:
        """Wait until the schedule is loaded. Raises StoreError."""
        await self._scheduler.ready()

    async def look_again(self) -> None:
        """Wait until the schedule reflects the current files."""
        await self._scheduler.look_again()

    def listing(self, repo: str) -> str:
        """A repository's schedule."""
        return listing(self._scheduler.schedule, self._scheduler.jobs, repo, self._clock.now(), self.zone)

    def run(self, repo: str, name: str, asker: Asker) -> str:
        """Run a job now, on behalf of the person who asks. Raises UnknownJobError."""
        job = self._job(repo, name)
        self._scheduler.post(JobRun(job, f"job:{key_of(job)}:{asker.key}", asker.user))
        return f"Starting **{plain(job.name)}**."

    async def pause(self, repo: str, name: str, why: str) -> str:
        """Pause a job. Raises UnknownJobError, StoreError."""
        job = self._job(repo, name)
        await self._scheduler.change(partial(transitions.paused, key=key_of(job), why=why))
        return f"**{plain(job.name)}** is paused; `!jobs resume {job.name}` resumes it."

    async def resume(self, repo: str, name: str) -> str:
        """Resume a job. Raises UnknownJobError, StoreError."""
        job = self._job(repo, name)
        await self._scheduler.change(partial(transitions.paused, key=key_of(job), why=""))
        due = self._scheduler.schedule.jobs[key_of(job)].next
        told = "never" if due is None else when(due, self._clock.now(), self.zone)
        return f"**{plain(job.name)}** resumed; next run {told}."

    async def manage(self, action: str, name: str) -> str:
        """The operator's request for any repository's job: run, pause or resume.

        Raises UnknownJobError, StoreError.
        """
        await self._scheduler.ready()
        if action == "pause":
            return _plain(await self.pause("", name, "by the operator"))
        if action == "resume":
            return _plain(await self.resume("", name))
        owner = Asker(user=OPERATOR, repo="", channel=NO_CHANNEL, thread=None, key=uuid4().hex)
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
                "paused": state.paused if job.enabled else DISABLED,
                "failures": state.failures,
            }
            for key, job in self._scheduler.jobs.items()
            if (state := self._scheduler.schedule.jobs.get(key)) is not None
        ]

    def timers(self) -> list[dict[str, Any]]:
        """Every timer of every repository, as plain data."""
        return [
            {"id": timer.id, "repo": timer.repo, "at": timer.at.isoformat(), "text": timer.text}
            for timer in self._scheduler.schedule.timers
        ]

    async def cancel_timer(self, timer_id: str, repo: str) -> str:
        """The operator's request. Raises StoreError."""
        await self._scheduler.ready()
        return _plain(await self.cancel(timer_id, repo))

    async def set_timer(self, moment: datetime, text: str, asker: Asker) -> str:
        """Post a message at that time, on behalf of the person who asks. Raises StoreError."""
        mine = [timer for timer in self._scheduler.schedule.timers if timer.repo == asker.repo]
        if len(mine) >= MAX_TIMERS:
            return f"There are already {MAX_TIMERS} timers here: `!jobs` lists them, `!jobs cancel ID` cancels one."
        timer = Timer(
            id=hashlib.sha256(asker.key.encode()).hexdigest()[:6],
            at=moment,
            user=asker.user,
            repo=asker.repo,
            channel=asker.channel,
            text=text,
            thread=asker.thread,
        )
        await self._scheduler.change(partial(transitions.with_timer, timer=timer))
        told = when(moment, self._clock.now(), self.zone)
        return f"⏰ {told[0].upper()}{told[1:]}: {brief(timer)}. `!jobs cancel {timer.id}` cancels it."

    async def cancel(self, timer_id: str, repo: str) -> str:
        """Cancel a timer. Raises StoreError."""
        if not any(timer.id == timer_id and timer.repo == repo for timer in self._scheduler.schedule.timers):
            return f"No timer `{timer_id}` here; `!jobs` lists them."
        await self._scheduler.change(partial(transitions.without_timer, timer_id=timer_id))
        return f"The timer `{timer_id}` is cancelled."

    def _job(self, repo: str, name: str) -> Job:
        jobs = [job for job in self._scheduler.jobs.values() if repo in ("", job.repo)]
        name = name.strip("` ")
        found = [job for job in jobs if name in (job.name, key_of(job))]
        if len(found) == 1:
            return found[0]
        if found:
            raise UnknownJobError(
                f"Several jobs are named {name}: use one of {', '.join(map(key_of, found))}."
            )
        known = ", ".join(job.name for job in jobs) or "none"
        raise UnknownJobError(f"No job {name!r} here. Jobs: {known}.")


class UnknownJobError(CodeButlerError):
    """No job has that name, or several do."""


def _plain(text: str) -> str:
    return text.replace("*", "").replace("`", "")


def _iso(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment is not None else None
