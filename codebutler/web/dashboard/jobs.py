"""Scheduled jobs and timers as the dashboard shows them, and what can be done with each. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from msgspec import Struct

from codebutler.schedule.commands import DISABLED
from codebutler.web.dashboard.runs import cut, one_line

MAX_JOBS = 50
JobDeed = Literal["run", "pause", "resume", "cancel"]


class JobView(Struct, frozen=True, kw_only=True):
    """A scheduled job, or a timer. ``name``: for its acts; ``title``: for people; ``can``: the possible acts."""

    key: str
    repo: str
    name: str
    title: str
    when: str
    next: str | None
    last: str | None
    last_ok: bool | None
    state: str
    can: tuple[JobDeed, ...]


def job_views(jobs: Sequence[Mapping[str, Any]], timers: Sequence[Mapping[str, Any]]) -> tuple[JobView, ...]:
    """The rows of `codebutler jobs` and the timers, the soonest first."""
    found = [*map(_job, jobs), *map(_timer, timers)]
    return tuple(sorted(found, key=_soonest)[:MAX_JOBS])


def _job(row: Mapping[str, Any]) -> JobView:
    paused = f"paused: {one_line(row['paused'])}" if row["paused"] else ""
    return JobView(
        key=f"{row['repo']}/{row['name']}",
        repo=row["repo"],
        name=row["name"],
        title=row["name"],
        when=row["cron"],
        next=None if paused else row["next"],
        last=row["last"],
        last_ok=row["last_ok"] if row["last"] else None,
        state="running" if row["running"] else paused,
        can=_deeds(row),
    )


def _deeds(row: Mapping[str, Any]) -> tuple[JobDeed, ...]:
    """A job that its file disables can only be run."""
    if row["paused"] == DISABLED:
        return ("run",)
    return ("run", "resume" if row["paused"] else "pause")


def _timer(row: Mapping[str, Any]) -> JobView:
    return JobView(
        key=f"timer/{row['repo']}/{row['id']}",
        repo=row["repo"],
        name=row["id"],
        title=cut(row["text"]) or "…",
        when="timer",
        next=row["at"],
        last=None,
        last_ok=None,
        state="",
        can=("cancel",),
    )


def _soonest(job: JobView) -> tuple[float, str]:
    return (datetime.fromisoformat(job.next).timestamp() if job.next else math.inf, job.key)
