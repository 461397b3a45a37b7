"""A repository moves between hosts, as people see it. The machines are those of `test_cluster.py`.

| case | what happens |
|---|---|
| K12 | `!move tower` while the gateway is killed: the standby finishes it, and each message is answered once |
| K13 | a host sleeps through `!move tower force`: the tower answers what waited, and the host wakes fenced |
"""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from codebutler.config.paths import Home
from codebutler.config.registry import Registry
from tests.e2e.house import DEADLINE_S, whole_text
from tests.e2e.test_cluster import ASKED, Cluster, Machine, cluster, machine
from tests.e2e.test_matrix import QUICK
from tests.ordinary import give_repository_away

MOVED = "is now served by"
ON_TOWER, ON_LAPTOP = "only-on-tower.txt", "only-on-laptop.txt"


@asynccontextmanager
async def two_hosts(tmp_path: Path, git_repo: Path) -> AsyncIterator[tuple[Cluster, Machine]]:
    """Each has the repository, and a file of its own in it."""
    (tmp_path / "other").mkdir()
    other = shutil.copytree(git_repo, tmp_path / "other" / "shop")
    (git_repo / ON_LAPTOP).touch()
    (other / ON_TOWER).touch()
    async with cluster(tmp_path, git_repo) as made:
        tower = machine(made.built, made.nats, "tower", tmp_path / "tower")
        Home(tower.home).config.write_text(json.dumps({"agent": QUICK, "output": {"changes": "off"}}))
        give_repository_away(other)
        await tower.run("add-repo", str(other), "--name", "shop")
        await made.up()
        await tower.start("host")
        try:
            await has_it(made, "tower")
            yield made, tower
        finally:
            await tower.end(signal.SIGKILL)


async def has_it(made: Cluster, host: str) -> None:
    """The gateway has heard that the repository is on that host, too."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            told = json.loads(await made.gateway.run("cluster", "status", "--json"))
            if any(each["name"] == host and "shop" in (each["has"] or ()) for each in told["hosts"]):
                return
            await asyncio.sleep(0.5)


async def told(made: Cluster, text: str) -> None:
    """Somebody says so in the channel."""

    def look() -> bool:
        read = made.built.workspace.call(
            "conversations.history", made.built.workspace.bot_token, channel=made.channel
        )
        return any(text in whole_text(each) for each in read["messages"])

    await made.built.until(text, look)


@pytest.mark.timeout(240)
async def test_k12_a_move_outlives_its_gateway(tmp_path: Path, git_repo: Path) -> None:
    async with two_hosts(tmp_path, git_repo) as (made, _tower):
        built, channel = made.built, made.channel
        first = await made.answered()
        await built.answer(channel, first, ON_LAPTOP)
        await made.standby.start("gateway")
        await made.standby.says("On standby")
        listed = await built.say(channel, "!move")
        await built.answer(channel, listed, "tower: also has it")
        moving = await built.say(channel, "!move tower")
        await built.answer(channel, moving, "The channel gets a message when it is done")
        asked = await built.say(channel, ASKED)
        await made.gateway.end(signal.SIGKILL)
        await made.standby.says("slack connected")
        await told(made, f"{MOVED} tower")
        await built.answer(channel, asked, ON_TOWER)
        assert await built.outcome(channel, asked) == "white_check_mark"
        assert len(made.listings(asked)) == 1
        assert Registry(Home(made.standby.home)).load()[0].path == "tower:shop"
        # A thread that began on the laptop goes on, without what that knew.
        again = await built.say(channel, ASKED, thread_ts=first)
        await built.answer(channel, first, ON_TOWER)
        assert await built.outcome(channel, again) == "white_check_mark"
        assert "from tower to laptop" in await made.standby.run("cluster", "move", "shop", "laptop")
        await told(made, f"{MOVED} laptop")
        last = await made.answered()
        await built.answer(channel, last, ON_LAPTOP)


@pytest.mark.timeout(240)
async def test_k13_a_host_that_slept_through_a_move_is_fenced(tmp_path: Path, git_repo: Path) -> None:
    async with two_hosts(tmp_path, git_repo) as (made, _tower):
        built, channel = made.built, made.channel
        await made.answered()
        assert made.host.process is not None
        made.host.process.send_signal(signal.SIGSTOP)
        asked = await built.say(channel, ASKED)
        await built.answer(channel, asked, "Its host laptop has been away since 20")
        refused = await built.say(channel, "!move tower")
        await built.answer(channel, refused, "`!move tower force` does not wait for it")
        await built.say(channel, "!move tower force")
        await told(made, f"{MOVED} tower")
        last = await made.answered()
        await built.answer(channel, last, ON_TOWER)
        made.host.process.send_signal(signal.SIGCONT)
        after = await made.answered()
        await built.answer(channel, after, ON_TOWER)

        def is_dealt_with() -> bool:
            """By the tower, which asks if the laptop's connection had taken it from the server already."""
            said = "".join(map(whole_text, built.answers(channel, asked)))
            return ON_TOWER in said or "Run it?" in said

        await built.until("the message that waited", is_dealt_with)
        assert ON_LAPTOP not in "".join(map(whole_text, built.answers(channel, asked)))
        for each in (asked, last, after):
            assert len(made.listings(each)) <= 1
