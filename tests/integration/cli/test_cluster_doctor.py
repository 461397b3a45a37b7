"""`codebutler doctor` over three servers, as `codebutler cluster create` sets them up, and set up wrongly."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path

from codebutler.cluster.bus import Bus
from codebutler.cluster.health import examine_cluster
from codebutler.cluster.membership import read_membership
from codebutler.config.paths import Home
from codebutler.domain.clock import SystemClock
from codebutler.protocol.messages import Finding
from tests.integration.cli.test_cluster_command import Machines, serving
from tests.natsserver import free_port

CLOCK = SystemClock()
DEADLINE_S = 90.0


async def findings(home: Path) -> dict[str, Finding]:
    """By what they are about."""
    return {each.subject: each async for each in examine_cluster(Home(home), CLOCK)}


async def found(home: Path, level: str, *subjects: str) -> dict[str, Finding]:
    """Once the servers have found each other: until then nobody answers for all of them."""
    latest: dict[str, Finding] = {}
    async with asyncio.timeout(DEADLINE_S):
        while not all(subject in latest and latest[subject].level == level for subject in subjects):
            latest = await findings(home)
    return latest


async def test_three_servers_as_they_are_made_and_one_with_a_changed_setting(tmp_path: Path) -> None:
    machines, ports = Machines(tmp_path), [free_port() for _ in range(3)]
    names = [f"127.0.0.1-{port}" for port in ports]
    given = [word for port in ports for word in ("--server", f"127.0.0.1:{port}")]
    await machines.run("gateway", "cluster", "create", *given)
    gateway = tmp_path / "gateway"
    folders = [gateway / "nats" / name for name in names]
    async with AsyncExitStack() as running:
        for folder in folders[:2]:
            await running.enter_async_context(serving(folder))
        async with serving(folders[2]):
            await found(gateway, "ok", *names)
            async with Bus.connected(read_membership(Home(gateway), gateway=True), CLOCK) as bus:
                await bus.ensure_stream("CB_IN_laptop", "cb.in.laptop.>", 2**20)
            well = await found(gateway, "ok", "streams")
            assert [each for each in well.values() if each.level != "ok"] == []
            assert well["streams"].text == "1, each complete on 3 of 3 servers"
            assert "syncs each message" in well[names[0]].text
            told = await machines.run("gateway", "cluster", "invite", "laptop")
            token = next(line for line in told.splitlines() if line.startswith("cbj1."))
            await machines.run("laptop", "host", "join", typed=token)
            assert (await findings(tmp_path / "laptop"))["laptop"].level == "ok"
        gone = await found(gateway, "warn", "servers", "CB_IN_laptop")
        assert gone["servers"].text.startswith("2 of 3 answer")
        settings = json.loads((folders[2] / "nats.conf").read_text())
        settings["jetstream"]["sync_interval"] = "2m"
        (folders[2] / "nats.conf").write_text(json.dumps(settings))
        async with serving(folders[2]):
            wrong = await found(gateway, "FAIL", names[2])
            assert "set `sync_interval: always`" in wrong[names[2]].text
            shown = json.loads(await machines.run("gateway", "doctor", "--json", check=False))
            assert {"area": "cluster", "level": "FAIL"}.items() <= next(
                each for each in shown["findings"] if each["subject"] == names[2]
            ).items()
    assert (await findings(gateway))["servers"].text.startswith("cannot connect to nats://127.0.0.1")


async def test_a_copy_without_the_clusters_keys_checks_what_it_may(tmp_path: Path) -> None:
    machines, port = Machines(tmp_path), free_port()
    await machines.run("gateway", "cluster", "create", "--server", f"127.0.0.1:{port}")
    async with serving(tmp_path / "gateway" / "nats"):
        (tmp_path / "gateway" / "cluster-authority.json").rename(tmp_path / "kept")
        told = await found(tmp_path / "gateway", "warn", "servers", "streams")
        assert "only at the gateway where the cluster was created" in told["servers"].text
        assert "none yet" in told["streams"].text
