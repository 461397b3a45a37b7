"""The Socket Mode client without a connection: it notices, and is back by itself or says why not."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from codebutler.chat.slack.link import SocketTiming
from codebutler.chat.slack.socket import SocketModeClient
from codebutler.domain.clock import SystemClock
from codebutler.domain.errors import ChatAuthError, ChatError, ChatRateLimitedError, ChatUnreachableError
from tests.integration.chat.slack.server import DEADLINE_S, SocketServer
from tests.integration.chat.slack.socket_bench import FAST, Bench, first, running


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
