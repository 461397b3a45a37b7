"""What a host can do to others with its real credential, against the servers as we configure them: nothing."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from msgspec.structs import replace
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError
from nats.js import api
from nats.js.errors import APIError, ServiceUnavailableError

from codebutler.cluster.authority import Key, decode_claims, user_claims
from codebutler.cluster.bus import Bus
from codebutler.cluster.connection import HostAccounts, connected_client
from codebutler.cluster.membership import (
    GATEWAY,
    REMOVALS,
    ClusterMembership,
    calls_of,
    consumer_of,
    events_to,
    news_of,
    order_answers_of,
    orders_to,
    questions_of,
    stream_in,
    stream_out,
)
from codebutler.cluster.messages import (
    CLUSTER_VERSION,
    FetchQuestion,
    HostHeartbeat,
    SendCall,
    ThreadQuestion,
    encode,
)
from codebutler.domain.clock import SystemClock
from codebutler.domain.errors import CodeButlerError, ConfigError
from codebutler.domain.message import said
from codebutler.domain.model import Post
from codebutler.protocol.messages import Send, Sent
from tests.natsserver import NatsServer, bus, nats_server
from tests.seam import DEADLINE_S, gateway, host, remote, until
from tests.workers.services import entry

CLOCK = SystemClock()
CONNECTIONS = 16


@asynccontextmanager
async def member(membership: ClusterMembership) -> AsyncIterator[Client]:
    """A client of its own with that credential, which sends whatever it wants."""
    async with connected_client(membership, CLOCK) as (client, _):
        yield client


def thief(server: NatsServer) -> ClusterMembership:
    return server.membership("tower")


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


async def taken_by(server: NatsServer, stream: str) -> int:
    """How many messages the stream ever had."""
    async with member(server.membership(GATEWAY)) as client:
        return (await client.jetstream().stream_info(stream)).state.last_seq


async def test_nothing_of_others_is_there_for_a_host(tmp_path: Path) -> None:
    """The server knows nobody who would take what it sends."""
    async with nats_server(tmp_path) as server, gateway(server) as opened, host(server) as here:
        opened.hosts.add(remote())
        await here.spawner.worker()
        async with member(thief(server)) as client:
            for subject in (
                calls_of("laptop", "shop"),
                events_to("laptop", "shop"),
                events_to("tower", "tools"),
                orders_to("laptop"),
                order_answers_of("laptop", "1"),
                questions_of("laptop"),
                questions_of(GATEWAY),
                news_of("laptop"),
                REMOVALS,
                "$KV.CB_HOSTS.laptop",
                "$KV.CB_LEADER.gateway",
                "$JS.API.INFO",
                "$JS.API.STREAM.CREATE.STOLEN",
                "$JS.API.STREAM.NAMES",
                f"$JS.API.STREAM.INFO.{stream_in('laptop')}",
                f"$JS.API.STREAM.PURGE.{stream_in('tower')}",
                f"$JS.API.STREAM.MSG.GET.{stream_in('tower')}",
                f"$JS.API.STREAM.MSG.GET.{stream_in('laptop')}",
                f"$JS.API.STREAM.DELETE.{stream_out('laptop')}",
                f"$JS.API.CONSUMER.CREATE.{stream_in('laptop')}.mine",
                f"$JS.API.CONSUMER.CREATE.{stream_in('tower')}.mine",
                f"$JS.API.CONSUMER.DURABLE.CREATE.{stream_in('laptop')}.mine",
                f"$JS.API.CONSUMER.DELETE.{stream_in('laptop')}.{consumer_of('shop')}",
                f"$JS.API.CONSUMER.INFO.{stream_in('laptop')}.{consumer_of('shop')}",
                f"$JS.API.CONSUMER.MSG.NEXT.{stream_in('laptop')}.{consumer_of('shop')}",
                f"$JS.API.CONSUMER.MSG.NEXT.{stream_out('laptop')}.{GATEWAY}",
                f"$JS.API.CONSUMER.MSG.NEXT.{stream_out('tower')}.{GATEWAY}",
                "$JS.API.DIRECT.GET.KV_CB_HOSTS.$KV.CB_HOSTS.laptop",
                f"$JS.ACK.{stream_in('laptop')}.{consumer_of('shop')}.1.1.1.1.1",
                f"$JS.ACK.{stream_out('tower')}.{GATEWAY}.1.1.1.1.1",
                "$SYS.REQ.CLAIMS.UPDATE",
                "$SYS.REQ.CLAIMS.DELETE",
                "$SYS.REQ.CLAIMS.LIST",
                "$SYS.REQ.SERVER.PING",
            ):
                assert await nobody_takes(client, subject), subject
            with pytest.raises((APIError, ServiceUnavailableError)):
                await client.jetstream().add_stream(api.StreamConfig(name="MINE", subjects=["mine.>"]))
        assert not here.running.done()


async def nobody_takes(client: Client, subject: str) -> bool:
    try:
        answer = await client.request(subject, b"{}", timeout=DEADLINE_S)
    except NoRespondersError:
        return True
    return b"JetStream not enabled for account" in answer.data


async def test_a_host_that_listens_to_everything_hears_nothing_of_others(tmp_path: Path) -> None:
    async with nats_server(tmp_path) as server, gateway(server) as opened, host(server) as laptop:
        opened.hosts.add(remote())
        worker = await laptop.spawner.worker()
        async with member(thief(server)) as client:
            heard: list[str] = []

            async def hear(message: object) -> None:
                heard.append(str(message))

            for subject in (">", "cb.>", "$JS.>", "$SYS.>", "_INBOX.>", "_R_.>"):
                await client.subscribe(subject, cb=hear)
            await client.flush()
            opened.hosts.deliver(entry(1, "for shop"))
            await until(lambda: laptop.taken("for shop"))
            worker.say(Send(op_id="op9", operation=Post(message=said("of shop"))))
            await until(lambda: Sent(op_id="op9", ref="posted-op9") in worker.heard)
            opened.hosts.wake("shop")
            await client.request(questions_of("tower"), encode(beat()), timeout=DEADLINE_S)
            assert [each for each in heard if "shop" in each or "laptop" in each] == []


def beat() -> HostHeartbeat:
    return HostHeartbeat(epoch=0, version=CLUSTER_VERSION, instance="i")


async def test_a_host_that_speaks_for_anothers_repository_is_refused(tmp_path: Path) -> None:
    async with nats_server(tmp_path) as server, gateway(server) as opened:
        opened.hosts.add(remote())
        opened.hosts.add(remote("tools", "C02", "tower"))
        async with (
            host(server) as laptop,
            host(server, "tower") as tower,
            member(thief(server)) as client,
        ):
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


async def test_answers_cannot_be_led_into_anothers_stream(tmp_path: Path) -> None:
    """The server answers to the subject that a client names; for a host's account that is its own."""
    async with nats_server(tmp_path) as server, gateway(server) as opened:
        opened.hosts.add(remote())
        opened.hosts.add(remote("tools", "C02", "tower"))
        async with host(server) as laptop, member(thief(server)) as client:
            await laptop.spawner.worker()
            opened.hosts.deliver(entry(1, "for tools", channel="C02"))
            await until(lambda: opened.services.settled == [1])
            for victim in (events_to("laptop", "shop"), calls_of("laptop", "shop"), REMOVALS):
                # An event of its own, an answer of the gateway, and the acknowledgement of a publication.
                fetch = f"$JS.API.CONSUMER.MSG.NEXT.{stream_in('tower')}.{consumer_of('tools')}"
                await client.publish(fetch, json.dumps({"batch": 1}).encode(), reply=victim)
                await client.publish(questions_of("tower"), encode(beat()), reply=victim)
                await client.publish(calls_of("tower", "tools"), forged("tools"), reply=victim)
            await client.request(questions_of("tower"), encode(beat()), timeout=DEADLINE_S)
            assert await taken_by(server, stream_in("tower")) >= 1
            assert await taken_by(server, stream_in("laptop")) == 0
            assert await taken_by(server, stream_out("laptop")) == 0
            opened.hosts.deliver(entry(2, "for shop"))
            await until(lambda: laptop.taken("for shop"), within_s=60)
            assert laptop.spawner.disk().texts == ["for shop"]
            assert opened.services.sent == []


async def test_a_host_hears_of_no_repository_but_its_own(tmp_path: Path) -> None:
    async with nats_server(tmp_path) as server, gateway(server) as opened:
        opened.hosts.add(remote())
        opened.hosts.add(remote("tools", "C02", "tower"))
        async with member(thief(server)) as client:
            reply = await client.request(questions_of("tower"), encode(beat()), timeout=5)
            assert b"tools" in reply.data
            assert b"shop" not in reply.data


async def test_a_host_cannot_answer_for_another(tmp_path: Path) -> None:
    async with (
        nats_server(tmp_path) as server,
        bus(server) as asking,
        bus(server, "laptop") as asked,
        member(thief(server)) as client,
    ):

        async def answer(_subject: str, _body: bytes) -> bytes:
            with pytest.raises(NoRespondersError):
                await client.request(order_answers_of("laptop", "guessed"), b"false", timeout=DEADLINE_S)
            return b"true"

        async with asked.listening(orders_to("laptop"), answer):
            assert await asking.ask(orders_to("laptop"), b"?") == b"true"
        with pytest.raises(CodeButlerError):
            await asking.ask(orders_to("laptop"), b"?")


async def test_a_host_fills_its_own_share_of_the_disk_and_no_more(tmp_path: Path) -> None:
    async with nats_server(tmp_path) as server, bus(server) as admin:
        for name in ("laptop", "tower"):
            await admin.ensure_stream(stream_out(name), calls_of(name, ">"), 2**24)
        async with member(thief(server)) as client:
            stream, chunk = client.jetstream(), b"x" * 2**20
            for _ in range(15):
                await stream.publish(calls_of("tower", "x"), chunk, timeout=DEADLINE_S)
            with pytest.raises(APIError, match="maximum bytes exceeded"):
                await stream.publish(calls_of("tower", "x"), chunk, timeout=DEADLINE_S)
        async with bus(server, "laptop") as other:
            await other.publish(calls_of("laptop", "shop"), b"mine", uuid4().hex)
        assert await taken_by(server, stream_out("laptop")) == 1


async def test_a_host_that_opens_many_connections_keeps_nobody_out(tmp_path: Path) -> None:
    async with nats_server(tmp_path) as server, AsyncExitStack() as stack:
        for _ in range(CONNECTIONS):
            await stack.enter_async_context(another(server))
        with pytest.raises(NatsError, match="maximum account active connections exceeded"):
            await stack.enter_async_context(another(server))
        async with bus(server, "laptop"):
            pass


@asynccontextmanager
async def another(server: NatsServer) -> AsyncIterator[Client]:
    client = Client()
    try:
        await client.connect(server.url, allow_reconnect=False, error_cb=ignored, **credential(thief(server)))
        yield client
    finally:
        await client.close()
        if (transport := client._transport) is not None:  # left open where the server has ended it
            transport.close()  # type: ignore[no-untyped-call]  # nats-py has no types there
            await asyncio.sleep(0)


async def ignored(_error: Exception) -> None:
    pass


def credential(membership: ClusterMembership) -> dict[str, Any]:
    key = Key(membership.seed)
    return {
        "user_jwt_cb": lambda: membership.credential.encode(),
        "signature_cb": lambda nonce: base64.b64encode(key.sign(nonce.encode())),
    }


async def refused(membership: ClusterMembership) -> None:
    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(ConfigError, match=f"refuse {membership.name}: it was removed"):
            async with Bus.connected(membership, CLOCK):
                raise AssertionError("let in")


async def test_a_forged_credential_is_refused(tmp_path: Path) -> None:
    async with nats_server(tmp_path) as server:
        ours, victim = thief(server), server.membership("laptop")
        account = decode_claims(victim.credential)["iss"]
        self_signed, mine = Key.new("account"), Key(ours.seed)
        for claims in (
            victim.credential,  # without its key
            user_claims(self_signed, mine, "laptop", 1),  # of an account that nobody knows
            user_claims(mine, mine, "laptop", 1),
            ours.credential.replace(ours.credential.split(".")[1], victim.credential.split(".")[1]),
        ):
            await refused(replace(ours, credential=claims))
        assert account.startswith("A")


async def test_a_removed_host_is_out_at_once_and_stays_out(tmp_path: Path) -> None:
    async with nats_server(tmp_path) as server, gateway(server) as opened, host(server) as other:
        opened.hosts.add(remote())
        await other.spawner.worker()
        async with HostAccounts.opened(server.authority, server.membership(GATEWAY), CLOCK) as accounts:
            first = await accounts.invite("desk")
            async with Bus.connected(first, CLOCK) as connected:
                assert await accounts.remove("desk")
                async with asyncio.timeout(DEADLINE_S):
                    with pytest.raises(ConfigError, match="refuse desk"):
                        await connected.wait_refused()
            await refused(first)
            second = await accounts.invite("desk")
            async with Bus.connected(second, CLOCK):
                await refused(first)
            assert await accounts.hosts() == ("desk", "laptop", "tower")
            assert await accounts.remove("desk")
            assert not await accounts.remove("desk")
        await server.kill()
        await server.start()
        await refused(first)
        await refused(second)
        opened.hosts.deliver(entry(1, "still here"))
        await until(lambda: other.taken("still here"))
