"""The app's open Socket Mode connections: tickets, hello and disconnect messages, and load balancing. Slack: a ticket
is good for one connection; up to ten connections may be open."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from typing import Literal, TypeVar

import msgspec
from msgspec import Struct, field
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketDisconnected

from codebutler.workspace.state import Json, MethodError

T = TypeVar("T")
MAX_CONNECTIONS = 10
Reason = Literal["warning", "refresh_requested", "link_disabled", "too_many_websockets"]


class Signal:
    """Call ``notify`` after every change; ``until`` checks again after each and returns the first true result."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()

    def notify(self) -> None:
        """Something has changed: everybody who waits checks again. Costs nothing if nobody waits."""
        for future in self._waiting:
            if not future.done():
                future.set_result(None)

    async def until(self, condition: Callable[[], T | None], timeout_s: float) -> T:
        """Raises TimeoutError if ``condition`` returns nothing true within ``timeout_s``."""
        async with asyncio.timeout(timeout_s):
            while not (found := condition()):
                await self._changed()
            return found

    async def _changed(self) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            await future
        finally:
            self._waiting.discard(future)


class Connection(Struct, eq=False):
    """One open websocket. ``draining``: asked to disconnect, used only if there is no other. ``deaf``: it stays open,
    but what is sent over it does not arrive."""

    transport: asyncio.Transport | None
    outgoing: asyncio.Queue[Json | None] = field(default_factory=asyncio.Queue)
    draining: bool = False
    deaf: bool = False

    def send(self, envelope: Json) -> None:
        """Queue it, unless the connection is deaf."""
        if not self.deaf:
            self.outgoing.put_nowait(envelope)


class Connections:
    """The connections of one app. ``signal`` is notified when one opens or closes; ``on_frame`` gets what they send."""

    def __init__(self, app_id: str, signal: Signal, on_frame: Callable[[str], None]) -> None:
        self.enabled = True
        self._app_id = app_id
        self._signal = signal
        self._on_frame = on_frame
        self._tickets: set[str] = set()
        self._open: list[Connection] = []
        self._turn = 0

    def __len__(self) -> int:
        return len(self._open)

    @property
    def active_count(self) -> int:
        """How many were not asked to disconnect."""
        return sum(not connection.draining for connection in self._open)

    def issue_ticket(self) -> str:
        """A ticket for one connection. Raises MethodError if Socket Mode is switched off."""
        if not self.enabled:
            raise MethodError("feature_not_enabled")
        ticket = secrets.token_urlsafe(24)
        self._tickets.add(ticket)
        return ticket

    async def serve(self, socket: WebSocket, transport: asyncio.Transport | None) -> None:
        """One connection from handshake to close; a ticket that was not issued, or was used, is refused."""
        ticket = socket.query_params.get("ticket", "")
        if ticket not in self._tickets:
            await socket.close(1008)
            return
        self._tickets.discard(ticket)
        await socket.accept()
        if len(self._open) >= MAX_CONNECTIONS:
            await socket.send_json(self._disconnect_message("too_many_websockets"))
            await socket.close()
            return
        connection = Connection(transport)
        self._open.append(connection)
        connection.outgoing.put_nowait(self._hello())
        self._signal.notify()
        writer = asyncio.create_task(_write(socket, connection), name="workspace-socket-writer")
        try:
            async for text in socket.iter_text():
                self._on_frame(text)
        except WebSocketDisconnected:
            pass  # the writer found out first
        finally:
            self._open.remove(connection)
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)
            self._signal.notify()

    def next_connection(self) -> Connection | None:
        """The next connection to send to, None if there is none."""
        candidates = [connection for connection in self._open if not connection.draining] or self._open
        if not candidates:
            return None
        self._turn += 1
        return candidates[self._turn % len(candidates)]

    def disconnect(self, reason: Reason) -> list[Connection]:
        """Send a disconnect message to every connection, as Slack does before closing; returns those to close."""
        for connection in self._open:
            connection.outgoing.put_nowait(self._disconnect_message(reason))
            connection.draining = connection.draining or reason != "warning"
        if reason == "link_disabled":
            self.enabled = False
        return [] if reason == "warning" else list(self._open)

    def drop(self) -> None:
        """Drop every connection without warning."""
        for connection in self._open:
            if connection.transport is not None:
                connection.transport.abort()

    def deafen(self) -> None:
        """From now on nothing arrives over the present connections, which stay open; new ones work."""
        for connection in self._open:
            connection.deaf = True

    def close(self) -> None:
        """Close every connection once its queue is sent."""
        for connection in self._open:
            connection.outgoing.put_nowait(None)

    def _hello(self) -> Json:
        return {
            "type": "hello",
            "num_connections": len(self._open),
            "debug_info": {"host": "workspace", "build_number": 1, "approximate_connection_time": 18060},
            "connection_info": {"app_id": self._app_id},
        }

    def _disconnect_message(self, reason: Reason) -> Json:
        message: Json = {"type": "disconnect", "reason": reason, "debug_info": {"host": "workspace"}}
        if reason == "too_many_websockets":
            message.update(num_connections=len(self._open), connection_info={"app_id": self._app_id})
        return message


async def _write(socket: WebSocket, connection: Connection) -> None:
    """Send the queue in order; None closes the connection."""
    try:
        while (frame := await connection.outgoing.get()) is not None:
            await socket.send_text(msgspec.json.encode(frame).decode())
        await socket.close()
    except (WebSocketDisconnect, RuntimeError):
        # The peer is gone; the reader closes the connection.
        return
