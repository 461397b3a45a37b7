"""What the credential of one host can do to another's repositories, with the permissions that we configure: nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import nats
import pytest
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.errors import NotFoundError

from codebutler.cluster.bus import Bus
from codebutler.cluster.membership import ClusterMembership
from codebutler.cluster.messages import Beat, FetchQuestion, SendCall, ThreadQuestion, encode
from codebutler.cluster.subjects import (
    GATEWAY,
    calls_of,
    consumer_of,
    events_to,
    orders_to,
    questions_of,
    stream_in,
    stream_out,
)
from codebutler.domain.clock import SystemClock
from codebutler.domain.errors import ConfigError
from codebutler.domain.message import said
from codebutler.domain.model import Post
from codebutler.protocol.messages import Send, Sent
from tests.natsserver import NatsServer, nats_server
from tests.seam import DEADLINE_S, gateway, host, remote, until
from tests.workers.services import entry


@asynccontextmanager
async def thief(server: NatsServer) -> AsyncIterator[tuple[Client, list[str]]]:
    """A client with tower's password, and what the server refuses it."""
    refused: list[str] = []

    async def heard(error: Exception) -> None:
        refused.append(str(error))

    client = await nats.connect(
        server.url,
        user="tower",
        password="secret of tower",
        inbox_prefix="_INBOX_tower",
        error_cb=heard,
        allow_reconnect=False,
    )
    try:
        yield client, refused
    finally:
        await client.close()


@asynccontextmanager
async def admin(server: NatsServer) -> AsyncIterator[JetStreamContext]:
    client = await nats.connect(server.url, user="gateway", password="secret of gateway")
    try:
        yield client.jetstream()
    finally:
        await client.close()


async def made(jetstream: JetStreamContext, stream: str) -> None:
    """The gateway has begun to listen there."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            with contextlib.suppress(NotFoundError):
                await jetstream.consumer_info(stream, GATEWAY)
                return
            await asyncio.sleep(0.05)


async def came(jetstream: JetStreamContext, stream: str) -> None:
    """The attack got past the permissions: what makes it harmless comes after them."""
    async with asyncio.timeout(DEADLINE_S):
        while not (await jetstream.stream_info(stream)).state.last_seq:  # noqa: ASYNC110 - the server tells nobody
            await asyncio.sleep(0.05)


def forged(repo: str, host_epoch: int = 10**9) -> bytes:
    call = SendCall(
        epoch=host_epoch,
        call="c1",
        repo=repo,
        op_id="op1",
        operation=Post(message=said("stolen")),
        unsure=False,
    )
    return encode(call)


async def test_a_host_may_publish_and_hear_only_what_is_its_own(tmp_path: Path) -> None:
    async with nats_server(tmp_path) as server, gateway(server) as opened, host(server) as here:
        opened.hosts.add(remote())
        await here.spawner.worker()
        async with thief(server) as (client, refused):
            published = (
                calls_of("laptop", "shop"),
                events_to("laptop", "shop"),
                orders_to("laptop"),
                questions_of("laptop"),
                "cb.news.laptop",
                "$KV.CB_HOSTS.laptop",
                "$KV.CB_LEADER.gateway",
                "$JS.API.STREAM.CREATE.STOLEN",
                f"$JS.API.STREAM.PURGE.{stream_in('tower')}",
                f"$JS.API.STREAM.MSG.GET.{stream_in('tower')}",
                f"$JS.API.STREAM.DELETE.{stream_out('laptop')}",
                f"$JS.API.CONSUMER.CREATE.{stream_in('tower')}.mine",
                f"$JS.API.CONSUMER.DURABLE.CREATE.{stream_in('laptop')}.mine",
                f"$JS.API.CONSUMER.MSG.NEXT.{stream_in('laptop')}.{consumer_of('shop')}",
                "$JS.API.DIRECT.GET.KV_CB_HOSTS.$KV.CB_HOSTS.laptop",
                f"$JS.ACK.{stream_in('laptop')}.{consumer_of('shop')}.1.1.1.1.1",
                "_INBOX_laptop.anything",
                "_INBOX_gateway.anything",
            )
            for subject in published:
                await client.publish(subject, b"{}")
            heard = (
                "cb.>",
                "cb.in.laptop.>",
                "cb.do.laptop",
                "_INBOX_laptop.>",
                "_INBOX_gateway.>",
                "$JS.>",
                ">",
            )
            for subject in heard:
                await client.subscribe(subject)
            await until(lambda: len(refused) == len(published) + len(heard))
            await client.flush()


async def test_a_host_that_speaks_for_anothers_repository_is_refused(tmp_path: Path) -> None:
    async with nats_server(tmp_path) as server, gateway(server) as opened:
        opened.hosts.add(remote())
        opened.hosts.add(remote("tools", "C02", "tower"))
        async with host(server) as laptop, host(server, "tower") as tower, thief(server) as (client, _):
            worker = await laptop.spawner.worker()
            await tower.spawner.worker("tools")
            epoch = tower.standing.epoch
            await client.publish(calls_of("tower", "shop"), forged("shop", epoch))
            for question in (
                FetchQuestion(epoch=epoch, repo="shop", request="r1", file_id="F1", number=0),
                ThreadQuestion(epoch=epoch, repo="shop", thread="1.0", before="2.0"),
            ):
                reply = await client.request(questions_of("tower"), encode(question), timeout=5)
                assert b"is not served by this host" in reply.data
            worker.say(Send(op_id="op9", operation=Post(message=said("mine"))))
            await until(lambda: Sent(op_id="op9", ref="posted-op9") in worker.heard)
            assert [op_id for _, op_id, _, _ in opened.services.sent] == ["op9"]


async def test_a_reply_that_is_sent_to_anothers_subject_changes_nothing(tmp_path: Path) -> None:
    """The server, and the gateway, answer to the subject that a client names: past its permissions."""
    async with nats_server(tmp_path) as server, gateway(server) as opened:
        opened.hosts.add(remote())
        opened.hosts.add(remote("tools", "C02", "tower"))
        async with host(server) as laptop, thief(server) as (client, _), admin(server) as jetstream:
            await laptop.spawner.worker()
            for stream in (stream_out("laptop"), stream_out("tower")):
                await made(jetstream, stream)
            victim = events_to("laptop", "shop")
            # An event of its own, fetched into the stream of the other.
            opened.hosts.deliver(entry(1, "for tools", channel="C02"))
            await until(lambda: opened.services.settled == [1])
            fetch = f"$JS.API.CONSUMER.MSG.NEXT.{stream_in('tower')}.{consumer_of('tools')}"
            await client.publish(fetch, json.dumps({"batch": 1}).encode(), reply=victim)
            # An answer of the gateway, and the acknowledgement of a publication of its own.
            beat = Beat(epoch=0, version=1, instance="i")
            await client.publish(questions_of("tower"), encode(beat), reply=victim)
            await client.publish(
                calls_of("tower", "tools"), forged("tools"), reply=calls_of("laptop", "shop")
            )
            for stream in (stream_in("laptop"), stream_out("laptop")):
                await came(jetstream, stream)
            opened.hosts.deliver(entry(2, "for shop"))
            await until(lambda: laptop.taken("for shop"), within_s=60)
            assert laptop.spawner.disk().texts == ["for shop"]
            assert opened.services.sent == []


async def test_a_host_hears_of_no_repository_but_its_own(tmp_path: Path) -> None:
    async with nats_server(tmp_path) as server, gateway(server) as opened:
        opened.hosts.add(remote())
        opened.hosts.add(remote("tools", "C02", "tower"))
        async with thief(server) as (client, _):
            beat = encode(Beat(epoch=0, version=1, instance="i"))
            reply = await client.request(questions_of("tower"), beat, timeout=5)
            assert b"tools" in reply.data
            assert b"shop" not in reply.data


async def test_a_wrong_password_is_told_in_a_line(tmp_path: Path) -> None:
    async with nats_server(tmp_path) as server:
        wrong = ClusterMembership(servers=(server.url,), name="laptop", password="guessed")
        async with asyncio.timeout(30):
            with pytest.raises(ConfigError, match="refuse laptop"):
                async with Bus.connected(wrong, SystemClock()):
                    raise AssertionError("let in")
