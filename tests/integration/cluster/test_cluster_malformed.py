"""A host that sends what no host of ours would, with its real credential: the gateway repeats none of it, does not get
stuck with it, and shows no more of it than anybody reads."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest
from msgspec.structs import replace
from nats.aio.client import Client

from codebutler.cluster.fleet import PROBLEM_CHARS
from codebutler.cluster.membership import GATEWAY, calls_of, questions_of, stream_out
from codebutler.cluster.messages import CLUSTER_VERSION, HostHeartbeat, SendCall, encode
from codebutler.domain.message import said
from codebutler.domain.model import Post
from codebutler.supervisor.supervisor import RepoRow, TurnsRow, WorkerRow
from tests.integration.cluster.test_cluster_attacks import member, thief
from tests.natsserver import nats_server, patiently
from tests.seam import gateway, host, remote, until

DEADLINE_S = 10.0
LOGGED_CHARS = 1000
LONG = "x" * 900_000
WORKER, TURNS = WorkerRow(state="running", pid=1, restarts=0), TurnsRow(running=0, queued=0, waiting=0)
ROW = RepoRow(name="tools", path="", channel_id="C02", worker=WORKER, turns=TURNS)


@pytest.mark.parametrize(
    "call",
    [
        "c1\r\nNats-Expected-Stream: ANOTHER",
        "c1\r\nNats-Expected-Last-Sequence: 99",
        "c1\r\nNats-Rollup: all",
        LONG,
    ],
    ids=["stream", "sequence", "rollup", "long"],
)
async def test_the_name_of_a_call_is_no_header(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, call: str
) -> None:
    """The answer has it in a header, and is published until the server has it."""
    async with (
        nats_server(tmp_path) as server,
        gateway(server) as opened,
        host(server, "tower") as tower,
        member(thief(server)) as client,
        member(server.membership(GATEWAY)) as admin,
    ):
        opened.hosts.add(remote("tools", "C02", "tower"))
        await patiently(lambda: admin.jetstream().stream_info(stream_out("tower")))
        await tower.spawner.worker("tools")
        good = SendCall(
            epoch=tower.standing.epoch,
            call="c9",
            repo="tools",
            op_id="op1",
            operation=Post(message=said("mine")),
            unsure=False,
        )
        caplog.set_level(logging.WARNING)
        for body in (encode(replace(good, call=call)), encode(replace(good, op_id="op2"))):
            await client.jetstream().publish(calls_of("tower", "tools"), body, timeout=DEADLINE_S)
        await until(lambda: "op2" in [op_id for _, op_id, _, _ in opened.services.sent])
        await until_empty(admin, stream_out("tower"))
        assert [op_id for _, op_id, _, _ in opened.services.sent] == ["op2"]
        assert [line for line in caplog.messages if "trying again" in line] == []
        assert max(map(len, caplog.messages)) < LOGGED_CHARS


async def until_empty(admin: Client, stream: str) -> None:
    """Everything that was sent is done with."""
    async with asyncio.timeout(DEADLINE_S):
        while (await admin.jetstream().stream_info(stream)).state.messages:  # noqa: ASYNC110 - the server's state
            await asyncio.sleep(0.05)


async def test_what_a_host_says_of_itself_is_bounded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        nats_server(tmp_path) as server,
        gateway(server) as opened,
        member(thief(server)) as client,
    ):
        opened.hosts.add(remote("tools", "C02", "tower"))
        caplog.set_level(logging.WARNING)
        row = replace(ROW, problem=LONG[:400_000], doubt=LONG[:400_000])
        beat = HostHeartbeat(epoch=0, version=CLUSTER_VERSION, instance="i", rows=(row,))
        await client.request(questions_of("tower"), encode(beat), timeout=DEADLINE_S)
        (shown,) = opened.hosts.rows()
        assert len(shown.problem) == len(shown.doubt) == PROBLEM_CHARS
        for number in range(50):
            changing = replace(beat, rows=(), version=CLUSTER_VERSION + 1, release=f"9.{number}")
            await client.request(questions_of("tower"), encode(changing), timeout=DEADLINE_S)
        await client.publish(questions_of("tower"), encode(replace(beat, rows=(), release=LONG)))
        await client.request(questions_of("tower"), encode(replace(beat, rows=())), timeout=DEADLINE_S)
        assert len(caplog.messages) == 1
        assert "too new for its gateway" in caplog.messages[0]
