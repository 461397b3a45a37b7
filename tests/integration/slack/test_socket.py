"""The Socket Mode client against scripted faults: nothing lost, nothing hidden, back by itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from codebutler.clock import ManualClock, SystemClock, settle
from codebutler.errors import ChatAuthError, ChatError, ChatRateLimitedError, ChatUnreachableError
from codebutler.slack.frames import Envelope
from codebutler.slack.socket import SocketModeClient, SocketStatus
from codebutler.slack.wire import MAX_FRAGMENTS, SocketTiming
from tests.integration.slack.server import DEADLINE_S, Peer, SocketServer

FAST = SocketTiming(
    ping_interval_s=0.2,
    ping_timeout_s=0.2,
    silence_s=0.6,
    open_timeout_s=2,
    hello_timeout_s=2,
    close_timeout_s=0.2,
    drain_s=5,
    stop_grace_s=2,
    backoff_base_s=0.02,
    backoff_cap_s=0.05,
    crowded_s=0.2,
    healthy_s=60,
)


class Bench:
    """A client on a scripted server, and what it took in."""

    def __init__(self, server: SocketServer) -> None:
        self.server = server
        self.seen: list[str] = []
        self.states: list[SocketStatus] = []
        self.reply: Callable[[Envelope], dict[str, Any] | None] = lambda _envelope: None
        self.gate = asyncio.Event()
        self.gate.set()
        self._news = asyncio.Event()
        self.client = SocketModeClient(
            server.open, self._handle, SystemClock(), Random(1), self._told, timing=FAST
        )

    async def _handle(self, envelope: Envelope) -> dict[str, Any] | None:
        self.seen.append(envelope.envelope_id)
        self._news.set()
        await self.gate.wait()
        return self.reply(envelope)

    def _told(self, status: SocketStatus) -> None:
        self.states.append(status)
        self._news.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                self._news.clear()
                await self._news.wait()

    async def state(self, name: str) -> None:
        await self.until(lambda: any(status.state == name for status in self.states))


@asynccontextmanager
async def running() -> AsyncIterator[tuple[Bench, asyncio.Task[None]]]:
    async with SocketServer() as server:
        bench = Bench(server)
        run = asyncio.create_task(bench.client.run())
        try:
            yield bench, run
        finally:
            bench.gate.set()
            async with asyncio.timeout(DEADLINE_S):
                await bench.client.stop()
                await run


async def first(bench: Bench) -> Peer:
    peer = await bench.server.peer()
    await peer.hello()
    await bench.client.wait_connected()
    return peer


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


async def test_link_disabled_ends_the_trying_and_says_so() -> None:
    async with running() as (bench, run):
        peer = await first(bench)
        await peer.disconnect("link_disabled")
        async with asyncio.timeout(DEADLINE_S):
            await run
        assert bench.client.status.state == "disabled"
        assert "Socket Mode is switched off" in bench.client.status.trouble
        assert bench.server.tickets == 1
        with pytest.raises(ChatError, match="switched off"):
            await bench.client.wait_connected()


async def test_too_many_websockets_instead_of_hello_backs_off() -> None:
    async with running() as (bench, _run):
        start_s = asyncio.get_running_loop().time()
        refused = await bench.server.peer()
        await refused.disconnect("too_many_websockets")
        peer = await bench.server.peer()
        assert asyncio.get_running_loop().time() - start_s >= FAST.crowded_s / 2
        await peer.hello()
        await bench.client.wait_connected()
        assert any(status.trouble == "too_many_websockets" for status in bench.states)


async def test_closed_connection_is_replaced() -> None:
    async with running() as (bench, _run):
        peer = await first(bench)
        await peer.connection.close()
        again = await bench.server.peer()
        await again.hello()
        await again.event("after")
        await again.acked("after")
        assert bench.client.status.reconnects == 1


async def test_half_open_connection_is_noticed_and_replaced() -> None:
    async with running() as (bench, _run):
        peer = await first(bench)
        # The peer reads nothing and so answers no ping, as a peer behind a dead network path.
        peer.connection.transport.pause_reading()
        again = await bench.server.peer()
        await again.hello()
        await bench.until(lambda: bench.client.status.reconnects == 1)
        peer.connection.transport.abort()


async def test_silence_is_noticed_even_if_pings_are_stuck() -> None:
    async with SocketServer() as server:
        bench = Bench(server)
        deaf = SocketTiming(ping_interval_s=60, silence_s=0.2, backoff_base_s=0.01, close_timeout_s=0.2)
        client = SocketModeClient(server.open, bench._handle, SystemClock(), Random(1), timing=deaf)
        run = asyncio.create_task(client.run())
        await (await server.peer()).hello()
        await (await server.peer()).hello()
        await client.wait_connected()
        assert client.status.reconnects == 1
        await client.stop()
        await run


async def test_stop_does_not_wait_for_the_next_attempt() -> None:
    async with SocketServer() as server:
        bench = Bench(server)

        def refuse(_ticket: int) -> None:
            raise ChatRateLimitedError(600)

        server.on_open = refuse
        run = asyncio.create_task(bench.client.run())
        await bench.until(lambda: "rate limited" in bench.client.status.trouble)
        async with asyncio.timeout(DEADLINE_S):
            await bench.client.stop()
            await run
        assert server.tickets == 1


async def test_retry_after_of_a_ticket_is_honoured() -> None:
    async with SocketServer() as server:
        bench = Bench(server)
        loop = asyncio.get_running_loop()
        asked_s: list[float] = []

        def refuse(ticket: int) -> None:
            asked_s.append(loop.time())
            if ticket == 1:
                raise ChatRateLimitedError(0.3)

        server.on_open = refuse
        run = asyncio.create_task(bench.client.run())
        await (await server.peer()).hello()
        await bench.client.wait_connected()
        assert asked_s[1] - asked_s[0] >= 0.3
        await bench.client.stop()
        await run


async def test_refused_tickets_are_tried_again_until_one_is_given() -> None:
    async with SocketServer() as server:
        bench = Bench(server)

        def refuse(ticket: int) -> None:
            if ticket <= 3:
                raise ChatUnreachableError("no route")

        server.on_open = refuse
        run = asyncio.create_task(bench.client.run())
        peer = await server.peer()
        await peer.hello()
        await bench.client.wait_connected()
        assert server.tickets == 4
        assert [status.state for status in bench.states] == ["connecting", "connected"]
        await bench.client.stop()
        await run


async def test_refused_token_ends_the_trying() -> None:
    async with SocketServer() as server:
        bench = Bench(server)

        def refuse(_ticket: int) -> None:
            raise ChatAuthError("the app token was revoked", "token_revoked")

        server.on_open = refuse
        run = asyncio.create_task(bench.client.run())
        with pytest.raises(ChatAuthError, match="revoked"):
            await bench.client.wait_connected()
        await run
        assert bench.client.status.state == "auth_failed"
        assert server.tickets == 1


async def test_a_token_refused_for_a_while_is_told_and_tried_until_it_works_again() -> None:
    async with running() as (bench, _run):
        peer = await first(bench)
        refusals = 0

        def refuse(_ticket: int) -> None:
            nonlocal refusals
            refusals += 1
            if refusals < 4:
                raise ChatAuthError("the app token was revoked", "token_revoked")

        bench.server.on_open = refuse
        await peer.connection.close()
        await bench.state("auth_failed")
        assert "the app token was revoked" in {status.trouble for status in bench.states}
        again = await bench.server.peer()
        await again.hello()
        await again.event("later")
        await again.acked("later")
        assert refusals == 4
        assert (bench.client.status.state, bench.client.status.trouble) == ("connected", "")


async def test_garbage_is_counted_and_survived() -> None:
    async with running() as (bench, _run):
        peer = await first(bench)
        for garbage in ("{", "[]", '"x"', '{"type":"events_api"}', "[" * 100_000):
            await peer.send(garbage)
        await peer.event("good")
        await peer.acked("good")
        assert bench.client.status.dropped_frames == 5


async def test_lone_surrogate_does_not_cost_the_event() -> None:
    async with running() as (bench, _run):
        peer = await first(bench)
        await peer.send('{"envelope_id":"s","type":"events_api","payload":{"text":"a\\ud800b"}}')
        await peer.acked("s")


async def test_a_message_in_pieces_is_one_and_keeps_its_place() -> None:
    async with running() as (bench, _run):
        peer = await first(bench)
        await peer.event("1")
        await peer.connection.send(['{"envelope_id":"2","type":"events_', "", 'api","payload":{}}'])
        await peer.event("3")
        await peer.acked("1", "2", "3")
        assert bench.seen == ["1", "2", "3"]


async def test_a_message_of_endless_pieces_ends_the_connection() -> None:
    async with running() as (bench, _run):
        peer = await first(bench)
        with suppress(ConnectionClosed):
            await peer.connection.send("{" for _ in range(2 * MAX_FRAGMENTS))
        again = await bench.server.peer()
        await again.hello()
        await again.event("after")
        await again.acked("after")


async def test_what_comes_with_the_handshake_is_heard() -> None:
    async with running() as (bench, _run):
        peer = await bench.server.peer()
        await peer.connection.send(['{"type":"hello",', '"num_connections":1}'])
        await peer.event("at once")
        await peer.acked("at once")


async def test_raising_handler_leaves_the_event_unacknowledged() -> None:
    async with running() as (bench, _run):
        peer = await first(bench)

        def fail(envelope: Envelope) -> dict[str, Any] | None:
            if envelope.envelope_id == "bad":
                raise OSError("disk full")
            return None

        bench.reply = fail
        await peer.event("bad")
        await peer.event("good")
        await peer.acked("good")
        assert {"envelope_id": "bad"} not in peer.acks
        assert bench.client.status.failed_handlers == 1


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


async def test_second_consumer_is_told(caplog: pytest.LogCaptureFixture) -> None:
    async with running() as (bench, _run):
        peer = await bench.server.peer()
        await peer.hello(3)
        await bench.client.wait_connected()
        assert bench.client.status.other_consumers == 2
        assert "another process may take events away" in caplog.text


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
