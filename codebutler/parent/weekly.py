"""The weekly summary of costs: the job that is due, and what it posts in the repository's channel or to one person."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256

from codebutler.config.permission import Person, Where, may
from codebutler.domain.clock import zone_of
from codebutler.domain.errors import ChatError
from codebutler.domain.message import Message
from codebutler.domain.model import Post
from codebutler.domain.refs import NO_CHANNEL, ConversationRef, MessageRef
from codebutler.intake.direct import DirectThreads
from codebutler.intake.repos import Served
from codebutler.parent.commands.costs import summary
from codebutler.parent.spending import WEEK_DAYS, Ledgers
from codebutler.schedule.cron import parse
from codebutler.schedule.jobs import Job
from codebutler.schedule.scheduler import Publish
from codebutler.schedule.state import key_of
from codebutler.text.markup import plain

NAME = "weekly-costs"
CATCH_UP_S = 24 * 3600.0
"""If nothing ran when it was due, it is posted up to a day later."""


def weekly_jobs(served: Iterable[Served]) -> Mapping[str, Job]:
    """The jobs of the repositories that want one (``ledger.weekly``), by key. They report, and no agent runs. Pure."""
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


class WeeklyCosts:
    """Posts the weekly summaries. ``named`` finds a served repository."""

    def __init__(
        self,
        named: Callable[[str], Served | None],
        ledgers: Ledgers,
        direct: DirectThreads,
        publish: Publish,
    ) -> None:
        self._named = named
        self._ledgers = ledgers
        self._direct = direct
        self._publish = publish

    async def post(self, job: Job, key: str, unsure: bool) -> MessageRef:
        """The seven days before today, posted once for each ``key``. It notifies nobody. Raises ChatError."""
        served = self._named(job.repo)
        if served is None:
            raise ChatError(f"{job.repo} is no longer served", "not_served")
        days = self._ledgers.days(WEEK_DAYS + 1, job.repo)
        during = replace(days, until=days.until - timedelta(days=1))
        text = summary(await self._ledgers.rows(during, [job.repo]), during)
        message = Message(markdown=f"📊 **{plain(job.repo)}**\n{text}")
        return await self._publish(self._place(served), key, Post(message=message), unsure)

    def _place(self, served: Served) -> ConversationRef:
        """The person's direct conversation, if they may use the repository and it is known; else its channel."""
        user = served.config.ledger.weekly_to
        if not user or not may(Person(user), "see", Where(served.config, served.channel_id)).allowed:
            return served.channel_id
        known = self._direct.where(NO_CHANNEL, user)
        return known if known != NO_CHANNEL else served.channel_id
