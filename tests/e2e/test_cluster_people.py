"""What people see of a cluster: absences, jobs, budgets. The machines are those of `test_cluster.py`.

| case | what happens |
|---|---|
| K07 | while its host is away, a message has ⏳, and thread, App Home and dashboard say since when, until it is back |
| K08 | jobs of a host's file run by the clock, and when files change there; a killed gateway or host doubles none |
| K09 | `budget.total` counts the runs of two hosts, also for the gateway that takes over |
"""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
from pathlib import Path

import pytest
from playwright.async_api import expect

from codebutler.cluster.membership import NOTES_BUCKET
from codebutler.config.paths import Home
from tests.browser import PATIENCE_MS, page_at
from tests.e2e.house import DEADLINE_S, House, Message
from tests.e2e.test_apphome import shown
from tests.e2e.test_cluster import ASKED, LISTED, Cluster, cluster, machine
from tests.e2e.test_limits import long_day
from tests.e2e.test_matrix import QUICK
from tests.natsserver import bus
from tests.ordinary import give_repository_away
from tests.seam import until

JOBS = """jobs:
- {name: each-minute, cron: '* * * * *', prompt: list the files, label: Minute}
- {name: changed, watch: ['*.txt'], prompt: list the files, label: Changed}
"""


def headers(built: House, channel: str, label: str) -> list[Message]:
    """The messages that say that this job starts, oldest first."""
    told = built.workspace.call("conversations.history", built.workspace.bot_token, channel=channel)
    return [each for each in reversed(told["messages"]) if f"{label}*: starting…" in each["text"]]


async def test_k07_a_message_whose_host_is_away_says_so(tmp_path: Path, git_repo: Path) -> None:
    async with cluster(tmp_path, git_repo) as made:
        await made.up()
        await made.answered()
        asked = await made.built.say(made.channel, "!status")
        await made.built.answer(made.channel, asked, "is awake on laptop")
        await made.host.end(signal.SIGKILL)
        ts = await made.built.say(made.channel, ASKED)
        await made.built.answer(made.channel, ts, "Its host laptop has been away since 20")
        assert "hourglass_flowing_sand" in made.built.reactions(made.channel, ts)
        told = json.loads(await made.gateway.run("cluster", "status", "--json"))
        assert [(each["name"], each["awake"], each["pending"]) for each in told["hosts"]] == [
            ("laptop", False, 1)
        ]
        assert [(each["name"], each["worker"]["undelivered"]) for each in told["repos"]] == [("shop", 1)]
        assert "away since 20" in await made.gateway.run("cluster", "status")
        await elsewhere(made, "its host laptop has been away since 20")
        await made.host.start("host")
        await made.built.answer(made.channel, ts, LISTED)
        assert await made.built.outcome(made.channel, ts) == "white_check_mark"
        await made.built.answer(made.channel, ts, "Its host laptop was away from 20")
        assert "hourglass_flowing_sand" not in made.built.reactions(made.channel, ts)
        assert len(made.listings(ts)) == 1


async def elsewhere(made: Cluster, told: str) -> None:
    """App Home and dashboard say where the repository is, and that."""
    built, person = made.built, made.built.workspace.workspace.person
    built.workspace.dialogs.open_home(person, {"tab": "home"})
    home = await built.until(
        "a home", lambda: text if "*shop*" in (text := shown(built, person.id)) else None
    )
    assert "on laptop" in home
    assert told in home
    opened = json.loads(await made.gateway.run("dashboard", "--json"))
    async with page_at(opened["link"]) as (page, _):
        row = page.locator("#repos tr", has_text="shop")
        await expect(row).to_contain_text("shop on laptop", timeout=PATIENCE_MS)
        await expect(row).to_contain_text(told)


@pytest.mark.timeout(300)
async def test_k08_jobs_of_a_host_run_once(tmp_path: Path, git_repo: Path) -> None:
    async with cluster(tmp_path, git_repo) as made:
        await made.up()
        await made.answered()
        built, channel = made.built, made.channel
        await made.standby.start("gateway")
        await made.standby.says("On standby")
        with pytest.raises(AssertionError, match="this gateway is on standby"):
            await made.standby.run("cluster", "status")
        told = json.loads(await made.gateway.run("cluster", "status", "--json"))
        assert [each["leads"] for each in told["gateways"]] == [True, False]
        (git_repo / ".codebutler" / "jobs.yaml").write_text(JOBS)
        async with asyncio.timeout(DEADLINE_S):
            while len(json.loads(await made.gateway.run("jobs", "--json"))) < 2:  # noqa: ASYNC110 - another program
                await asyncio.sleep(0.5)
        (git_repo / "a.txt").write_text("one")
        await until(lambda: headers(built, channel, "Changed"))
        # Whatever it was doing.
        await made.gateway.end(signal.SIGKILL)
        await made.standby.says("slack connected")
        (first,) = headers(built, channel, "Changed")
        await built.answer(channel, first["ts"], LISTED)
        # A job whose last run is not over is left out: nothing runs when the host is killed.
        for each in (first, *headers(built, channel, "Minute")):
            await built.outcome(channel, each["ts"])
        await made.host.end(signal.SIGKILL)
        known = len(headers(built, channel, "Minute"))
        await until(lambda: len(headers(built, channel, "Minute")) > known, within_s=150)
        await made.host.start("host")
        last = headers(built, channel, "Minute")[known]
        await built.answer(channel, last["ts"], LISTED)
        assert await built.outcome(channel, last["ts"]) == "white_check_mark"
        minutes = [float(each["ts"]) // 60 for each in headers(built, channel, "Minute")]
        assert len(minutes) == len(set(minutes))
        assert len(headers(built, channel, "Changed")) == 1
        for each in headers(built, channel, "Minute")[: known + 1]:
            assert len(made.listings(each["ts"])) <= 1


@pytest.mark.timeout(240)
async def test_k09_a_budget_over_all_hosts(tmp_path: Path, git_repo: Path) -> None:
    other = shutil.copytree(git_repo, tmp_path / "tools")
    async with cluster(tmp_path, git_repo, "tools") as made:
        built, tools = made.built, made.built.channel_id("tools")
        tower = machine(built, made.nats, "tower", tmp_path / "tower")
        Home(tower.home).config.write_text(json.dumps({"agent": QUICK, "output": {"changes": "off"}}))
        give_repository_away(other)
        await tower.run("add-repo", str(other), "--name", "tools")
        for each in (made.gateway, made.standby):
            await each.run("config", "set", "budget.total.turnsPerDay", "2")
            await each.run("config", "set", "budget.timezone", long_day())
            await each.run("add-repo", "tower:tools", "--channel", tools)
        for each in (made.host, tower):
            await each.run("config", "set", "budget.timezone", long_day())
        await made.up()
        await tower.start("host")
        await made.standby.start("gateway")
        await made.answered()
        await built.answer(tools, await built.say(tools, ASKED), LISTED)
        await made.standby.says("On standby")

        async with bus(made.nats) as connected:
            bucket = await connected.bucket(NOTES_BUCKET)
            keys = [f"use of {name}".encode().hex() for name in ("shop", "tools")]
            async with asyncio.timeout(DEADLINE_S):
                while not all([await bucket.get(key) for key in keys]):  # noqa: ASYNC110 - NATS tells nobody
                    await asyncio.sleep(0.5)
        await made.gateway.end(signal.SIGKILL)
        await made.standby.says("slack connected")
        # It has answered both hosts, and told them what all have used.
        async with asyncio.timeout(DEADLINE_S):
            while "stopped" in await made.standby.run("status"):  # noqa: ASYNC110 - another program
                await asyncio.sleep(0.5)
        for channel in (made.channel, tools):
            refused = await built.say(channel, ASKED)
            await built.answer(channel, refused, "The total budget for today is used up: 2 of 2 runs.")
        await tower.end()
