"""The weekly summary of costs as a job: it reports, and no agent runs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256

from codebutler.domain.clock import zone_of
from codebutler.intake.repos import Served
from codebutler.schedule.cron import parse
from codebutler.schedule.jobs import Job
from codebutler.schedule.state import key_of

NAME = "weekly-costs"
CATCH_UP_S = 24 * 3600.0
"""If nothing ran when it was due, it is posted up to a day later."""


def weekly_jobs(served: Iterable[Served]) -> Mapping[str, Job]:
    """Those of the repositories that want one (``ledger.weekly``), by key."""
    found = (_weekly(each) for each in served if each.config.ledger.weekly)
    return {key_of(job): job for job in found}


def _weekly(served: Served) -> Job:
    day, time = served.config.ledger.weekly.split()
    hour, minute = time.split(":")
    line = f"{int(minute)} {int(hour)} * * {day}"
    zone = served.config.budget.timezone
    return Job(
        name=NAME,
        repo=served.entry.name,
        channel=served.channel_id,
        text="",
        cron=parse(line, zone_of(zone)),
        watch=(),
        label="Costs of the week",
        missed="once",
        catch_up_s=CATCH_UP_S,
        enabled=True,
        digest=sha256(f"{line} {zone}".encode()).hexdigest()[:16],
        reports=True,
    )
