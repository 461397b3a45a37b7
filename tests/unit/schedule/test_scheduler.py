"""The scheduler between a file, a clock, a chat and a disk that may fail at any step."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from codebutler.chat.chats import Chats
from codebutler.config.paths import Home
from codebutler.config.registry import Registry
from codebutler.domain.errors import ChatError, ChatUnreachableError, StoreError
from codebutler.domain.model import OPERATOR, Command, Event, MessagePosted, Post, TurnOutcome
from codebutler.intake.intake import Outcome
from codebutler.intake.repos import RepoTable
from codebutler.parent.commands.asked import Resources, answer
from codebutler.parent.moving import MoveMeans, RepoMoves
from codebutler.parent.new_repos import Means, NewRepos
from codebutler.parent.parts import Reloads
from codebutler.parent.spending import Ledgers
from codebutler.platform.tasks import Tasks, beside
from codebutler.schedule.commands import Asker, ScheduleCommands
from codebutler.schedule.files import FoundJobs
from codebutler.schedule.jobs import JobPlace, parse_file, place_at
from codebutler.schedule.scheduler import Scheduler
from codebutler.schedule.state import paused
from codebutler.supervisor.port import Shared
from codebutler.supervisor.supervisor import Supervisor
from tests.clock import ManualClock, settle
from tests.shown import text_of
from tests.workers.inprocess import FakeSpawner
from tests.workers.services import RecordingServices

START = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)
FILE = "jobs: [{name: tests, cron: '0 * * * *', command: make test, timezone: UTC}]"
NO_LEDGERS = Ledgers(lambda: RepoTable(()), ManualClock(), lambda *told: None)
ASKER = Asker(user="U1", repo="shop", channel="C1", thread="5.5", key="message:C1:5.5")


class Commands:
    def __init__(self, world: World, scheduler: Scheduler, clock: ManualClock) -> None:
        schedule = ScheduleCommands(scheduler, clock, ZoneInfo("UTC"))
        means = Means(
            home=Home(Path("/nonexistent")),
            env={},
            notes=world,
            publish=world.publish,
            chats=Chats(()),
            reloads=Reloads(),
            clock=clock,
        )
        shared = Shared(FakeSpawner().spawn, RecordingServices(), clock, lambda: 0.0)
        moving = MoveMeans(
            registry=Registry(Home(Path("/nonexistent"))),
            notes=world,
            table=lambda: RepoTable(()),
            workers=Supervisor(shared),
            reloads=Reloads(),
            publish=world.publish,
            audit=lambda act: None,
            clock=clock,
        )
        repos, moves = NewRepos(means), RepoMoves(moving)
        self._resources = Resources(schedule, repos, moves, NO_LEDGERS, clock, START)

    async def answer(self, name: str, argument: str, asker: Asker) -> str:
        return await answer(Command(name=name, argument=argument), self._resources, asker)


class Killed(BaseException):
    """The process is gone."""


class World:
    """What outlives a supervisor: the disk, the chat, the intake's memory, the time."""

    def __init__(self, file: str = FILE) -> None:
        self.clock = ManualClock(START)
        self.file = file
        self.notes: dict[str, str] = {}
        self.posts: dict[str, tuple[str, Post]] = {}
        self.wishes: dict[str, MessagePosted] = {}
        self.steps = 0
        self.die_at = 0
        self.outcome: Outcome = "accepted"
        self.refuse_posts = False
        self.is_closing = False

    def _step(self) -> None:
        self.steps += 1
        if self.steps == self.die_at:
            raise Killed

    def look(self) -> FoundJobs:
        jobs = parse_file(self.file.encode(), "jobs.yaml", place_at(JobPlace("shop", "C1"))).jobs
        return FoundJobs({f"{job.repo}/{job.name}": job for job in jobs})

    async def note(self, name: str) -> str:
        return self.notes.get(name, "")

    async def keep_note(self, name: str, value: str) -> None:
        self._step()
        self.notes[name] = value
        self._step()

    async def publish(self, channel: str, key: str, post: Post, unsure: bool) -> str:
        self._step()
        if self.refuse_posts:
            raise ChatError("channel_not_found")
        if self.is_closing:
            raise ChatUnreachableError("the sender was closed before this was sent", "closed")
        known = key in self.posts
        assert unsure or not known, "it would have been posted twice"
        ts, _ = self.posts.setdefault(key, (f"{len(self.posts) + 1}.0", post))
        self._step()
        return ts

    async def accept(self, event: Event, *, missed: bool = False) -> Outcome:
        self._step()
        assert isinstance(event, MessagePosted)
        if event.ref in self.wishes:
            return "duplicate"
        if self.outcome == "accepted":
            self.wishes[event.ref] = event
        self._step()
        return self.outcome

    @asynccontextmanager
    async def life(self) -> AsyncIterator[Scheduler]:
        """One supervisor's life; it ends like a killed process, whatever is under way."""
        tasks = Tasks(lambda name, error: None)
        scheduler = Scheduler(self, self.publish, self.look, self.clock, tasks)
        # One thread: what `calm` has run there comes after what was begun before.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        try:
            async with beside(scheduler.run(self.accept), name="schedule"):
                yield scheduler
        except Killed:
            pass
        finally:
            await tasks.close(0)

    async def passes(self, hours: float) -> None:
        """Time passes in small steps; what is due is done."""
        for _ in range(round(hours * 12)):
            await self.clock.advance(300)
            await calm()


async def calm() -> None:
    for _ in range(3):
        await asyncio.to_thread(lambda: None)
        await settle()


async def test_what_is_due_is_said_and_handed_in_as_the_owners_wish() -> None:
    world = World()
    async with world.life() as scheduler:
        await calm()
        assert not world.posts
        await world.passes(1.1)
        (key, (ts, header)), (wish,) = *world.posts.items(), world.wishes.values()
        assert key == "job:shop/tests:2026-11-21T11:00:00+00:00"
        assert text_of(header) == "⏰ *tests*: starting…"
        assert (wish.ref, wish.text, wish.user, wish.origin) == (ts, "run: make test", OPERATOR, "schedule")
        # On whose budget it goes.
        assert wish.job == "tests"
        # Of another channel's message with the same ts it is not the end.
        await scheduler.ended("C2", (ts,), "done")
        assert scheduler.schedule.jobs["shop/tests"].awaited == ts
        await scheduler.ended("C1", ("0.1", ts), "done")
        state = scheduler.schedule.jobs["shop/tests"]
        assert (state.awaited, state.last_ok, state.failures) == ("", True, 0)


async def test_an_interrupted_run_is_over_and_not_its_jobs_fault() -> None:
    world = World()
    async with world.life() as scheduler:
        await calm()
        await world.passes(0.5)
        for number in range(4):
            await world.passes(1)
            assert len(world.wishes) == number + 1
            await scheduler.ended("C1", tuple(world.wishes), "interrupted")
        state = scheduler.schedule.jobs["shop/tests"]
        assert (state.failures, state.paused, state.last_ok) == (0, "", False)


async def test_the_end_of_a_run_is_heard_by_the_next_life_and_waits_for_the_disk() -> None:
    class Full(World):
        full = False

        async def keep_note(self, name: str, value: str) -> None:
            if self.full:
                raise StoreError("the disk is full")
            await super().keep_note(name, value)

    world = Full()
    async with world.life():
        await calm()
        await world.passes(1.1)
    (ts,) = world.wishes
    async with world.life() as scheduler:
        # Before the files have been read.
        ending = asyncio.create_task(scheduler.ended("C1", (ts,), "done"))
        world.full = True
        await world.passes(0.1)
        assert not ending.done()
        world.full = False
        await world.passes(0.1)
        await ending
        assert scheduler.schedule.jobs["shop/tests"].awaited == ""


async def test_what_was_just_vouched_for_is_known_before_that_is_answered() -> None:
    world = World()
    async with world.life() as scheduler:
        await calm()
        assert set(scheduler.jobs) == {"shop/tests"}
        world.file = "jobs: [{name: more, cron: '0 * * * *', command: make more, timezone: UTC}]"
        async with asyncio.timeout(30):
            await scheduler.look_again()
        assert set(scheduler.jobs) == set(scheduler.schedule.jobs) == {"shop/more"}


async def test_a_paused_job_stays_paused_though_its_file_is_wrong_at_the_next_start() -> None:
    world = World()
    async with world.life() as scheduler:
        await calm()
        await scheduler.change(lambda schedule: paused(schedule, "shop/tests", "by UYOU"))
    wrong = True
    shown = world.look
    unread = FoundJobs({}, unread=frozenset({"shop"}))
    world.look = lambda: unread if wrong else shown()  # type: ignore[method-assign]  # what the world shows next
    async with world.life() as scheduler:
        await calm()
        await world.passes(2)
        wrong = False
        await world.passes(2)
        assert scheduler.schedule.jobs["shop/tests"].paused == "by UYOU"
        assert not world.wishes


async def test_a_file_that_never_holds_still_is_not_waited_for_long() -> None:
    world = World()
    world.look = lambda: FoundJobs({}, unsettled=True)  # type: ignore[method-assign]  # what the world shows next
    async with world.life() as scheduler:
        await calm()
        asked = asyncio.create_task(scheduler.look_again())
        await calm()
        assert not asked.done()
        await world.passes(1)
        await asked


async def test_three_failures_pause_it_and_the_channel_is_told() -> None:
    world = World()
    async with world.life() as scheduler:
        await calm()
        await world.passes(0.5)  # never to the second on which a run is due
        for _ in range(3):
            await world.passes(1)
            for ts in list(world.wishes):
                await scheduler.ended("C1", (ts,), "failed")
            await calm()
        await world.passes(3)
        assert len(world.wishes) == 3
        assert any("is paused" in text_of(post) for _, post in world.posts.values())


@pytest.mark.parametrize("outcome", ["done", "failed"])
async def test_a_run_that_ends_after_somebody_has_paused_its_job_says_nothing_of_that(
    outcome: TurnOutcome,
) -> None:
    world = World()
    async with world.life() as scheduler:
        await calm()
        await world.passes(1.1)
        desk = Commands(world, scheduler, world.clock)
        assert "is paused" in await desk.answer("jobs", "pause tests", ASKER)
        (ts,) = world.wishes
        await scheduler.ended("C1", (ts,), outcome)
        await calm()
        assert [text_of(post) for _, post in world.posts.values()] == ["⏰ *tests*: starting…"]
        assert scheduler.schedule.jobs["shop/tests"].paused == "by [@U1](person:U1)"


@pytest.mark.parametrize("fault", ["refused", "unsayable"])
async def test_what_is_refused_three_times_is_paused_too(fault: str) -> None:
    world = World()
    world.outcome, world.refuse_posts = "refused", fault == "unsayable"
    async with world.life() as scheduler:
        await calm()
        await world.passes(4)
        assert scheduler.schedule.jobs["shop/tests"].paused == "failed 3 times in a row"


async def test_a_broken_disk_begins_nothing_and_is_waited_for() -> None:
    class Full(World):
        full = True

        async def keep_note(self, name: str, value: str) -> None:
            if self.full:
                raise StoreError("the disk is full")
            await super().keep_note(name, value)

    world = Full()
    async with world.life():
        await calm()
        await world.passes(2)
        assert not world.posts
        world.full = False
        await world.passes(2)
        assert len(world.wishes) == 1  # the second waits for the first one's end


@pytest.mark.parametrize("die_at", range(1, 40))
async def test_killed_at_any_step_each_due_time_is_run_once(die_at: int) -> None:
    """Three hours, one kill at the given step, a timer among it; every run ends well as soon as it is there."""
    world = World()
    async with world.life() as scheduler:
        await calm()
        await Commands(world, scheduler, world.clock).answer("in", "90m look", ASKER)
    world.steps, world.die_at = 0, die_at
    for _ in range(40):
        async with world.life() as scheduler:
            await calm()
            for ts in world.wishes:
                await scheduler.ended("C1", (ts,), "done")
            await world.passes(0.1)
    assert [wish.text for wish in world.wishes.values()].count("look") == 1
    said = [key for key in world.posts if key.startswith("job:")]
    assert said == [f"job:shop/tests:2026-11-21T{hour}:00:00+00:00" for hour in (11, 12, 13, 14)][: len(said)]
    assert len(said) >= 3
    assert len(world.wishes) == len(said) + 1


async def test_a_timer_speaks_for_whoever_set_it_in_its_thread() -> None:
    world = World("jobs: []")
    async with world.life() as scheduler:
        desk = Commands(world, scheduler, world.clock)
        told = await desk.answer("in", "2h run: make deploy", ASKER)
        assert told.startswith("⏰ At 12:00: “run: make deploy”. `!jobs cancel ")
        await desk.answer("in", "2h run: make deploy", ASKER)  # the same wish again, after a crash
        assert "timer" in await desk.answer("jobs", "", ASKER)
        await world.passes(2.1)
        (wish,) = world.wishes.values()
        assert (wish.user, wish.text, wish.thread) == ("U1", "run: make deploy", "5.5")
        assert scheduler.schedule.timers == ()


async def test_what_was_not_sent_before_the_end_is_sent_by_the_next_life() -> None:
    world = World()
    async with world.life() as scheduler:
        await calm()
        await Commands(world, scheduler, world.clock).answer("in", "1h look", ASKER)
        world.is_closing = True
        await world.passes(1.1)
        assert (world.posts, scheduler.schedule.jobs["shop/tests"].failures) == ({}, 0)
    world.is_closing = False
    async with world.life():
        await calm()
        assert sorted(wish.text for wish in world.wishes.values()) == ["look", "run: make test"]


WATCH = "jobs: [{name: tests, watch: '*.py', command: make test}]"


async def test_a_watching_job_starts_a_second_after_the_last_change() -> None:
    world = World(WATCH)
    async with world.life() as scheduler:
        await calm()
        for _ in range(4):
            scheduler.changed(scheduler.jobs["shop/tests"])
            await calm()
            await world.clock.advance(0.8)
            await calm()
            assert not world.posts
        await world.clock.advance(0.3)
        await calm()
        assert len(world.wishes) == 1
        # Its own changes.
        scheduler.changed(scheduler.jobs["shop/tests"])
        await calm()
        await scheduler.ended("C1", tuple(world.wishes), "done")
        await world.clock.advance(5)
        await calm()
        assert len(world.wishes) == 1


async def test_files_that_never_rest_do_not_keep_a_job_back_for_ever() -> None:
    world = World(WATCH)
    async with world.life() as scheduler:
        await calm()
        for _ in range(130):
            scheduler.changed(scheduler.jobs["shop/tests"])
            await calm()
            await world.clock.advance(0.5)
        await calm()
        assert len(world.wishes) == 1


async def test_a_change_just_before_the_end_starts_the_job_in_the_next_life() -> None:
    world = World(WATCH)
    async with world.life() as scheduler:
        await calm()
        scheduler.changed(scheduler.jobs["shop/tests"])
        await calm()
    async with world.life():
        await calm()
        assert len(world.wishes) == 1


async def test_words_about_jobs() -> None:
    world = World()
    async with world.life() as scheduler:
        desk = Commands(world, scheduler, world.clock)
        assert await desk.answer("jobs", "", ASKER) == "• **tests** `0 * * * *` next at 11:00"
        assert "is paused" in await desk.answer("jobs", "pause tests", ASKER)
        assert "by [@U1](person:U1)" in await desk.answer("jobs", "", ASKER)
        assert "next run at 11:00" in await desk.answer("jobs", "resume tests", ASKER)
        assert "Starting" in await desk.answer("jobs", "run tests", ASKER)
        await desk.answer("jobs", "run tests", ASKER)
        await calm()
        assert [wish.user for wish in world.wishes.values()] == ["U1"]
        assert "No job 'nope' here. Jobs: tests." in await desk.answer("jobs", "run nope", ASKER)
        assert "Usage:" in await desk.answer("jobs", "dance", ASKER)
        assert "Use `!in" in await desk.answer("in", "soon", ASKER)
        assert "No timer" in await desk.answer("jobs", "cancel abc", ASKER)
        (row,) = ScheduleCommands(scheduler, world.clock, ZoneInfo("UTC")).rows()
        assert (row["name"], row["repo"], row["next"]) == ("tests", "shop", "2026-11-21T11:00:00+00:00")
