"""Deaths of the server, of a host and of a gateway, over a real NATS server: nothing is lost, doubled or reordered."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from msgspec.structs import replace

from codebutler.cluster.leases import HostLeases, Leadership, LeaseLostError
from codebutler.cluster.membership import events_to
from codebutler.cluster.messages import EventForHost, encode
from codebutler.config.chats import SlackSection
from codebutler.config.schema import Config, RepoSettings
from codebutler.domain.clock import SystemClock
from codebutler.domain.message import said
from codebutler.domain.model import MessagePosted, Post
from codebutler.intake.records import Entry
from codebutler.platform.tasks import beside
from codebutler.protocol.messages import Deliver, Send, Sent, TurnEnded
from tests.natsserver import bus, nats_server
from tests.seam import DEADLINE_S, Gateway, gateway, host, remote, until
from tests.workers.services import entry

MANY = 200
TEXTS = [f"message {seq}" for seq in range(1, MANY + 1)]


def deliver(opened: Gateway, first: int, last: int) -> None:
    for seq in range(first, last + 1):
        opened.hosts.deliver(entry(seq, f"message {seq}"))


async def test_the_server_is_killed_among_many_events(tmp_path: Path) -> None:
    async with nats_server(tmp_path) as server, gateway(server, ttl_s=60) as opened:
        opened.hosts.add(remote())
        async with host(server) as here:
            disk = here.spawner.disk()
            deliver(opened, 1, MANY // 2)
            await until(lambda: len(disk.texts) > 20)
            await server.kill()
            deliver(opened, MANY // 2 + 1, MANY)
            await server.start()
            await until(lambda: len(disk.texts) == MANY, within_s=60)
            assert disk.texts == TEXTS
            await until(lambda: sorted(opened.services.settled) == list(range(1, MANY + 1)))


async def test_a_host_dies_among_many_events_and_its_successor_goes_on(tmp_path: Path) -> None:
    async with nats_server(tmp_path) as server, gateway(server) as opened:
        opened.hosts.add(remote())
        async with host(server) as first:
            spawner = first.spawner
            deliver(opened, 1, MANY // 2)
            await until(lambda: len(spawner.disk().texts) > 20)
        deliver(opened, MANY // 2 + 1, MANY)
        # The stream has them: the gateway need not keep what a host that is away will get.
        await until(lambda: sorted(opened.services.settled) == list(range(1, MANY + 1)))
        opened.authority.hosts.mark_left("laptop")
        async with host(server, spawner=spawner):
            await until(lambda: len(spawner.disk().texts) == MANY, within_s=60)
        assert spawner.disk().texts == TEXTS


async def test_a_gateway_dies_while_it_does_a_call_and_the_next_one_looks_first(tmp_path: Path) -> None:
    operation = Post(message=said("hello"))
    async with nats_server(tmp_path) as server, AsyncExitStack() as later:
        async with gateway(server) as first:
            first.hosts.add(remote())
            first.services.hold.clear()
            here = await later.enter_async_context(host(server))
            worker = await here.spawner.worker()
            worker.say(Send(op_id="op1", operation=operation))
            await until(lambda: first.services.sent)
        async with gateway(server) as second:
            second.hosts.add(remote())
            await until(lambda: Sent(op_id="op1", ref="posted-op1") in worker.heard)
            assert first.services.sent == [("shop", "op1", operation, False)]
            assert second.services.sent == [("shop", "op1", operation, True)]
            assert not here.running.done()
            await later.aclose()


async def test_what_a_dead_gateway_had_sent_is_not_taken_twice(tmp_path: Path) -> None:
    async with nats_server(tmp_path) as server, AsyncExitStack() as later:
        async with gateway(server) as first:
            first.hosts.add(remote())
            here = await later.enter_async_context(host(server))
            deliver(first, 1, 20)
            await until(lambda: len(here.spawner.disk().texts) > 5)
        async with gateway(server) as second:
            second.hosts.add(remote())
            deliver(second, 1, 40)  # its journal still has what was not settled
            await until(lambda: len(second.services.settled) == 40)
            await until(lambda: len(here.spawner.disk().texts) == 40)
            assert here.spawner.disk().texts == TEXTS[:40]
            await later.aclose()


async def silence(leases: HostLeases, instance: str) -> None:
    """As if that process had not been heard for ten seconds, until another one has taken its place."""
    while leases._holders["laptop"].instance == instance:
        leases.mark_left("laptop")
        await asyncio.sleep(0.01)


async def test_a_host_that_was_replaced_is_fenced(tmp_path: Path) -> None:
    async with nats_server(tmp_path) as server, gateway(server) as opened:
        opened.hosts.add(remote())
        async with host(server) as asleep:
            worker = await asleep.spawner.worker()
            silenced = asyncio.create_task(silence(opened.authority.hosts, asleep.standing.instance))
            async with host(server) as awake:
                successor = await awake.spawner.worker()
                ended = TurnEnded(op_id="end1", thread="1.0", messages=("1.1",), outcome="done")
                worker.say(Send(op_id="op1", operation=Post(message=said("too late"))), ended)
                async with asyncio.timeout(DEADLINE_S):
                    with pytest.raises(LeaseLostError, match="another process runs as this host"):
                        await asyncio.shield(asleep.running)
                successor.say(Send(op_id="op2", operation=Post(message=said("in time"))))
                await until(lambda: Sent(op_id="op2", ref="posted-op2") in successor.heard)
                assert [op_id for _, op_id, _, _ in opened.services.sent] == ["op2"]
                assert opened.services.ended == []
                await silenced


def for_ana(allowed: str) -> RepoSettings:
    config = Config(slack=SlackSection(allowed_users=(allowed,)))
    return replace(remote(), config=config)


@pytest.mark.parametrize(("allowed", "arrives"), [("U01", ["late", "next"]), ("U99", ["next"])])
async def test_an_event_of_a_gateway_that_leads_no_more_is_the_leaders_to_decide(
    tmp_path: Path, allowed: str, arrives: list[str]
) -> None:
    async with nats_server(tmp_path) as server, AsyncExitStack() as later:
        async with gateway(server) as first:
            old = first.authority.epoch
        async with gateway(server) as second:
            second.hosts.add(for_ana(allowed))
            here = await later.enter_async_context(host(server))
            await here.link.granted.wait()
            late = entry(1, "late")
            message = EventForHost(
                epoch=old,
                host="laptop",
                repo="shop",
                event=late.event,
                request=late.request,
                received_at=late.received_at,
            )
            async with bus(server) as woken:
                await woken.publish(events_to("laptop", "shop"), encode(message), uuid4().hex)
            await until(lambda: here.taken("late") or arrives == ["next"])
            second.hosts.deliver(entry(2, "next"))
            await until(lambda: here.taken("next"))
            assert here.spawner.disk().texts == arrives
            await later.aclose()


async def test_order_is_kept_when_another_gateway_leads_while_the_host_is_away(tmp_path: Path) -> None:
    async with nats_server(tmp_path) as server:
        async with gateway(server) as first:
            first.hosts.add(for_ana("U01"))
            deliver(first, 1, 10)
            await until(lambda: len(first.services.settled) == 10)
        async with gateway(server) as second:
            second.hosts.add(for_ana("U01"))
            deliver(second, 11, 20)
            await until(lambda: len(second.services.settled) == 10)
            async with host(server) as here:
                await until(lambda: len(here.spawner.disk().texts) == 20)
                assert here.spawner.disk().texts == TEXTS[:20]


async def test_an_event_that_is_too_large_is_left_out_and_the_next_one_comes(tmp_path: Path) -> None:
    async with nats_server(tmp_path) as server, gateway(server) as opened:
        opened.hosts.add(remote())
        async with host(server) as here:
            opened.hosts.deliver(entry(1, "x" * 9 * 2**20))
            opened.hosts.deliver(entry(2, "y" * 4 * 2**20))
            opened.hosts.deliver(entry(3, "small"))
            await until(lambda: here.taken("small"))
            assert [text[:5] for text in here.spawner.disk().texts] == ["yyyyy", "small"]
            await until(lambda: sorted(opened.services.settled) == [1, 2, 3])


async def test_an_event_that_waited_for_long_is_late_and_asked_about(tmp_path: Path) -> None:
    now = SystemClock().now()
    async with nats_server(tmp_path) as server, gateway(server) as opened:
        opened.hosts.add(remote())
        for number, hours in enumerate((0, 1, 24), 1):
            written = now - timedelta(hours=hours)
            asked = entry(number, f"{hours} hours ago")
            event = replace(asked.event, sent_at=written.timestamp())
            opened.hosts.deliver(Entry(number, asked.channel, event, asked.request, written))
        async with host(server) as here:
            worker = await here.spawner.worker()
            await until(lambda: here.taken("24 hours ago"))
            came = [message.event for message in worker.heard if isinstance(message, Deliver)]
            assert [(event.late, event.stale) for event in came if isinstance(event, MessagePosted)] == [
                (False, False),
                (True, False),
                (True, True),
            ]


async def test_a_repository_that_moves_gets_its_events_on_its_new_host(tmp_path: Path) -> None:
    async with nats_server(tmp_path) as server, gateway(server) as opened:
        opened.hosts.add(remote())
        async with host(server) as laptop, host(server, "tower") as tower:
            opened.hosts.deliver(entry(1, "before"))
            await until(lambda: laptop.taken("before"))
            opened.hosts.reconfigure(remote(host="tower"))
            await tower.spawner.worker()
            opened.hosts.deliver(entry(2, "after"))
            await until(lambda: tower.taken("after"))
            await until(lambda: opened.services.settled == [1, 2])
            assert not laptop.taken("after")


async def test_one_gateway_leads_and_the_next_one_follows_its_death(tmp_path: Path) -> None:
    clock = SystemClock()
    async with nats_server(tmp_path) as server, bus(server) as one, bus(server) as two:
        first = await Leadership.candidate(one, "first", clock, 3.0)
        second = await Leadership.candidate(two, "second", clock, 3.0)
        await first.acquire()
        waiting = asyncio.create_task(second.acquire())
        async with beside(first.renew_until_lost(), name="keep"):
            await asyncio.sleep(4)  # longer than the lease without its renewal
            assert first.is_held
            assert not waiting.done()
        async with asyncio.timeout(10):
            await waiting
        assert not first.is_held
        assert second.epoch > first.epoch
        with pytest.raises(LeaseLostError):
            await first.renew_until_lost()


async def test_a_gateway_that_ends_lets_the_next_one_lead_at_once(tmp_path: Path) -> None:
    clock = SystemClock()
    async with nats_server(tmp_path) as server, bus(server) as one, bus(server) as two:
        first = await Leadership.candidate(one, "first", clock, 60.0)
        second = await Leadership.candidate(two, "second", clock, 60.0)
        await first.acquire()
        await first.release()
        assert not first.is_held
        async with asyncio.timeout(10):
            await second.acquire()
        assert second.epoch > first.epoch
