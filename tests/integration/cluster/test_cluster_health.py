"""What `doctor` reads of three real servers, some of which are set up wrongly."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import nats
import pytest
from nats.aio.client import Client
from nats.errors import Error as NatsError

from codebutler.cluster.health import ServerFacts, judge_servers, judge_streams, read_servers, read_streams
from codebutler.cluster.server import MAX_PAYLOAD_BYTES
from codebutler.domain.clock import SystemClock
from codebutler.domain.errors import CodeButlerError
from tests.clock import ManualClock
from tests.programs import NATS_SERVER_VERSION, require

DEADLINE_S = 90.0
NAMES = ("n1", "n2", "n3")


class Nodes:
    """Three servers on loopback: the first syncs now and then, the second takes small messages only."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.processes: list[asyncio.subprocess.Process] = []
        sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(6)]
        ports: list[int] = [each.getsockname()[1] for each in sockets]
        for each in sockets:
            each.close()
        self.ports, self.routes = ports[:3], ports[3:]

    def config(self, number: int) -> dict[str, object]:
        place = str(self._directory / NAMES[number])
        return {
            "server_name": NAMES[number],
            "listen": f"127.0.0.1:{self.ports[number]}",
            "max_payload": 2**20 if number == 1 else MAX_PAYLOAD_BYTES,
            "jetstream": {"store_dir": place, "sync_interval": "30s" if number == 0 else "always"},
            "accounts": {
                "A": {"jetstream": "enabled", "users": [{"user": "gateway", "password": "p"}]},
                "S": {"users": [{"user": "system", "password": "p"}]},
            },
            "system_account": "S",
            "cluster": {
                "name": "test",
                "listen": f"127.0.0.1:{self.routes[number]}",
                "routes": [f"nats-route://127.0.0.1:{port}" for port in self.routes],
            },
        }

    async def start(self) -> None:
        for number, name in enumerate(NAMES):
            (self._directory / f"{name}.conf").write_text(json.dumps(self.config(number)))
            with (self._directory / f"{name}.log").open("wb") as log:
                self.processes.append(
                    await asyncio.create_subprocess_exec(
                        str(require("nats-server")), "-c", f"{self._directory / name}.conf", stderr=log
                    )
                )

    async def kill(self, number: int) -> None:
        if self.processes[number].returncode is None:
            self.processes[number].kill()
        await self.processes[number].wait()

    @asynccontextmanager
    async def client(self, user: str) -> AsyncIterator[Client]:
        url = f"nats://127.0.0.1:{self.ports[0]}"
        client = await nats.connect(
            url, user=user, password="p", max_reconnect_attempts=-1, reconnect_time_wait=1
        )
        try:
            yield client
        finally:
            await client.close()


@asynccontextmanager
async def nodes(directory: Path) -> AsyncIterator[Nodes]:
    """They answer, have found each other, and keep one stream on three and one on one of them."""
    made = Nodes(directory)
    await made.start()
    try:
        async with asyncio.timeout(DEADLINE_S):
            while not await _has_streams(made):  # noqa: ASYNC110 - the servers tell nobody
                await asyncio.sleep(0.2)
        yield made
    finally:
        for number in range(len(made.processes)):
            await made.kill(number)


async def _has_streams(made: Nodes) -> bool:
    try:
        async with made.client("gateway") as client:
            jetstream = client.jetstream(timeout=5)
            await jetstream.add_stream(name="CB_IN_laptop", subjects=["cb.in.laptop.>"], num_replicas=3)
            await jetstream.add_stream(name="CB_OUT_laptop", subjects=["cb.out.laptop.>"], num_replicas=1)
    except (NatsError, OSError):
        return False
    return True


async def servers(made: Nodes, wanted: int = 3) -> tuple[ServerFacts, ...]:
    """A busy machine's servers may take longer to answer than `doctor` waits."""
    found: tuple[ServerFacts, ...] = ()
    async with made.client("system") as client, asyncio.timeout(DEADLINE_S):
        while len(found) != wanted:
            found = await read_servers(client, SystemClock(), 3)
    return found


async def test_what_three_servers_say_and_what_is_wrong_with_two(tmp_path: Path) -> None:
    async with nodes(tmp_path) as made:
        found = await servers(made)
        assert [each.name for each in found] == list(NAMES)
        assert {each.version for each in found} == {NATS_SERVER_VERSION}
        assert [each.is_synced for each in found] == [False, True, True]
        levels = [(each.subject, each.level) for each in judge_servers(found, 3)]
        assert levels == [("n1", "FAIL"), ("n2", "FAIL"), ("n3", "ok")]
        async with made.client("system") as client:
            slow = ManualClock(datetime.now(UTC) - timedelta(seconds=61))
            told = [each.text for each in judge_servers(await read_servers(client, slow, 3), 3)]
        assert any("ahead of this machine's" in each for each in told)
        async with made.client("gateway") as client:
            kept = {each.name: each for each in await read_streams(client)}
            assert {name: each.replicas for name, each in kept.items()} == {
                "CB_IN_laptop": 3,
                "CB_OUT_laptop": 1,
            }
            found_faults = {each.subject: each.text for each in judge_streams([*kept.values()], 3, 3)}
            assert "kept on 1 of 3 servers" in found_faults["CB_OUT_laptop"]
        await made.kill(2)
        first, *_ = judge_servers(await servers(made, 2), 3)
        assert first.text.startswith("2 of 3 answer (n1, n2)")
        async with made.client("gateway") as client, asyncio.timeout(DEADLINE_S):
            while not await _misses(client, "n3"):  # noqa: ASYNC110 - the servers tell nobody
                await asyncio.sleep(0.2)


async def _misses(client: Client, server: str) -> bool:
    """Nobody answers while the servers elect another leader."""
    with suppress(CodeButlerError):
        return any(server in each.behind for each in await read_streams(client))
    return False


async def test_who_may_not_ask_hears_why(tmp_path: Path) -> None:
    async with nodes(tmp_path) as made:
        async with made.client("system") as client:
            with pytest.raises(CodeButlerError, match="streams cannot be listed"):
                await read_streams(client)
        async with made.client("gateway") as client:
            assert await read_servers(client, SystemClock(), 1) == ()
