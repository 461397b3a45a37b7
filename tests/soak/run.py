"""One soak from its first message to its verdict."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Sized
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random

from codebutler.config.paths import Home, RepoPaths
from codebutler.workspace.state import Message
from tests.history import Record, Violation, check, overtaken
from tests.soak.chaos import Chaos, Tried
from tests.soak.gauges import Life, belonging_to, command_of, watch
from tests.soak.jobs import headers, is_over, judge_jobs
from tests.soak.people import People
from tests.soak.plan import Plan
from tests.soak.stage import Stage, stage
from tests.soak.trace import keep_threads, trace

GONE_S = 20.0  # On a busy machine; what is left behind stays for ever.
# What of the product's own is not exactly the same twice: an arena of the allocator, a kept-alive connection.
RSS_MORE_MB, FDS_MORE, THREADS_MORE = 15.0, 10, 4


@dataclass
class Outcome:
    """Everything a soak found out."""

    messages: int = 0
    in_all: int = 0
    jobs: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    decisions: Counter[str] = field(default_factory=Counter)
    events_lost: int = 0
    overtaken: int = 0
    tried: list[Tried] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)
    lives: list[Life] = field(default_factory=list)
    left_behind: list[str] = field(default_factory=list)
    marked_s: float = 0.0
    rest_s: float = 0.0
    calls: Counter[str] = field(default_factory=Counter)
    too_many: Counter[str] = field(default_factory=Counter)
    traces: dict[str, list[str]] = field(default_factory=dict)
    log: str = ""

    def count(self, kind: str) -> int:
        """How many violations there are of a kind."""
        return sum(violation.kind == kind for violation in self.violations)

    def survived(self, kind: str) -> int:
        """The faults of a kind that no violation can be due to."""
        return sum(not any(_touches(t, v) for v in self.violations) for t in self.tried if t.kind == kind)

    @property
    def grown(self) -> list[str]:
        """The supervisor's lives that needed more at their end than at their beginning."""
        return [life.told() for life in self.lives if not _flat(life)]

    @property
    def ok(self) -> bool:
        return not (self.violations or self.left_behind or self.grown)


async def soak(plan: Plan, place: Path) -> Outcome:
    """Let people talk and things go wrong, then let everything come to rest, and judge."""
    rng = Random(plan.seed)
    outcome = Outcome()
    began_at = time.monotonic()
    async with stage(place, plan.repos) as built:
        people, chaos = People(built, rng, plan.pause_s, plan.mix), Chaos(built, plan, rng)
        async with background(watch(lambda: chaos.pid, outcome.lives), people.decide()):
            async with background(chaos.run(), *(people.talk(repo) for repo in built.repos)):
                await asyncio.sleep(plan.seconds)
                await built.built.workspace.until(partial(_enough, plan, people, chaos), plan.settle_s)
            chaos.calm()
            await chaos.see_off()
            began_s = time.monotonic()
            built.end_jobs()
            await _rest(built, people.unmarked, plan.settle_s)
            outcome.marked_s = time.monotonic() - began_s
            await _rest(built, people.open, plan.settle_s)
            await _rest(built, partial(_open_jobs, built), plan.settle_s)
            outcome.rest_s = time.monotonic() - began_s
            judge(outcome, built, people, place)
            judge_all_jobs(outcome, built, people, (time.monotonic() - began_at) / 60)
        outcome.tried = chaos.tried
        outcome.events_lost = built.built.workspace.hub.counts.lost
        outcome.calls = built.built.workspace.limits.calls
        outcome.too_many = built.built.workspace.limits.violations
        outcome.log = built.built.log()
        await built.built.stop()
        outcome.left_behind = await _left_behind(built)
    return outcome


def _enough(plan: Plan, people: People, chaos: Chaos) -> bool:
    return len(people.said) >= plan.messages and len({tried.kind for tried in chaos.tried}) >= plan.kinds


async def _rest(built: Stage, waiting: Callable[[], Sized], settle_s: float) -> None:
    """Until none is ``waiting`` any more, or none became less for ``settle_s``."""
    with contextlib.suppress(TimeoutError):
        while before := len(waiting()):
            await built.built.workspace.until(partial(_fewer, waiting, before), settle_s)


def judge_all_jobs(outcome: Outcome, built: Stage, people: People, minutes: float) -> None:
    """What became of every repository's job; and how many messages there are in the workspace."""
    for repo in built.repos:
        messages = built.messages(repo)
        begun = headers(messages)
        continued = sum(people.continued[repo.channel, header.ts] for header in begun)
        outcome.violations += judge_jobs(begun, repo.jobs_done(), continued, minutes)
        outcome.jobs += len(begun)
        outcome.in_all += len(messages)


def _open_jobs(built: Stage) -> list[Message]:
    """The runs of jobs that have no end yet, or other marks beside it."""
    begun = (header for repo in built.repos for header in headers(built.messages(repo)))
    return [header for header in begun if not is_over(header)]


def _fewer(waiting: Callable[[], Sized], before: int) -> bool:
    return len(waiting()) < before


def judge(outcome: Outcome, built: Stage, people: People, place: Path) -> None:
    keys = {(said.channel, said.root) for said in people.said}
    record = Record(
        said=people.said,
        threads={key: built.built.workspace.thread(*key) for key in keys},
        done={repo.channel: repo.done() for repo in built.repos},
        continued=people.continued,
        came_in=built.came_in(),
        files={
            file.id: (file.content or b"").decode() for file in built.built.workspace.workspace.files.values()
        },
        there={repo.channel: frozenset(path.name for path in repo.path.iterdir()) for repo in built.repos},
    )
    outcome.messages = len(people.said)
    outcome.kinds = people.kinds
    outcome.decisions = people.decisions
    outcome.violations = check(record)
    outcome.overtaken = overtaken(record)
    keep_threads(place / "threads.json", record.threads)
    stores = {repo.channel: RepoPaths(repo.path).store for repo in built.repos}
    for violation in outcome.violations:
        if (said := violation.said) is not None:
            thread = record.threads[said.channel, said.root]
            journal = Home(built.built.home).journal
            outcome.traces[said.token] = trace(said, journal, stores[said.channel], thread)


async def _left_behind(built: Stage) -> list[str]:
    """The processes of this house that are still there some seconds after its end, with their commands."""
    with_deadline = asyncio.get_running_loop().time() + GONE_S
    while found := belonging_to(built.built.home):
        if asyncio.get_running_loop().time() >= with_deadline:
            break
        await asyncio.sleep(0.1)
    return [f"{pid} {command_of(pid)}" for pid in found]


@asynccontextmanager
async def background(*work: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """Run coroutines beside the block and end them with it; one that fails ends the block."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each) for each in work]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()


def _touches(tried: Tried, violation: Violation) -> bool:
    """Whether the fault came while the message was on its way, or nobody can tell."""
    said = violation.said
    if said is None:
        return True
    return tried.channel in ("", said.channel) and tried.at_s >= float(said.ts) - 1


def _flat(life: Life) -> bool:
    """A life too short to be told from its own start is flat."""
    if len(life.samples) < 60:
        return True
    settled = life.samples[: len(life.samples) // 2]  # Of all of it: for a while there may be no workers.
    late = life.samples[-len(life.samples) // 4 :]
    return (
        max(s.rss_mb for s in late) <= max(s.rss_mb for s in settled) + RSS_MORE_MB
        and min(s.fds for s in late) <= max(s.fds for s in settled) + FDS_MORE
        and max(s.threads for s in late) <= max(s.threads for s in settled) + THREADS_MORE
    )
