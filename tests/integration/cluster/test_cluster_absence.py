"""What people are told while the host of their repository is away, over a real NATS server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from codebutler.cluster.bus import Bus
from codebutler.cluster.leases import Leadership, SharedNotes
from codebutler.cluster.membership import STAND_BY
from codebutler.cluster.messages import StandingBy, encode
from codebutler.domain.clock import SystemClock
from codebutler.domain.errors import StoreError
from codebutler.domain.model import MessagePosted, Operation, Post, React, Update
from codebutler.domain.version import VERSION
from codebutler.intake.records import Entry
from codebutler.protocol.messages import Deliver
from tests.natsserver import NatsServer, bus, nats_server
from tests.seam import DEADLINE_S, Gateway, gateway, host, remote, until
from tests.workers.services import RecordingServices, entry


def reply(seq: int, text: str, thread: str) -> Entry:
    written = entry(seq, text)
    assert isinstance(written.event, MessagePosted)
    return replace_event(written, replace(written.event, thread=thread))


def replace_event(written: Entry, event: MessagePosted) -> Entry:
    return Entry(written.seq, written.channel, event, written.request, written.received_at)


def done(services: RecordingServices) -> list[Operation]:
    return [operation for _, _, operation, _ in services.sent]


def lines(services: RecordingServices) -> list[tuple[str | None, str]]:
    """(thread, text) of each."""
    return [(each.thread, each.message.markdown) for each in done(services) if isinstance(each, Post)]


def marks(services: RecordingServices, *, remove: bool = False) -> list[str]:
    return [each.target for each in done(services) if isinstance(each, React) and each.remove == remove]


def ends(services: RecordingServices) -> list[tuple[str, str]]:
    return [(each.target, each.message.markdown) for each in done(services) if isinstance(each, Update)]


@asynccontextmanager
async def left(server: NatsServer, opened: Gateway) -> AsyncIterator[None]:
    """The host was there, and is away."""
    opened.hosts.add(remote())
    async with host(server) as first:
        opened.hosts.deliver(entry(1, "awake"))
        await until(lambda: first.taken("awake"))
        async with asyncio.timeout(DEADLINE_S):  # it is taken once that is acknowledged, too
            while (await opened.hosts.status())[0].worker.undelivered:  # noqa: ASYNC110 - NATS tells nobody
                await asyncio.sleep(0.05)
    opened.authority.hosts.mark_left("laptop")
    yield


async def test_each_message_is_marked_and_each_thread_told_once(tmp_path: Path) -> None:
    async with nats_server(tmp_path) as server, gateway(server) as opened, left(server, opened):
        services = opened.services
        opened.hosts.deliver(entry(2, "one"))
        opened.hosts.deliver(reply(3, "one more", thread="2.000100"))
        opened.hosts.deliver(entry(4, "another"))
        await until(lambda: len(lines(services)) == 2 and len(marks(services)) == 3)
        assert marks(services) == ["2.000100", "3.000100", "4.000100"]
        assert [thread for thread, _ in lines(services)] == ["2.000100", "4.000100"]
        assert lines(services)[0][1].startswith("⏳ Its host laptop has been away since 20")
        async with host(server) as second:
            await until(lambda: second.taken("another"))
            await until(lambda: len(ends(services)) == 2)
            assert marks(services, remove=True) == ["2.000100", "3.000100", "4.000100"]
            for _, text in ends(services):
                assert text.startswith("Its host laptop was away from 20")
            opened.hosts.deliver(entry(5, "back"))
            await until(lambda: second.taken("back"))
        assert len(lines(services)) == 2
        assert len(marks(services)) == 3


async def test_the_next_gateway_settles_what_the_one_before_told(tmp_path: Path) -> None:
    async with nats_server(tmp_path) as server:
        async with gateway(server) as first, left(server, first):
            first.hosts.deliver(entry(2, "one"))
            await until(lambda: lines(first.services))
        async with gateway(server) as second:
            second.hosts.add(remote())
            async with host(server):
                await until(lambda: ends(second.services))
            assert marks(second.services, remove=True) == marks(first.services) == ["2.000100"]
            posted = {op_id for _, op_id, each, _ in first.services.sent if isinstance(each, Post)}
            assert {target for target, _ in ends(second.services)} == {f"posted-{each}" for each in posted}


async def test_a_message_that_waits_is_not_taken_for_one_that_was_worked_on(tmp_path: Path) -> None:
    """A standby that has not seen it reads it from the history, with our mark."""
    async with nats_server(tmp_path) as server:
        async with gateway(server) as first, left(server, first):
            first.hosts.deliver(now(2, "one"))
            await until(lambda: lines(first.services))
        async with gateway(server) as second:
            second.hosts.add(remote())
            for seq, text in ((2, "one"), (3, "another")):
                read = now(seq, text)
                assert isinstance(read.event, MessagePosted)
                second.hosts.deliver(
                    replace_event(read, replace(read.event, handled="maybe", stale=True, late=True))
                )
            async with host(server) as here:
                await until(lambda: here.taken("another"))
                worker = await here.spawner.worker()
                came = [each.event for each in worker.heard if isinstance(each, Deliver)]
                stale = {each.text: each.stale for each in came if isinstance(each, MessagePosted)}
                assert stale == {"one": False, "another": True}


def now(seq: int, text: str) -> Entry:
    """Written now."""
    written, sent_at = entry(seq, text), datetime.now(UTC)
    assert isinstance(written.event, MessagePosted)
    event = replace(written.event, sent_at=sent_at.timestamp())
    return Entry(seq, written.channel, event, written.request, sent_at)


async def test_a_message_that_a_dying_host_may_not_have_taken_is_told_of(tmp_path: Path) -> None:
    async with nats_server(tmp_path) as server, gateway(server) as opened:
        opened.hosts.add(remote())
        async with host(server) as first:
            first.spawner.disk().is_full = True
            opened.hosts.deliver(entry(1, "nearly"))
            await until(lambda: first.spawner.disk().deliveries)
        assert marks(opened.services) == []
        opened.authority.hosts.mark_left("laptop")
        await until(lambda: marks(opened.services) == ["1.000100"])


async def test_a_gateway_that_no_longer_leads_changes_no_note(tmp_path: Path) -> None:
    async with nats_server(tmp_path) as server, bus(server) as connected:
        old, new = await notes(connected, "old"), await notes(connected, "new")
        await old.keep_note("a b/c", "1")
        assert await new.note("a b/c") == "1"
        await new.keep_note("a b/c", "2")
        with pytest.raises(StoreError, match="another gateway is active"):
            await old.keep_note("a b/c", "3")
        assert await (await notes(connected, "next")).note("a b/c") == "2"
        assert await new.note("another") == ""


async def notes(connected: Bus, instance: str) -> SharedNotes:
    """Of a gateway that leads, and has let go of its lease."""
    clock = SystemClock()
    leadership = await Leadership.candidate(connected, instance, clock, DEADLINE_S)
    await leadership.acquire()
    await leadership.release()
    return await SharedNotes.open(connected, leadership, clock)


async def test_the_status_names_the_machines_and_what_waits_for_them(tmp_path: Path) -> None:
    async with nats_server(tmp_path) as server, gateway(server) as opened, left(server, opened):
        opened.hosts.add(remote("tools", "C02", "tower"))
        for seq in (2, 3):
            opened.hosts.deliver(entry(seq, f"away {seq}"))
        async with host(server, "tower") as tower, bus(server) as other:
            await tower.spawner.worker("tools")
            await other.broadcast(
                STAND_BY, encode(StandingBy(epoch=0, instance="i", machine="spare", version="1"))
            )
            await until(lambda: opened.services.settled == [1, 2, 3])
            async with asyncio.timeout(DEADLINE_S):
                while len((told := await opened.hosts.cluster()).gateways) < 2:  # noqa: ASYNC110 - NATS tells us nothing
                    await asyncio.sleep(0.05)
            laptop, awake = told.hosts
            assert [(each.machine, each.leads) for each in told.gateways][1] == ("spare", False)
            assert told.epoch == opened.authority.epoch
            assert (laptop.name, laptop.awake, laptop.repos, laptop.pending) == (
                "laptop",
                False,
                ("shop",),
                2,
            )
            assert laptop.since is not None
            assert laptop.since == laptop.seen
            assert (awake.name, awake.awake, awake.version, awake.since) == ("tower", True, VERSION, None)
            shop, tools = await opened.hosts.status()
            assert (shop.host, shop.worker.undelivered) == ("laptop", 2)
            assert "has been away since" in shop.problem
            assert (tools.host, tools.problem) == ("tower", "")
