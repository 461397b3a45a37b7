"""The wall clock jumps, and the machine sleeps: real processes under libfaketime, their spans by the real clock.

| case | what happens |
|---|---|
| K01 | the clock is set an hour ahead, and back again, while a turn runs: noticed within 30 s, connected anew;
  the turn ends well, nobody times out, and what is written meanwhile is answered once |
| K02 | the machine sleeps for eight hours: what was written in that time is answered once, late, and told |
"""

from __future__ import annotations

import asyncio
import signal
import time
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from codebutler.domain.clock import SystemClock
from tests.e2e.house import LOOK_S, House, house, whole_text
from tests.e2e.test_absence_notice import told
from tests.e2e.test_catchup import LATE, answered
from tests.e2e.test_matrix import QUICK
from tests.faketime import WallClock, family, is_faked, signal_family
from tests.programs import require

NOTICED_S = 30.0


class SlackClock(SystemClock):
    """The workspace's own time of day."""

    offset = timedelta()

    def now(self) -> datetime:
        return super().now() + self.offset


async def noticed(built: House, jump_s: float, since: int) -> float:
    """Wait until the log tells of the jump; how long that took."""
    log = built.home / "logs" / "codebutler.log"
    began_s = time.monotonic()
    async with asyncio.timeout(NOTICED_S):
        while True:
            text = (await asyncio.to_thread(log.read_text))[since:]
            jumps = [
                float(line.split(" jumped by ")[1].split(" s ")[0])
                for line in text.splitlines()
                if " jumped by " in line
            ]
            if any(abs(found_s - jump_s) < 30 for found_s in jumps):
                return time.monotonic() - began_s
            await asyncio.sleep(LOOK_S)


def at_work(built: House, channel: str, ts: str) -> bool | None:
    return "eyes" in built.reactions(channel, ts) or None


async def by(clock: WallClock, built: House, repo: Path) -> str:
    """A supervisor that lives by ``clock``, and a repository answered by the rehearsal agent; its channel."""
    require("bwrap")
    channel = await built.add_repo(repo, "sample", agent=QUICK)
    built.prefix = clock.prefix
    await built.supervise()
    built.prefix = ()
    assert built.supervisor is not None
    # The fork server and the workers too, though they inherit next to nothing.
    assert all(is_faked(pid) for pid in family(built.supervisor.pid))
    return channel


async def test_k01_a_clock_that_is_set_costs_nothing_but_a_reconnection(
    tmp_path: Path, git_repo: Path
) -> None:
    clock = WallClock(tmp_path / "clock")
    async with house(tmp_path, "sample") as built:
        channel = await by(clock, built, git_repo)
        working = await built.say(channel, "wait 15 seconds")
        await built.until("it at work", partial(at_work, built, channel, working))
        for hours in (1, 0):
            since = len((built.home / "logs" / "codebutler.log").read_text())
            clock.set(timedelta(hours=hours))
            said = await built.say(channel, "!ping")
            assert await noticed(built, 3600 * (1 if hours else -1), since) < NOTICED_S
            meanwhile = await built.say(channel, "!ping")
            for ts in (said, meanwhile):
                await built.answer(channel, ts, "pong")
            assert [len(built.answers(channel, ts)) for ts in (said, meanwhile)] == [1, 1]
        assert await built.outcome(channel, working) == "white_check_mark"
        assert answered(built, channel, working) == 1
        status = await built.status()
        assert status is not None
        assert status["slack"]["reconnects"] == 2
        assert [repo["worker"]["restarts"] for repo in status["repos"]] == [0]
        assert not any("min" in line or " h:" in line for line in told(built, channel)), "nobody was away"


async def test_k02_a_sleep_of_eight_hours(tmp_path: Path, git_repo: Path) -> None:
    clock, slack = WallClock(tmp_path / "clock"), SlackClock()
    async with house(tmp_path, "sample", clock=slack) as built:
        channel = await by(clock, built, git_repo)
        before = await built.say(channel, "list the files")
        await built.answer(channel, before, "README.md")
        await built.outcome(channel, before)
        since = len((built.home / "logs" / "codebutler.log").read_text())
        assert built.supervisor is not None
        signal_family(built.supervisor.pid, signal.SIGSTOP)
        built.workspace.hub.connections.drop()
        missed = []
        for hours in (1, 7):
            slack.offset = timedelta(hours=hours)
            missed.append(await built.say(channel, f"create note{hours}.txt with {hours}"))
        slack.offset = timedelta(hours=8)
        clock.sleep(timedelta(hours=8))
        signal_family(built.supervisor.pid, signal.SIGCONT)
        assert await noticed(built, 8 * 3600, since) < NOTICED_S
        for ts in missed:
            await built.answer(channel, ts, LATE)
            assert await built.outcome(channel, ts) == "white_check_mark"
        assert [answered(built, channel, ts) for ts in (before, *missed)] == [1, 1, 1]
        assert not any(LATE in whole_text(message) for message in built.answers(channel, before))
        [line] = await built.until("the line", lambda: told(built, channel) or None)
        assert line == "👋 Back after 8 h: 2 messages sent meanwhile are answered late."
        status = await built.status()
        assert status is not None
        assert [repo["worker"]["restarts"] for repo in status["repos"]] == [0]
