"""Many messages while workers and the supervisor are killed, the connection is cut and Slack fails: when all are
answered.

The people of `make soak` ask; what a death interrupted they let go on or drop, as it asks them to.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

from bench.figures import Figure, limit
from bench.least import least_s
from bench.scene import BenchError, Pace
from tests.ordinary import open_the_way
from tests.soak.chaos import Chaos
from tests.soak.people import People
from tests.soak.plan import Plan
from tests.soak.run import Outcome, background, judge
from tests.soak.stage import Stage, stage

CHANNELS = 16
SPAN_S = 12.0
PATIENCE_S = 300.0
FAULTS = (
    *("kill worker",) * 5,
    *("kill supervisor",) * 2,
    *("cut socket",) * 3,
    *("slack: reset",) * 4,
    *("slack: lost",) * 2,
    *("slack: status",) * 2,
    *("slack: error",) * 2,
    *("slack: rate_limit",) * 2,
)


async def measure(place: Path, pace: Pace) -> list[Figure]:
    """Whether all are answered in time, and none is lost or doubled."""
    place.mkdir(parents=True)
    open_the_way(place)
    rng, outcome = Random(15), Outcome()
    async with stage(place, CHANNELS) as built:
        people, chaos = People(built, rng, 0.0, {"plain": 1}), Chaos(built, Plan(), rng)
        async with background(people.decide()):
            async with asyncio.TaskGroup() as group:
                group.create_task(_faults(chaos, rng))
                await _messages(people, built, pace.storm_messages)
            last_s = max(float(said.ts) for said in people.said)
            chaos.calm()
            await chaos.see_off()
            await _answered(built, people)
            took_s = _last_answer_s(built, people) - last_s
            judge(outcome, built, people, place)
    tried = Counter(each.kind for each in chaos.tried)
    print(f"  storm: {dict(tried)}; {len(people.open())} open, {sum(people.continued.values())} continued")
    for violation in outcome.violations:
        lines = outcome.traces.get(violation.said.token, []) if violation.said else []
        print("\n    ".join([f"  storm: {violation.kind}: {violation.said}: {violation.text}", *lines]))
    what = (
        f"{pace.storm_messages} messages in {CHANNELS} channels within {SPAN_S:g} s, {tried.total()} faults"
    )
    return [
        Figure(
            what=f"{what}: from the last message to the last answer",
            measured=took_s,
            against=least_s(Counter(said.channel for said in people.said)),
            against_what="Slack's limits",
            unit="s",
            reach=1.5,
        ),
        limit("the same: messages lost", outcome.count("lost"), 0, ""),
        limit("the same: answers or work doubled", outcome.count("doubled"), 0, ""),
        limit("the same: messages out of order", outcome.count("disordered"), 0, ""),
    ]


async def _messages(people: People, built: Stage, number: int) -> None:
    """Evenly over the span and the channels."""
    began_s = time.monotonic()
    for sent in range(number):
        await asyncio.sleep(max(0.0, began_s + sent * SPAN_S / number - time.monotonic()))
        people.say(built.repos[sent % CHANNELS])


async def _faults(chaos: Chaos, rng: Random) -> None:
    """All of them, about evenly over the span, in an order that is the same each time."""
    kinds = rng.sample(FAULTS, len(FAULTS))
    began_s = time.monotonic()
    for number, kind in enumerate(kinds):
        await asyncio.sleep(max(0.0, began_s + (number + 0.5) * SPAN_S / len(kinds) - time.monotonic()))
        while len(chaos.tried) == number:  # while the supervisor starts there is no worker to be killed
            await chaos.do(kind)
            await asyncio.sleep(0.05)


async def _answered(built: Stage, people: People) -> None:
    """Until each has its outcome. Raises BenchError."""
    try:
        await built.built.workspace.until(lambda: not people.open(), PATIENCE_S)
    except TimeoutError:
        raise BenchError(f"{len(people.open())} messages have no outcome after {PATIENCE_S:g} s") from None


def _last_answer_s(built: Stage, people: People) -> float:
    """When the last message of ours was posted in one of their threads (Unix time)."""
    roots: Sequence[tuple[str, str]] = list({(said.channel, said.root) for said in people.said})
    threads = (built.built.workspace.thread(*root) for root in roots)
    return max(float(message["ts"]) for thread in threads for message in thread if message.get("bot_id"))
