"""A host that sends without end, with its real credential, against the gateway and a real server: the other hosts go
on, and the gateway goes on leading."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from pathlib import Path

import pytest

from codebutler.cluster.membership import news_of, questions_of
from codebutler.cluster.messages import (
    CLUSTER_VERSION,
    ClusterCodec,
    FetchQuestion,
    FilePiece,
    HostHeartbeat,
    Reply,
    RequestFailed,
    encode,
)
from codebutler.cluster.questions import DOWNLOADS
from tests.flooder import flooding
from tests.integration.cluster.test_cluster_attacks import member, thief
from tests.natsserver import nats_server
from tests.seam import gateway, host, remote, until
from tests.workers.services import entry

TTL_S = 15.0
LOGGED = 100
DEADLINE_S = 60.0
EVENTS = 8
PIECE = b"x" * 2**16
FLOODS = {
    "garbage as questions": (questions_of("tower"), b"x"),
    "beats": (questions_of("tower"), encode(HostHeartbeat(epoch=0, version=CLUSTER_VERSION, instance="i"))),
    "garbage as news": (news_of("tower"), b"x"),
    "large messages": (news_of("tower"), b"x" * 2**19),
}


@pytest.mark.parametrize("flood", FLOODS)
async def test_a_flood_of_one_host_holds_up_nobody_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, flood: str
) -> None:
    caplog.set_level(logging.WARNING)
    async with nats_server(tmp_path) as server, gateway(server, TTL_S) as opened, host(server) as laptop:
        opened.hosts.add(remote())
        opened.hosts.add(remote("tools", "C02", "tower"))
        await laptop.spawner.worker()
        async with flooding(thief(server), *FLOODS[flood]):
            for number in range(1, EVENTS):
                opened.hosts.deliver(entry(number, f"text {number}"))
                await until(partial(laptop.taken, f"text {number}"), within_s=DEADLINE_S)
                await asyncio.sleep(1)  # the lease has to be renewed meanwhile
                assert opened.authority.is_held
                await until(lambda: opened.authority.hosts.is_awake("laptop"), within_s=DEADLINE_S)
        assert len(caplog.messages) < LOGGED
        assert any("because it sends too much: cb." in line for line in caplog.messages)
        async with host(server, "tower") as tower:
            await asyncio.wait_for(tower.spawner.worker("tools"), DEADLINE_S)


async def test_files_that_nobody_fetches_to_the_end_are_few(tmp_path: Path) -> None:
    """Each waits in the gateway's memory for its next question."""
    replies: ClusterCodec[Reply] = ClusterCodec(Reply)
    async with (
        nats_server(tmp_path) as server,
        gateway(server) as opened,
        host(server, "tower") as tower,
        member(thief(server)) as client,
    ):
        opened.hosts.add(remote("tools", "C02", "tower"))
        opened.services.files["F1"] = (PIECE,) * 3
        await tower.spawner.worker("tools")

        async def asked(request: str, number: int = 0) -> Reply:
            question = FetchQuestion(
                epoch=tower.standing.epoch, repo="tools", request=request, file_id="F1", number=number
            )
            message = await client.request(questions_of("tower"), encode(question), timeout=DEADLINE_S)
            return replies.decode(message.data)

        found = await asyncio.gather(*(asked(f"r{number}") for number in range(DOWNLOADS + 10)))
        assert sum(isinstance(each, FilePiece) for each in found) == DOWNLOADS
        assert [each.code for each in found if isinstance(each, RequestFailed)] == ["wait"] * 10
        for number in (1, 2, 3):
            piece = await asked("r0", number)
        assert isinstance(piece, FilePiece)
        assert piece.last
        assert isinstance(await asked("another"), FilePiece)
