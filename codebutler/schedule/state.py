"""The state of jobs and timers, which survives restarts, and its transitions. Pure.

A run is recorded as begun, and the job's next time advanced, before anything is posted: after a crash it is completed
under the same operation id, never begun twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from codebutler.domain.model import TurnOutcome
from codebutler.domain.refs import NOWHERE, ConversationRef, MessageRef, PersonRef
from codebutler.schedule.jobs import Job

LATE_S = 60.0
FAILURES = 3
AHEAD = timedelta(days=1)
"""A next time that even a clock this far ahead would not give was set by a wrong clock."""
PATIENCE = timedelta(hours=24)
"""After this time, a run without an outcome no longer blocks the next one."""


class JobState(Struct, frozen=True, kw_only=True):
    """The state of one job. ``paused`` says why it is paused, "" if it is not. ``begun`` is the due time of a run that
    has begun and is not posted yet; ``awaited`` is the message of the run in progress, which began at ``last``.
    ``trigger``: the last change of files that began a run."""

    digest: str
    next: datetime | None
    failures: int = 0
    paused: str = ""
    begun: datetime | None = None
    awaited: MessageRef = NOWHERE
    last: datetime | None = None
    last_ok: bool | None = None
    trigger: str = ""


class Timer(Struct, frozen=True, kw_only=True):
    """A message to be posted once, at ``at``, for a person."""

    id: str
    at: datetime
    user: PersonRef
    repo: str
    channel: ConversationRef
    text: str
    thread: MessageRef | None = None


class Schedule(Struct, frozen=True, kw_only=True):
    """The states of all jobs, by ``key_of``, and the pending timers."""

    jobs: dict[str, JobState] = {}
    timers: tuple[Timer, ...] = ()


class JobRun(Struct, frozen=True):
    """A run to be posted now; ``key`` is the same for every attempt."""

    job: Job
    key: str
    user: PersonRef


def key_of(job: Job) -> str:
    """The job's name in the schedule."""
    return f"{job.repo}/{job.name}"


def reconcile(
    schedule: Schedule, jobs: Iterable[Job], now: datetime, unread: Collection[str] = ()
) -> Schedule:
    """The schedule for the current files: new and changed jobs wait for their next time, changed ones lose their
    failures, removed ones are dropped. Jobs of ``unread`` repositories ("": of all) may still be there: they keep what
    they have, but not their run."""
    known = schedule.jobs
    current = {key_of(job): _known(known.get(key_of(job)), job, now) for job in jobs}
    unknown = {
        key: replace(state, begun=None, awaited=NOWHERE)
        for key, state in known.items()
        if key not in current and ("" in unread or key.partition("/")[0] in unread)
    }
    return replace(schedule, jobs=current | unknown)


def _known(state: JobState | None, job: Job, now: datetime) -> JobState:
    if state is None:
        return JobState(digest=job.digest, next=job.next(now))
    if state.digest != job.digest:
        return replace(state, digest=job.digest, next=job.next(now), failures=0, paused="")
    if state.next is not None and state.next - now > AHEAD:
        later = job.next(now + AHEAD)
        if later is not None and state.next > later:
            return replace(state, next=job.next(now))
    return state


def begin(schedule: Schedule, jobs: Mapping[str, Job], now: datetime) -> Schedule:
    """Begin all due jobs, and move each to its next time, whether it runs or not."""
    moved = {
        key: _begun(state, jobs[key], now) if key in jobs else state for key, state in schedule.jobs.items()
    }
    return replace(schedule, jobs=moved)


def _begun(state: JobState, job: Job, now: datetime) -> JobState:
    if state.next is None or state.next > now:
        return state
    due = state.next
    moved = replace(state, next=job.next(now))
    if state.paused or not job.enabled or is_running(state, now):
        return moved
    late_s = (now - _last_due(job, due, now)).total_seconds()
    if late_s > LATE_S and (job.missed == "skip" or late_s > job.catch_up_s):
        return moved
    return replace(moved, begun=due)


def triggered(schedule: Schedule, jobs: Mapping[str, Job], key: str, trigger: str, now: datetime) -> Schedule:
    """Begin the job: files that it watches have changed. Changes during its own run, and those that have begun one, do
    not count."""
    state, job = schedule.jobs.get(key), jobs.get(key)
    if state is None or job is None or not job.enabled or not job.watch:
        return schedule
    if state.paused or is_running(state, now) or state.trigger == trigger:
        return schedule
    return _with(schedule, key, lambda state: replace(state, begun=now, trigger=trigger))


def is_running(state: JobState, now: datetime) -> bool:
    """Only one run at a time: a time that comes due meanwhile is skipped."""
    if state.begun is not None:
        return True
    return bool(state.awaited) and state.last is not None and now - state.last < PATIENCE


def _last_due(job: Job, due: datetime, now: datetime) -> datetime:
    """The last time up to now that it was due, within a day.

    By bisection: a job of every minute has been due 1440 times, and this blocks the event loop.
    """
    last, since, until = due, max(due, now - timedelta(days=1)), now
    while until - since >= timedelta(seconds=1):
        middle = since + (until - since) / 2
        after = job.next(middle)
        if after is not None and after <= now:
            last = since = after
        else:
            until = middle
    return last


def runs(schedule: Schedule, jobs: Mapping[str, Job], owner: PersonRef) -> list[JobRun]:
    """Runs that have begun and are not posted yet, by due time, for ``owner``."""
    begun = [
        (state.begun, key) for key, state in schedule.jobs.items() if state.begun is not None and key in jobs
    ]
    return [JobRun(jobs[key], f"job:{key}:{due.isoformat()}", owner) for due, key in sorted(begun)]


def said(schedule: Schedule, key: str, ref: MessageRef, now: datetime) -> Schedule:
    """The run is posted as message ``ref``; it is not accepted yet."""
    return _with(schedule, key, lambda state: replace(state, awaited=ref, last=now))


def taken(schedule: Schedule, key: str) -> Schedule:
    """The run is accepted and in progress."""
    return _with(schedule, key, lambda state: replace(state, begun=None))


def reported(schedule: Schedule, key: str, now: datetime) -> Schedule:
    """The run was a report, and it is posted."""
    return _with(schedule, key, lambda state: _worked(replace(state, last=now)))


def given_up(schedule: Schedule, key: str, now: datetime) -> Schedule:
    """The run could not be posted or was refused: a failure."""
    return _with(schedule, key, lambda state: _failed(replace(state, last=now)))


def ended(
    schedule: Schedule,
    jobs: Mapping[str, Job],
    channel: ConversationRef,
    messages: Collection[str],
    outcome: TurnOutcome,
) -> tuple[Schedule, str]:
    """(the schedule after these messages of the channel have their outcome, the key of the job whose run was among
    them, "" if none was). An interrupted run does not count as a failure of its job."""
    for key, state in schedule.jobs.items():
        if state.awaited in messages and key in jobs and jobs[key].channel == channel:
            change = _worked if outcome == "done" else _interrupted if outcome == "interrupted" else _failed
            return _with(schedule, key, change), key
    return schedule, ""


def paused_why(schedule: Schedule, key: str) -> str:
    """Why the job is paused, "" if it is not, or does not exist."""
    return schedule.jobs[key].paused if key in schedule.jobs else ""


def paused(schedule: Schedule, key: str, why: str) -> Schedule:
    """Pause the job; with "" as ``why`` it is resumed and its failures are cleared."""
    return _with(
        schedule, key, lambda state: replace(state, paused=why, failures=0 if not why else state.failures)
    )


def with_timer(schedule: Schedule, timer: Timer) -> Schedule:
    """Add a timer; adding the same one again changes nothing."""
    others = tuple(each for each in schedule.timers if each.id != timer.id)
    return replace(schedule, timers=tuple(sorted((*others, timer), key=lambda each: (each.at, each.id))))


def without_timer(schedule: Schedule, timer_id: str) -> Schedule:
    """Remove the timer with that id."""
    return replace(schedule, timers=tuple(each for each in schedule.timers if each.id != timer_id))


def next_at(schedule: Schedule, jobs: Collection[str]) -> datetime | None:
    """When a timer or one of these jobs is next due."""
    times = [state.next for key, state in schedule.jobs.items() if state.next is not None and key in jobs]
    return min([*times, *(timer.at for timer in schedule.timers)], default=None)


def _worked(state: JobState) -> JobState:
    return replace(state, begun=None, awaited="", failures=0, last_ok=True)


def _interrupted(state: JobState) -> JobState:
    return replace(state, begun=None, awaited="", last_ok=False)


def _failed(state: JobState) -> JobState:
    failures = state.failures + 1
    why = f"failed {FAILURES} times in a row" if failures >= FAILURES else state.paused
    return replace(state, begun=None, awaited="", failures=failures, last_ok=False, paused=why)


def _with(schedule: Schedule, key: str, change: Callable[[JobState], JobState]) -> Schedule:
    if key not in schedule.jobs:
        return schedule
    return replace(schedule, jobs={**schedule.jobs, key: change(schedule.jobs[key])})
