"""From one NATS server to three, as `docs/how-to/use-several-machines.md` says it, command by command."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from codebutler.cluster.bus import Bus
from codebutler.cluster.membership import read_membership
from codebutler.cluster.server import ROUTES_APART
from codebutler.config.paths import Home
from tests.integration.cli.test_cluster_command import CLOCK, Machines, serving
from tests.natsserver import free_port, patiently


@pytest.mark.timeout(120)
async def test_the_steps_from_one_server_to_three(tmp_path: Path) -> None:
    machines, home = Machines(tmp_path), Home(tmp_path / "gateway")
    await machines.run("gateway", "cluster", "create", "--server", f"127.0.0.1:{free_port()}")
    async with AsyncExitStack() as servers:
        before = read_membership(home, gateway=True)
        async with serving(home.root / "nats"), Bus.connected(before, CLOCK, 20) as bus:
            await bus.ensure_stream("CB_IN_laptop", "cb.in.laptop.>", 2**20)
            await bus.publish("cb.in.laptop.ev.shop", b"hello", "1")
        one = home.root / "one"
        one.mkdir()
        for name in ("cluster.json", "cluster-authority.json", "nats"):
            (home.root / name).rename(one / name)
        await servers.enter_async_context(serving(one / "nats"))
        named = [each for _ in range(3) for each in ("--server", f"127.0.0.1:{free_port(ROUTES_APART)}")]
        await machines.run("gateway", "cluster", "create", *named)
        for folder in (home.root / "nats").iterdir():
            await servers.enter_async_context(serving(folder))
        missing = await machines.run("gateway", "cluster", "copy", "two/cluster.json", check=False)
        assert "two/cluster.json cannot be read: no such file" in missing
        told = await patiently(lambda: machines.run("gateway", "cluster", "copy", str(one / "cluster.json")))
        assert "Copied one stream with 1 message." in told
        again = await machines.run("gateway", "cluster", "copy", str(one / "cluster.json"), check=False)
        assert "nothing was copied: the new servers already have streams (CB_IN_laptop)" in again
        async with Bus.connected(read_membership(home, gateway=True), CLOCK, 20) as bus:
            assert await bus.streams.spread() == 0  # they are on three servers from the start
            assert await patiently(lambda: bus.oldest_message("CB_IN_laptop", "cb.in.laptop.>")) == (
                1,
                b"hello",
            )
