"""The weekly summary: due once a week, posted once whoever dies, and to whom it may go."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from codebutler.config.chats import SlackSection
from codebutler.config.registry import RepoEntry
from codebutler.config.schema import Config, LedgerSection
from codebutler.config.section import BudgetSection
from codebutler.domain.errors import ChatError
from codebutler.domain.model import Post
from codebutler.intake.direct import DirectThreads
from codebutler.intake.journal import Journal
from codebutler.intake.repos import RepoTable, Served
from codebutler.parent.commands.answers import WeeklyCosts, weekly_jobs
from codebutler.parent.spending import Ledgers
from codebutler.platform.tasks import Tasks, beside
from codebutler.schedule.files import JobFiles
from codebutler.schedule.jobs import Job
from codebutler.schedule.scheduler import Scheduler
from tests.clock import ManualClock
from tests.shown import text_of
from tests.unit.schedule.test_scheduler import Killed, World, calm

MONDAY = datetime(2026, 11, 23, 8, 30, tzinfo=UTC)


def served(weekly: str = "mon 09:00", to: str = "", zone: str = "UTC", path: str = "/nonexistent") -> Served:
    config = Config(
        slack=SlackSection(channel_id="C1", allowed_users=("U0000001", "U0000002")),
        ledger=LedgerSection(weekly=weekly, weekly_to=to),
        budget=BudgetSection(timezone=zone),
    )
    return Served(RepoEntry(name="shop", path=path, channel_id="C1"), config, (), trusted=True)


def due(job: Job) -> str:
    moment = job.next(MONDAY)
    assert moment is not None
    return moment.isoformat()


def test_it_is_due_at_its_time_of_the_repositorys_zone() -> None:
    assert weekly_jobs([served("")]) == {}
    [(key, job)] = weekly_jobs([served()]).items()
    assert (key, due(job), job.reports) == ("shop/weekly-costs", "2026-11-23T09:00:00+00:00", True)
    [berlin] = weekly_jobs([served("sun 23:45", zone="Europe/Berlin")]).values()
    assert due(berlin) == "2026-11-29T22:45:00+00:00"
    assert berlin.digest != job.digest


def test_a_job_of_that_name_in_a_file_does_not_replace_it() -> None:
    files = JobFiles(list, lambda: weekly_jobs([served()]))
    assert [*files.look().jobs] == ["shop/weekly-costs"]


class Weekly(World):
    """A world whose only job is the summary."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock(MONDAY)
        self.costs = WeeklyCosts(
            lambda name: served(),
            Ledgers(lambda: RepoTable(()), self.clock, lambda *_: None),
            DirectThreads(None),
            self.publish,  # type: ignore[arg-type]  # asked for nobody
        )

    def jobs(self) -> Mapping[str, Job]:
        return weekly_jobs([served()])

    async def lives(self, hours: float) -> None:
        """A supervisor lives that long, or until it is killed."""
        tasks = Tasks(lambda name, error: None)
        scheduler = Scheduler(self, self.publish, JobFiles(list, self.jobs).look, self.clock, tasks)
        try:
            async with beside(scheduler.run(self.accept, report=self.costs.post), name="schedule"):
                await calm()
                await self.passes(hours)
        except Killed:
            pass
        finally:
            await tasks.close(0)


async def test_it_is_posted_once_a_week_and_nothing_runs() -> None:
    world = Weekly()
    await world.lives(2)
    [(key, (_, post))] = world.posts.items()
    assert key == "job:shop/weekly-costs:2026-11-23T09:00:00+00:00"
    assert text_of(post).startswith("📊 *shop*\n*Last 7 days:*")
    assert world.wishes == {}
    await world.lives(7 * 24)
    assert len(world.posts) == 2


@pytest.mark.parametrize("step", range(1, 12))
async def test_it_is_posted_once_whenever_the_supervisor_dies(step: int) -> None:
    world = Weekly()
    await world.lives(0.2)
    world.die_at = world.steps + step
    await world.lives(1)
    for _ in range(3):
        await world.lives(1)
    assert len(world.posts) == 1


async def test_a_refused_post_counts_as_a_failure() -> None:
    world = Weekly()
    world.refuse_posts = True
    await world.lives(2)
    world.refuse_posts = False
    await world.lives(1)
    assert world.posts == {}


class Sent:
    def __init__(self) -> None:
        self.sent: list[tuple[str, str, Post]] = []

    async def publish(self, channel: str, key: str, post: Post, unsure: bool) -> str:
        self.sent.append((channel, key, post))
        return "1.0"


@pytest.mark.parametrize(
    ("to", "place"), [("", "C1"), ("U0000001", "D1"), ("U0000002", "C1"), ("U0000003", "C1")]
)
async def test_to_whom_it_goes(tmp_path: Path, to: str, place: str) -> None:
    """U0000002's conversation is not known, and U0000003 may not use the repository."""
    clock, sent = ManualClock(MONDAY), Sent()
    async with Journal.open(tmp_path / "journal.db", clock) as journal:
        direct = DirectThreads(journal)
        await direct.meet("U0000001", "D1")
        await direct.meet("U0000003", "D3")
        ledgers = Ledgers(lambda: RepoTable(()), clock, lambda *_: None)
        one = served(to=to)
        costs = WeeklyCosts(lambda name: one, ledgers, direct, sent.publish)
        [job] = weekly_jobs([one]).values()
        assert await costs.post(job, "key", False) == "1.0"
        [(channel, key, post)] = sent.sent
        assert (channel, key, post.message.names) == (place, "key", ())
        with pytest.raises(ChatError):
            await WeeklyCosts(lambda name: None, ledgers, direct, sent.publish).post(job, "key", False)
