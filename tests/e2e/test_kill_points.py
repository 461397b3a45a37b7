"""Every labelled point: the process that passes it is killed there, and nothing is lost.

At its first passage, and after it at its last; at every one with ``--all-passages`` (`make soak`). What is on disk
before a point is what was there after the one before it.

One undisturbed run tells which points there are and how often each is passed. Then parent and worker die at
each of them in turn while a person talks, and the whole record is checked after each recovery.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from tests.e2e.crashes import Point, Talk, crash_house, points_of

HOUSES = 4
PARENT = ("journal.append", "ack", "route", "deliver", "settle", "journal.settle", "post", "answer")
WORKER = ("inbox", "stored", "spawn", "result", "outbox", "mark")
SIDES = (".before", ".after")
# A worker that was killed in a turn, and is killed again while it recovers.
IN_RECOVERY = (
    "restore.before",
    "recover.before",
    "outbox.before",
    "outbox.after",
    "recover.after",
    "mark.after",
)
Process = Literal["parent", "worker"]


@dataclass(frozen=True)
class Job:
    """Who dies where. ``clicking``: while a person answers the question about an interrupted turn."""

    process: Process
    points: tuple[Point, ...]
    clicking: bool = False


async def carry_out(talk: Talk, job: Job) -> list[str]:
    """Returns the points that were not reached; the record is checked in any case."""
    house, worker = talk.house, f"worker:{talk.name}"
    if job.clicking:
        house.plan(worker, ("result.before", 1))
        await talk.say(1)
        await talk.until_asked()
    process = worker if job.process == "worker" else "parent"
    house.plan(process, *job.points)
    if not job.clicking:
        await talk.say(2)
    await talk.until_over()
    talk.verdict()
    missed = house.left(process)
    if missed or job.process == "worker":
        await house.renew()
    return missed


async def carry_out_all(tmp_path: Path, jobs: Sequence[Job]) -> Counter[str]:
    """All jobs, in several houses at a time; returns how often each label did end its process."""
    fired: Counter[str] = Counter()
    queue = iter(jobs)

    async def one_house(name: str, queue: Iterator[Job]) -> None:
        (tmp_path / name).mkdir()
        async with crash_house(tmp_path / name, [name]) as house:
            for job in queue:
                missed = await carry_out(house.talks[0], job)
                fired.update(label for label, k in job.points if f"{label} {k}" not in missed)

    async with asyncio.TaskGroup() as tasks:
        for number in range(HOUSES):
            tasks.create_task(one_house(f"house-{number}", queue))
    return fired


@pytest.fixture(scope="module")
def passages(tmp_path_factory: pytest.TempPathFactory) -> dict[Process, Counter[str]]:
    """How often each point is passed when nothing goes wrong."""
    return asyncio.run(undisturbed(tmp_path_factory.mktemp("undisturbed")))


async def undisturbed(tmp_path: Path) -> dict[Process, Counter[str]]:
    async with crash_house(tmp_path, ["quiet"]) as house:
        house.forget_passed()
        await house.talks[0].say(2)
        await house.talks[0].until_over()
        house.talks[0].verdict()
        assert house.deaths == 0
        return {"parent": house.passed("parent"), "worker": house.passed("worker:quiet")}


def test_the_points_are_those_that_matter(passages: dict[Process, Counter[str]]) -> None:
    assert set(passages["parent"]) == {name + side for name in PARENT for side in SIDES}
    assert set(passages["worker"]) == {name + side for name in WORKER for side in SIDES}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("process", ["parent", "worker"])
async def test_death_at_every_passage_of_every_point(
    process: Process, passages: dict[Process, Counter[str]], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    points = points_of(passages[process])
    every = request.config.getoption("--all-passages")
    if not every:
        last = {(label, k) for label, k in passages[process].items() if label.endswith(".after")}
        points = [point for point in points if point[1] == 1 or point in last]
    fired = await carry_out_all(tmp_path, [Job(process, (point,)) for point in points])
    assert set(fired) == set(passages[process])
    # How a run falls into batches and turns differs a little: the last passages may not come.
    assert fired.total() >= (0.75 if every else 0.5) * len(points), (fired, passages[process])


@pytest.mark.timeout(300)
@pytest.mark.parametrize("process", ["parent", "worker"])
async def test_death_while_a_person_decides(
    process: Process, passages: dict[Process, Counter[str]], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    sides = SIDES if request.config.getoption("--all-passages") else (".after",)
    labels = sorted(label for label in passages[process] if label.endswith(sides))
    jobs = [Job(process, ((label, 1),), clicking=True) for label in labels]
    fired = await carry_out_all(tmp_path, jobs)
    assert fired.total() >= 0.5 * len(jobs), fired


@pytest.mark.timeout(300)
async def test_death_in_the_recovery_from_a_death(tmp_path: Path) -> None:
    twice = [Job("worker", (("result.before", 1), (label, 1))) for label in IN_RECOVERY]
    again = [Job("parent", (("post.after", k), ("post.after", k))) for k in (1, 2, 3, 4)]
    fired = await carry_out_all(tmp_path, [*twice, *again])
    assert set(IN_RECOVERY) <= set(fired)
    assert fired["post.after"] >= 4
