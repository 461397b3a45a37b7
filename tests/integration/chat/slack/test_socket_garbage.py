"""The Socket Mode client and what is no envelope, comes in pieces, or breaks who takes it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from websockets.exceptions import ConnectionClosed

from codebutler.chat.slack.link import MAX_FRAGMENTS, SocketEnvelope
from tests.integration.chat.slack.socket_bench import first, running


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

        def fail(envelope: SocketEnvelope) -> dict[str, Any] | None:
            if envelope.envelope_id == "bad":
                raise OSError("disk full")
            return None

        bench.reply = fail
        await peer.event("bad")
        await peer.event("good")
        await peer.acked("good")
        assert {"envelope_id": "bad"} not in peer.acks
        assert bench.client.status.failed_handlers == 1
