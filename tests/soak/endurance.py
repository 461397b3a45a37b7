"""`python -m tests.soak.endurance [--messages N]`: many messages to one repository, and what each thousand costs.

The product is the real one; Slack's rate limits are off on both sides, so that the product is measured. Of each
``--runs`` messages one is work for the agent, in its sandbox, and the others are `!ping`. Every message is answered,
its work is done once, and the costs of the last thousand are held to those of the first.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random

from tests.history import Record, Violation, check
from tests.soak.asks import SPREAD
from tests.soak.cost import HEAD, Meter, Part, median, meter, part, ratios, unit_s, verdict
from tests.soak.people import People
from tests.soak.run import background
from tests.soak.stage import Repo, Stage, stage

UNLIMITED = Path(__file__).with_name("unlimited.py")
MIX = {"spread": 1}
WARM_UP = 40
PATIENCE_S = 120.0
THREADS_AT_ONCE = 100  # judged together: the judge compares each message with each
UNIT_EVERY_S = 1.0


@dataclass
class Endured:
    """What came of it."""

    parts: list[Part] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)
    messages: int = 0
    log: str = ""

    @property
    def grown(self) -> list[str]:
        return verdict(self.parts)


async def endure(
    place: Path, messages: int, runs: int, at_once: int, every: int, tell: Callable[[str], None]
) -> Endured:
    """Have ``messages`` answered, ``at_once`` at a time, and measure after ``every`` so many."""
    found = Endured()
    prefix = (sys.executable, "-I", str(UNLIMITED))
    async with stage(place, 1, prefix=prefix, parallel_turns=at_once) as built:
        built.end_jobs()
        talk = Talk(built, runs)
        await talk.say(WARM_UP, at_once)
        tell(HEAD)
        pids = await _pids(built)
        began = _meter(built, pids)
        units: list[float] = []
        async with background(_watch_speed(units)):
            while talk.count < messages + WARM_UP:
                count = min(every, messages + WARM_UP - talk.count)
                units.clear()
                await talk.say(count, at_once)
                ended = _meter(built, pids)
                found.parts.append(part(count, began, ended, pids, median(units)))
                tell(found.parts[-1].told())
                began = ended
        if await _pids(built) != pids:
            found.violations.append(Violation("lost", None, "a process was replaced"))
        found.messages = talk.count
        found.violations += judge(built, talk)
        found.log = built.built.log()
    return found


class Talk:
    """People who write and wait. Each ``runs``th message is work, the others are commands."""

    def __init__(self, built: Stage, runs: int) -> None:
        self.people = People(built, Random(0), 0.0, MIX)
        self.pings: list[str] = []
        self._workspace = built.built.workspace
        self._repo = built.repos[0]
        self._runs = runs

    @property
    def count(self) -> int:
        return len(self.people.said) + len(self.pings)

    async def say(self, count: int, at_once: int) -> None:
        """Say ``count`` more messages, ``at_once`` at a time; returns when each has its outcome."""
        left = iter(range(count))

        async def one() -> None:
            for _ in left:
                await self._workspace.until(self._said(), PATIENCE_S)

        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(one())

    def _said(self) -> Callable[[], bool | None]:
        """Whether the next message, said now, is answered."""
        if self.count % self._runs:
            ts = self._workspace.say(self._repo.channel, "!ping")
            self.pings.append(ts)
            return lambda: bool(self.pongs(ts)) or None
        said = self.people.say(self._repo)
        return lambda: self.people.over(said) or None

    def pongs(self, ts: str) -> list[str]:
        """What answered a command."""
        messages = self._workspace.workspace.channel(self._repo.channel).messages
        return messages[ts].replies


async def _watch_speed(units: list[float]) -> None:
    while True:
        units.append(unit_s())
        await asyncio.sleep(UNIT_EVERY_S)


async def _pids(built: Stage) -> tuple[int, int]:
    status = await built.built.status()
    assert status is not None, built.built.log()
    return status["supervisor"]["pid"], status["repos"][0]["worker"]["pid"]


def _meter(built: Stage, pids: tuple[int, int]) -> Meter:
    return meter(*pids, built.built.home, built.repos[0].path)


def judge(built: Stage, talk: Talk) -> list[Violation]:
    """Each message has one outcome, and its work was done once."""
    [repo], people = built.repos, talk.people
    done = _done(repo)
    roots = sorted({said.root for said in people.said})
    undone = {each.token for each in people.said} - {*done}
    found = [Violation("lost", None, f"{token} was not carried out") for token in sorted(undone)]
    found += [
        Violation("doubled", None, f"!ping {ts}: answered twice")
        for ts in talk.pings
        if len(talk.pongs(ts)) > 1
    ]
    for start in range(0, len(roots), THREADS_AT_ONCE):
        some = {*roots[start : start + THREADS_AT_ONCE]}
        said = [each for each in people.said if each.root in some]
        tokens = {each.token for each in said}
        threads = {(repo.channel, root): built.built.workspace.thread(repo.channel, root) for root in some}
        found += check(Record(said, threads, {repo.channel: [each for each in done if each in tokens]}))
    return found


def _done(repo: Repo) -> list[str]:
    files = sorted(repo.path.glob(f"{SPREAD}*"))
    return [token for file in files for token in file.read_text().split()]


def main() -> int:
    parser = argparse.ArgumentParser(prog="endurance", description=__doc__)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--every", type=int, default=1000, help="messages to a row of the table")
    parser.add_argument("--at-once", type=int, default=4, help="people who write and wait")
    parser.add_argument("--runs", type=int, default=4, help="one of this many messages is work for the agent")
    given = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="cb-endurance-")).resolve()
    tell = partial(print, flush=True)
    found = asyncio.run(endure(place, given.messages, given.runs, given.at_once, given.every, tell))
    (place / "supervise.log").write_text(found.log)
    for violation in found.violations[:40]:
        tell(f"  {violation.kind}: {violation.said}: {violation.text}")
    tell(f"{found.messages} messages, {len(found.violations)} lost, doubled or out of order")
    tell(f"last over first: {ratios(found.parts)}")
    for told in found.grown:
        tell(f"NOT FLAT  {told}")
    if found.violations or found.grown:
        tell(f"its files are kept in {place}")
        return 1
    tell("flat")
    shutil.rmtree(place, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
