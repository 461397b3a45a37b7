"""From one NATS server to three, with what it has: events that wait, notes, and epochs that go on."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from codebutler.cluster.streams import copy_streams
from codebutler.config.chats import SlackSection
from codebutler.config.schema import Config
from codebutler.domain.clock import SystemClock
from codebutler.domain.errors import CodeButlerError
from tests.natsserver import bus, nats_cluster, nats_server, whole
from tests.seam import gateway, host, remote, until
from tests.workers.services import entry

CLOCK = SystemClock()
WAITING = 50


@pytest.mark.timeout(300)
async def test_three_servers_go_on_with_what_one_had(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    async with nats_server(tmp_path / "one") as one, nats_cluster(tmp_path) as three:
        async with bus(three) as connected:  # what the test made to see that they are ready
            await connected._jetstream.delete_stream("KV_CB_READY")
        async with gateway(one) as first:
            first.hosts.add(remote())
            async with host(one) as here:
                spawner = here.spawner
                first.hosts.deliver(entry(1, "before"))
                await until(lambda: here.taken("before"))
                with pytest.raises(CodeButlerError, match="stop `codebutler host` on laptop first"):
                    await copy_streams(one.membership("gateway"), three.membership("gateway"), CLOCK)
            for seq in range(2, WAITING + 2):
                first.hosts.deliver(entry(seq, f"message {seq}"))
            await until(lambda: len(first.services.settled) == WAITING + 1)
            await first.notes.keep_note("due", "tomorrow")
            epoch = first.authority.epoch
            with pytest.raises(CodeButlerError, match="a gateway is active, or has just stopped"):
                await copy_streams(one.membership("gateway"), three.membership("gateway"), CLOCK)
        found = await copy_streams(one.membership("gateway"), three.membership("gateway"), CLOCK)
        assert found["CB_IN_laptop"] == WAITING
        await one.kill()
        async with gateway(three, ttl_s=60) as second:
            assert second.authority.epoch > epoch
            assert await second.notes.note("due") == "tomorrow"
            await second.notes.keep_note("due", "today")
            allowed = Config(slack=SlackSection(allowed_users=("U01",)))
            second.hosts.add(
                replace(remote(), config=allowed)
            )  # it is asked about an earlier gateway's events
            await whole(three)
            await three.servers[0].wipe()
            async with host(three, spawner=spawner) as there:
                await until(lambda: there.taken(f"message {WAITING + 1}"), within_s=120)
                second.hosts.deliver(entry(WAITING + 2, "after"))
                await until(lambda: there.taken("after"), within_s=120)
        assert spawner.disk().texts == [
            "before",
            *(f"message {seq}" for seq in range(2, WAITING + 2)),
            "after",
        ]
