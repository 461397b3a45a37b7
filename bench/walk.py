"""The way of one plain message: how many of our functions run between Slack's envelope and the message's final mark.

In both processes, every call is noted, in threads too; what also runs while nothing happens is left out. A room is a
folder at the top of ``codebutler`` or ``codebutler_worker``; a module that lies loose there counts as itself.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from bench import walked
from bench.figures import Figure, limit
from bench.scene import BenchError, Pace, Scene, scene
from bench.walked import Seen

FUNCTIONS, FILES, ROOMS = 350, 90, 20


class Step(msgspec.Struct, frozen=True, order=True):
    """One function on the way, at the moment it first ran."""

    at_s: float
    process: str
    file: str
    name: str
    line: int

    @property
    def room(self) -> str:
        """The folder at the top of its package, or the module that lies loose there."""
        package, top, *_ = self.file.split("/")
        return f"{package}/{top}"

    @property
    def function(self) -> tuple[str, str, int]:
        """What makes it one function, whichever process ran it."""
        return self.file, self.name, self.line


class Span(msgspec.Struct, frozen=True):
    """From one monotonic moment to another."""

    began_s: float
    ended_s: float

    def first(self, moments: Iterable[float]) -> float | None:
        """The first of the moments that lies within."""
        return min((at_s for at_s in moments if self.began_s <= at_s <= self.ended_s), default=None)


def way(seen: dict[str, Sequence[Seen]], busy: Span, idle: Sequence[Span]) -> list[Step]:
    """What ran in ``busy`` and never in ``idle``, in order, each function once; ``seen`` by process. Pure."""
    resting = {
        (each.file, each.name, each.line)
        for functions in seen.values()
        for each in functions
        if any(span.first(each.at_s) is not None for span in idle)
    }
    steps = sorted(
        Step(at_s, process, each.file, each.name, each.line)
        for process, functions in seen.items()
        for each in functions
        if (at_s := busy.first(each.at_s)) is not None
    )
    known = set(resting)
    found = []
    for step in steps:
        if step.function not in known:
            known.add(step.function)
            found.append(step)
    return found


async def measure(place: Path, pace: Pace) -> list[Figure]:
    """Three counts; with ``pace.verbose`` the way itself is printed."""
    steps = await walk(place, pace)
    if pace.verbose:
        print(told(steps))
    for process in dict.fromkeys(step.process for step in steps):
        ours = [step for step in steps if step.process == process]
        files, rooms = ({getattr(step, kind) for step in ours} for kind in ("file", "room"))
        print(f"  walk: {len(ours)} functions in {len(files)} files run in the {process} first; its rooms:")
        print(f"    {', '.join(sorted(rooms))}")
    return figures(steps)


async def walk(place: Path, pace: Pace) -> list[Step]:
    """The way of the second message of a supervisor; the first one loads what is loaded once."""
    async with scene(place) as product:
        product.through = (sys.executable, walked.__file__)
        await product.supervise()
        await _turn(product)
        idle = [await _rest(pace)]
        busy = await _turn(product)
        idle.append(await _rest(pace))
        await product.stop()
        return way(_recorded(product.home.root / "walk"), busy, idle)


def figures(steps: Sequence[Step]) -> list[Figure]:
    """The way's length, held to the goal."""
    what = "the way of one message"
    return [
        limit(f"{what}: functions", len(steps), FUNCTIONS, ""),
        limit(f"{what}: files", len({step.file for step in steps}), FILES, ""),
        limit(f"{what}: rooms", len({step.room for step in steps}), ROOMS, ""),
    ]


def told(steps: Sequence[Step]) -> str:
    """The way in order, a line for each function, with a heading wherever it enters another room."""
    lines = []
    room = ""
    for number, step in enumerate(steps, start=1):
        if f"{step.process} {step.room}" != room:
            room = f"{step.process} {step.room}"
            lines.append(room)
        lines.append(f"  {number:>4}  {step.file.split('/', 1)[1]}:{step.line} {step.name}")
    return "\n".join(lines)


async def _turn(product: Scene) -> Span:
    """One message and its final mark."""
    began_s = time.monotonic()
    await product.finished(product.server.say(product.names[0], "What is here?"))
    return Span(began_s, time.monotonic())


async def _rest(pace: Pace) -> Span:
    """A while in which nothing happens, once what the turn left to be done is done."""
    await asyncio.sleep(2 * pace.pause_s)
    began_s = time.monotonic()
    await asyncio.sleep(pace.settle_s)
    return Span(began_s, time.monotonic())


def _recorded(place: Path) -> dict[str, Sequence[Seen]]:
    """Raises BenchError when a process left no record."""
    files = {file.name.partition("-")[0]: file for file in place.glob("*.json")}
    if files.keys() != {"parent", "worker"}:
        raise BenchError(f"records of {sorted(files)} alone")
    return {
        process: msgspec.json.decode(file.read_bytes(), type=list[Seen]) for process, file in files.items()
    }
