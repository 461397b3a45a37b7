"""Words about time: `2h`, `18:00`, and how a job is shown. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, tzinfo

from codebutler.schedule.book import Book, JobState, Timer
from codebutler.schedule.jobs import Job
from codebutler.text.markup import plain

LONGEST = timedelta(days=366)
_PART = re.compile(r"(\d{1,6})\s*(d|h|m|s)[a-z]*\s*", re.IGNORECASE)
_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_CLOCK = re.compile(r"(?:(\d{4})-(\d{2})-(\d{2})[ T])?(\d{1,2}):(\d{2})")


def split_in(argument: str, now: datetime) -> tuple[datetime, str]:
    """``2h 30m check the deploy`` as (when, what). Raises ValueError with what to say instead."""
    rest, seconds = argument.strip(), 0
    while match := _PART.match(rest):
        seconds += int(match[1]) * _UNITS[match[2].lower()]
        rest = rest[match.end() :]
    if not seconds or not rest:
        raise ValueError(
            "Say it as `!in 2h30m TEXT`: days (d), hours (h), minutes (m), seconds (s), then what to do."
        )
    return _bounded(now + timedelta(seconds=seconds), now), rest


def split_at(argument: str, now: datetime, zone: tzinfo) -> tuple[datetime, str]:
    """``18:00 check the deploy`` or ``2026-12-24 18:00 …`` as (when, what). Raises ValueError."""
    match = _CLOCK.match(argument.strip())
    rest = argument.strip()[match.end() :].strip() if match else ""
    if not match or not rest:
        raise ValueError("Say it as `!at 18:00 TEXT` or `!at 2026-12-24 18:00 TEXT`.")
    here = now.astimezone(zone)
    try:
        moment = here.replace(hour=int(match[4]), minute=int(match[5]), second=0, microsecond=0, fold=0)
        if match[1]:
            moment = moment.replace(year=int(match[1]), month=int(match[2]), day=int(match[3]))
    except ValueError:
        raise ValueError(f"`{match[0]}` is no time there is.") from None
    if moment <= here and not match[1]:
        moment += timedelta(days=1)
    if moment <= here:
        raise ValueError(f"`{match[0]}` is over already.")
    return _bounded(moment.astimezone(UTC), now), rest


def _bounded(moment: datetime, now: datetime) -> datetime:
    if moment - now > LONGEST:
        raise ValueError("That is more than a year away: write it into `jobs.yaml`.")
    return moment


def listing(book: Book, jobs: Mapping[str, Job], repo: str, now: datetime, zone: tzinfo) -> str:
    """What is scheduled for a repository, as Markdown."""
    mine = [(job, book.jobs[key]) for key, job in jobs.items() if job.repo == repo and key in book.jobs]
    lines = [f"• **{plain(job.name)}** {_state(job, state, now, zone)}" for job, state in mine]
    timers = [timer for timer in book.timers if timer.repo == repo]
    lines += [f"• timer `{timer.id}` {when(timer.at, now, zone)}: {brief(timer)}" for timer in timers]
    if not lines:
        return (
            "Nothing is scheduled. Jobs are defined in `.codebutler/jobs.yaml`; `!in 2h TEXT` sets a timer."
        )
    return "\n".join(lines)


def brief(timer: Timer) -> str:
    """The first words of what a timer says."""
    text = " ".join(timer.text.split())
    return f"“{text[:80]}{'…' if len(text) > 80 else ''}”"


def _state(job: Job, state: JobState, now: datetime, zone: tzinfo) -> str:
    last = "" if state.last is None else f", last {when(state.last, now, zone)} {_verdict(state)}"
    if state.paused:
        return f"is paused: {state.paused} (`!jobs resume {job.name}`){last}"
    if not job.enabled:
        return f"is switched off in the file{last}"
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
    """A moment as people of today say it."""
    there, here = moment.astimezone(zone), now.astimezone(zone)
    if there.date() == here.date():
        return f"at {there:%H:%M}"
    if there.date() == (here + timedelta(days=1)).date():
        return f"tomorrow at {there:%H:%M}"
    return f"on {there:%Y-%m-%d} at {there:%H:%M}"
