"""The Socket Mode client: what it takes is acknowledged, and a refresh loses nothing."""

from __future__ import annotations

import asyncio
import logging
from random import Random

import pytest
from msgspec.structs import replace

from codebutler.chat.slack.link import SocketTiming
from codebutler.chat.slack.socket import SocketModeClient
from codebutler.domain.clock import SystemClock
from tests.clock import ManualClock, settle
from tests.integration.chat.slack.server import SocketServer
from tests.integration.chat.slack.socket_bench import FAST, Bench, first, running


async def test_acknowledges_after_the_handler_and_in_order_of_arrival() -> None:
    async with running() as (bench, _run):
        peer = await first(bench)
        bench.gate.clear()
        for number in range(20):
            await peer.event(f"e{number}")
        await bench.until(lambda: len(bench.seen) == 20)
        assert bench.seen == [f"e{number}" for number in range(20)]
        assert peer.acks == []
        bench.gate.set()
        await peer.acked("e0", "e19")


async def test_answer_travels_only_where_it_is_accepted() -> None:
    async with running() as (bench, _run):
        peer = await first(bench)
        await peer.event("unanswered", answerable=True)
        await peer.acked("unanswered")
        assert peer.acks == [{"envelope_id": "unanswered"}]
        bench.reply = lambda _envelope: {"text": "hi"}
        await peer.event("plain")
        await peer.event("answerable", answerable=True)
        await peer.acked("plain", "answerable")
        assert {"envelope_id": "plain"} in peer.acks
        assert {"envelope_id": "answerable", "payload": {"text": "hi"}} in peer.acks


async def test_refresh_loses_nothing_while_the_old_connection_keeps_writing() -> None:
    async with running() as (bench, _run):
        old = await first(bench)
        await old.disconnect("refresh_requested")
        for number in range(50):
            await old.event(f"old{number}")
        new = await bench.server.peer()
        await old.event("before-hello")
        await new.hello(2)
        await bench.until(lambda: bench.client.status.state == "connected")
        await old.event("late")
        await new.event("new")
        await old.acked("old0", "old49", "before-hello", "late")
        await new.acked("new")
        assert bench.client.status.connections == 2
        assert bench.client.status.other_consumers == 0
        await old.connection.close()
        assert sorted(bench.seen) == sorted([*(f"old{n}" for n in range(50)), "before-hello", "late", "new"])
        assert bench.client.status.reconnects == 1


async def test_old_connection_is_closed_after_the_drain_time() -> None:
    async with SocketServer() as server:
        bench = Bench(server)
        quick = SocketTiming(drain_s=0.05, backoff_base_s=0.01, close_timeout_s=0.2)
        client = SocketModeClient(server.open, bench._handle, SystemClock(), Random(1), timing=quick)
        run = asyncio.create_task(client.run())
        old = await server.peer()
        await old.hello()
        await old.disconnect("warning")
        new = await server.peer()
        await new.hello(2)
        await old.gone()
        await new.event("x")
        await new.acked("x")
        await client.stop()
        await run


async def test_what_is_in_hand_when_the_drain_time_ends_is_still_acknowledged() -> None:
    async with SocketServer() as server:
        bench, clock = Bench(server), ManualClock()
        bench.gate.clear()
        patient = SocketTiming(silence_s=1e9)
        client = SocketModeClient(server.open, bench._handle, clock, Random(1), timing=patient)
        run = asyncio.create_task(client.run())
        old = await server.peer()
        await old.hello()
        await old.event("slow")
        await bench.until(lambda: bench.seen == ["slow"])
        await old.disconnect("refresh_requested")
        connecting = asyncio.create_task(server.peer())
        while not connecting.done():
            await clock.advance(1)
        await connecting.result().hello(2)
        while client.status.reconnects == 0:
            await settle()
        await clock.advance(patient.drain_s + 1)
        bench.gate.set()
        await old.acked("slow")
        await client.stop()
        await run


async def test_connection_lost_before_the_acknowledgement_is_no_error() -> None:
    async with running() as (bench, _run):
        peer = await first(bench)
        bench.gate.clear()
        await peer.event("e")
        await bench.until(lambda: bench.seen == ["e"])
        await peer.connection.close()
        again = await bench.server.peer()
        await again.hello()
        bench.gate.set()
        await again.event("e")
        await again.acked("e")
        assert bench.seen == ["e", "e"]
        assert bench.client.status.lost_acks == 1


async def test_stop_finishes_what_is_in_hand() -> None:
    async with running() as (bench, run):
        peer = await first(bench)
        bench.gate.clear()
        await peer.event("e")
        await bench.until(lambda: bench.seen == ["e"])
        stopping = asyncio.create_task(bench.client.stop())
        await asyncio.sleep(0)
        bench.gate.set()
        await asyncio.gather(stopping, run)
        await peer.acked("e")
        assert bench.client.status.state == "stopped"
        assert bench.client.status.connections == 0


COUNTING = replace(FAST, count_s=0.05, recount_s=0.05)
"""Counts again and again."""


async def test_a_second_consumer_that_comes_later_is_told_by_the_first_and_forgotten_when_it_goes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with running(COUNTING) as (bench, _run):
        peer = await first(bench)
        assert bench.client.status.trouble == ""
        counting = await bench.server.peer()
        await counting.hello(3)  # the first one, this one and a stranger's
        once_more = await bench.server.peer()
        assert bench.client.status.other_consumers == 1
        assert bench.client.status.trouble == ""
        await once_more.hello(4)
        last = await bench.server.peer()
        assert "1 other connection(s) use this app's token" in bench.client.status.trouble
        assert bench.client.status.state == "connected"
        assert caplog.text.count("other connection(s)") == 1
        await peer.event("over the first")
        await peer.acked("over the first")
        await last.hello(4)
        await bench.server.peer()
        assert bench.client.status.trouble == ""
        assert "no other process uses this app's token any more" in caplog.text
        assert bench.client.status.reconnects == 0
        # Told when it is found and when it has gone, so that what it took is looked for.
        assert [bool(status.trouble) for status in bench.states] == [False, True, False]


async def test_a_connection_of_ours_that_slack_still_counts_is_no_second_consumer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running(COUNTING) as (bench, _run):
        peer = await first(bench)
        peer.connection.transport.abort()
        again = await bench.server.peer()
        await again.hello(2)
        counting = await bench.server.peer()
        await counting.hello(2)
        await bench.server.peer()
        assert bench.client.status.trouble == ""
        assert bench.client.status.other_consumers == 0
        assert "other connection(s)" not in caplog.text


async def test_a_count_that_fails_leaves_the_connection_at_work() -> None:
    async with running(COUNTING) as (bench, _run):
        peer = await first(bench)
        for _ in range(2):
            await (await bench.server.peer()).connection.close()
        await bench.server.peer()
        await peer.event("still here")
        await peer.acked("still here")
        assert [status.state for status in bench.states] == ["connected"]


async def test_ticket_is_never_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with running() as (bench, _run):
        peer = await first(bench)
        await peer.connection.close()
        await (await bench.server.peer()).hello()
        await bench.until(lambda: bench.client.status.reconnects == 1)
    ours = [record.getMessage() for record in caplog.records if record.name.startswith("codebutler")]
    assert ours
    assert not [line for line in ours if "ticket" in line or "secret-" in line]
