"""What runs on another machine cost and how long they took, as the gateway knows it. The machines are those of
`test_cluster.py`.

| case | what happens |
|---|---|
| K20 | a run on a host is in the gateway's ledger, `!costs`, metrics and trace; the ledger has it when all are gone |
| K21 | the gateway that takes over has the runs of before |
"""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import httpx

from tests.e2e.house import DEADLINE_S, whole_text
from tests.e2e.test_cluster import Cluster, Machine, cluster
from tests.e2e.test_dashboard import free_port
from tests.e2e.test_tracing import PARTS
from tests.integration.web.test_metrics import samples
from tests.otlpserver import CollectorServer

REPO = ("repo", "shop")


def configured(machine: Machine, **given: Any) -> None:
    config = machine.home / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | given))


async def ledger(machine: Machine) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(await machine.run("ledger", "--json"))["rows"]
    return found


async def known(machine: Machine, runs: int) -> list[dict[str, Any]]:
    """The rows, once there are so many."""
    async with asyncio.timeout(DEADLINE_S):
        while len(found := await ledger(machine)) != runs:
            pass
    return found


def weekly(made: Cluster) -> bool:
    told = made.built.workspace.call(
        "conversations.history", made.built.workspace.bot_token, channel=made.channel
    )
    return any(whole_text(message).startswith("📊") for message in told["messages"])


async def test_k20_a_run_on_a_host_is_known_at_the_gateway(tmp_path: Path, git_repo: Path) -> None:
    async with CollectorServer() as collector, cluster(tmp_path, git_repo) as made:
        port = free_port()
        configured(
            made.gateway,
            dashboard={"port": port},
            metrics={"allow": ["127.0.0.1"]},
            tracing={"endpoint": collector.url},
            ledger={"weekly": "mon 09:00"},
        )
        await made.up()
        ts = await made.built.say(made.channel, "create made.txt with one")
        assert await made.built.outcome(made.channel, ts) == "white_check_mark"
        spans = await collector.until(*PARTS)
        assert len({span.trace for span in spans}) == 1
        (row,) = await known(made.gateway, 1)
        assert (row["repo"], row["agent"], row["outcome"]) == ("shop", "rehearsal", "done")
        assert row["user"] == made.built.workspace.workspace.person.id
        assert row["channel"] == made.channel
        (own,) = await ledger(made.host)
        assert row == own, "as on its own machine"
        asked = await made.built.say(made.channel, "!costs")
        await made.built.answer(made.channel, asked, "1 run")
        await made.built.until_status(lambda status: status["repos"][0]["today"]["runs"] == 1)
        async with httpx.AsyncClient() as client:
            found = samples((await client.get(f"http://127.0.0.1:{port}/metrics")).text)
        assert found["codebutler_turns_total", (("agent", "rehearsal"), ("outcome", "done"), REPO)] == 1
        assert found["codebutler_worker_state", (REPO, ("state", "running"))] == 1
        assert found["codebutler_runs_today", (REPO,)] == 1
        assert found["codebutler_tokens_today", (REPO,)] > 0
        await made.gateway.run("jobs", "run", "weekly-costs")
        await made.built.until("the costs of the week", lambda: weekly(made))
        await made.host.end(signal.SIGKILL)
        asked = await made.built.say(made.channel, "!costs 30")
        await made.built.answer(made.channel, asked, "1 run")
        await made.gateway.end()
        assert await ledger(made.gateway) == [row]


async def test_k21_the_next_gateway_has_the_runs_of_before(tmp_path: Path, git_repo: Path) -> None:
    async with cluster(tmp_path, git_repo) as made:
        await made.up()
        await made.answered()
        (row,) = await known(made.gateway, 1)
        await made.standby.start("gateway")
        await made.standby.says("On standby")
        assert await ledger(made.standby) == []
        await made.gateway.end(signal.SIGKILL)
        await made.standby.says("slack connected")
        assert await known(made.standby, 1) == [row]
        await made.answered()
        assert len(await known(made.standby, 2)) == 2
