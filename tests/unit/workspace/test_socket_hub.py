"""Socket Mode's delivery rules: one of N, the ack deadline, the retries, and the goodbyes."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from starlette.types import Message
from starlette.websockets import WebSocket

from codebutler.workspace.connections import MAX_CONNECTIONS, Signal
from codebutler.workspace.socket import Hub, Timing
from codebutler.workspace.state import Json, MethodError
from tests.clock import ManualClock, settle

EVENT: Json = {"event_id": "Ev1"}


class Peer:
    """The app's side of one connection, as the ASGI messages of a websocket."""

    def __init__(self, hub: Hub, ticket: str) -> None:
        self._to_hub: asyncio.Queue[Message] = asyncio.Queue()
        self._to_hub.put_nowait({"type": "websocket.connect"})
        self.frames: list[dict[str, Any]] = []
        self.closed = False
        scope = {"type": "websocket", "query_string": f"ticket={ticket}".encode(), "headers": [], "path": "/"}
        socket = WebSocket(scope, self._to_hub.get, self._send)
        self.task = asyncio.create_task(hub.connections.serve(socket, None), name="peer")

    async def _send(self, message: Message) -> None:
        if message["type"] == "websocket.send":
            self.frames.append(json.loads(message["text"]))
        elif message["type"] == "websocket.close":
            self.closed = True
            self.leave()

    def leave(self) -> None:
        self._to_hub.put_nowait({"type": "websocket.disconnect", "code": 1000})

    def ack(self, frame: dict[str, Any], payload: Json | None = None) -> None:
        told = {"envelope_id": frame["envelope_id"], **({"payload": payload} if payload else {})}
        self.say(json.dumps(told))

    def say(self, text: str) -> None:
        self._to_hub.put_nowait({"type": "websocket.receive", "text": text})

    def envelopes(self) -> list[dict[str, Any]]:
        return [frame for frame in self.frames if "envelope_id" in frame]

    def goodbyes(self) -> list[str]:
        return [frame["reason"] for frame in self.frames if frame["type"] == "disconnect"]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def hub(clock: ManualClock) -> AsyncIterator[Hub]:
    hub = Hub(clock, "A1", Timing(), Signal())
    yield hub
    await hub.close()


@contextlib.asynccontextmanager
async def connected(hub: Hub, count: int = 1) -> AsyncIterator[list[Peer]]:
    peers = []
    for _ in range(count):
        peers.append(Peer(hub, hub.connections.issue_ticket()))
        await settle()
    try:
        yield peers
    finally:
        for peer in peers:
            peer.leave()
        await asyncio.gather(*(peer.task for peer in peers))


def attempts(peers: list[Peer]) -> Iterator[int]:
    return (envelope["retry_attempt"] for peer in peers for envelope in peer.envelopes())


async def test_hello_counts_the_connections(hub: Hub) -> None:
    async with connected(hub, 2) as peers:
        assert [peer.frames[0]["num_connections"] for peer in peers] == [1, 2]


async def test_each_event_goes_to_exactly_one_connection(hub: Hub) -> None:
    async with connected(hub, 3) as peers:
        for number in range(6):
            hub.deliver("events_api", {"event_id": f"Ev{number}"})
        await settle()
        seen = [envelope["payload"]["event_id"] for peer in peers for envelope in peer.envelopes()]
        assert sorted(seen) == [f"Ev{number}" for number in range(6)]
        assert [len(peer.envelopes()) for peer in peers] == [2, 2, 2]


async def test_an_acknowledged_event_is_not_sent_again(hub: Hub, clock: ManualClock) -> None:
    async with connected(hub) as [peer]:
        hub.deliver("events_api", EVENT)
        await settle()
        peer.ack(peer.envelopes()[0])
        await clock.advance(1000)
        assert len(peer.envelopes()) == 1
        assert (hub.pending, hub.counts.acked, hub.counts.lost) == (0, 1, 0)


async def test_a_silent_app_gets_three_retries_and_then_the_event_is_lost(
    hub: Hub, clock: ManualClock
) -> None:
    async with connected(hub) as [peer]:
        hub.deliver("events_api", EVENT)
        seen = []
        for passed_s in (2.9, 1.2, 3 + 59, 1, 3 + 299, 1, 3):
            await clock.advance(passed_s)
            seen.append(list(attempts([peer])))
        assert seen == [[0], [0, 1], [0, 1], [0, 1, 2], [0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 3]]
        assert [envelope["retry_reason"] for envelope in peer.envelopes()] == ["", *["timeout"] * 3]
        assert (hub.pending, hub.counts.lost) == (0, 1)


async def test_events_of_a_time_without_connections_come_as_retries(hub: Hub, clock: ManualClock) -> None:
    hub.deliver("events_api", EVENT)
    await clock.advance(30)
    async with connected(hub) as [peer]:
        assert peer.envelopes() == []
        await clock.advance(31)
        assert list(attempts([peer])) == [2]
        peer.ack(peer.envelopes()[0])
        await settle()
        assert hub.counts.lost == 0


async def test_commands_are_sent_once_and_bring_the_acks_payload_back(hub: Hub, clock: ManualClock) -> None:
    async with connected(hub) as [peer]:
        asking = asyncio.create_task(hub.ask("slash_commands", EVENT, accepts_response=True))
        await settle()
        assert peer.envelopes()[0]["accepts_response_payload"] is True
        peer.ack(peer.envelopes()[0], {"text": "pong"})
        assert await asking == {"text": "pong"}
        unanswered = asyncio.create_task(hub.ask("interactive", EVENT, accepts_response=False))
        await clock.advance(500)
        with pytest.raises(MethodError, match="operation_timeout"):
            await unanswered
        assert len(peer.envelopes()) == 2


async def test_an_ack_may_come_over_another_connection(hub: Hub, clock: ManualClock) -> None:
    async with connected(hub, 2) as [one, other]:
        hub.deliver("events_api", EVENT)
        await settle()
        sender, receiver = (one, other) if other.envelopes() else (other, one)
        sender.ack(receiver.envelopes()[0])
        await clock.advance(1000)
        assert hub.counts.retried == 0


@pytest.mark.parametrize("text", ["", "not json", "[]", "3", '{"envelope_id": 7}', '{"envelope_id": "no"}'])
async def test_nonsense_from_the_app_is_ignored(hub: Hub, text: str) -> None:
    async with connected(hub) as [peer]:
        peer.say(text)
        hub.deliver("events_api", EVENT)
        await settle()
        peer.ack(peer.envelopes()[0], None)
        await settle()
        assert hub.counts.acked == 1


async def test_a_refresh_keeps_the_old_connection_for_its_grace(hub: Hub, clock: ManualClock) -> None:
    async with connected(hub) as [old]:
        hub.disconnect("refresh_requested")
        hub.deliver("events_api", EVENT)
        await clock.advance(9)
        assert (old.goodbyes(), old.closed, len(old.envelopes())) == (["refresh_requested"], False, 2)
        async with connected(hub) as [new]:
            for _ in range(4):
                hub.deliver("events_api", EVENT)
            await settle()
            assert (len(new.envelopes()), len(old.envelopes())) == (4, 2)
            await clock.advance(2)
            assert (old.closed, new.closed) == (True, False)


async def test_a_warning_closes_nothing(hub: Hub, clock: ManualClock) -> None:
    async with connected(hub) as [peer]:
        hub.disconnect("warning")
        await clock.advance(1000)
        assert (peer.goodbyes(), peer.closed) == (["warning"], False)


async def test_a_disabled_link_is_for_good(hub: Hub) -> None:
    async with connected(hub) as [peer]:
        hub.disconnect("link_disabled")
        await settle()
        assert (peer.goodbyes(), peer.closed) == (["link_disabled"], True)
    with pytest.raises(MethodError, match="feature_not_enabled"):
        hub.connections.issue_ticket()


async def test_the_eleventh_connection_is_sent_away(hub: Hub) -> None:
    async with connected(hub, MAX_CONNECTIONS + 1) as peers:
        assert peers[-1].goodbyes() == ["too_many_websockets"]
        assert peers[-1].closed
        assert len(hub.connections) == MAX_CONNECTIONS


async def test_a_used_ticket_is_refused(hub: Hub) -> None:
    ticket = hub.connections.issue_ticket()
    first = Peer(hub, ticket)
    await settle()
    second = Peer(hub, ticket)
    await settle()
    assert (first.closed, second.closed, len(hub.connections)) == (False, True, 1)
    first.leave()
    await asyncio.gather(first.task, second.task)
