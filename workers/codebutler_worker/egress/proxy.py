"""The proxy: answers each connection that a program without network makes to its own loopback."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from codebutler.domain.clock import Clock, SystemClock
from codebutler.platform.tasks import abort
from codebutler_worker.egress.hosts import Ahead, Dialer, HostPort, Hosts, UnreachableError, place
from codebutler_worker.egress.http import (
    MalformedHttpError,
    Mask,
    RequestHead,
    Streams,
    both_ways,
    closing,
    parse,
    pass_body,
    pass_rest,
    refusal,
)
from codebutler_worker.egress.service import ECHOES, AnswerMeter, ModelService, TokenMeter, WrongKeyError

HEAD_S = 60.0
AT_ONCE = 128
ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"
OPENING = 'add it to "sandbox": {"hosts": [...]} in the configuration, or set sandbox.network to "open"'
WRONG_KEY = "CodeButler adds the key of the model's service itself: another key may not be used from inside the sandbox"

Request = tuple[RequestHead, int | None]
"""A head, and the length of its body in bytes (None = chunks)."""
REFUSED_AT_MOST = 1000
log = logging.getLogger(__name__)


class Rules(Struct, frozen=True):
    """What one program may reach: ``hosts`` on the internet, and ``service``, its model's service."""

    hosts: Hosts = msgspec.field(default_factory=Hosts)
    service: ModelService | None = None


@dataclass(slots=True)
class Proxy:
    """One program's proxy: ``handle`` is called with each connection, and closes it. ``refused``: requested places that
    are not on the list, each once; ``logged``: those already logged."""

    rules: Rules
    dialer: Dialer = field(default_factory=Dialer)
    clock: Clock = field(default_factory=SystemClock)
    gauge: TokenMeter = field(default_factory=TokenMeter)
    refused: list[HostPort] = field(default_factory=list)
    logged: set[HostPort] = field(default_factory=set)
    ahead: Ahead | None = field(default=None, init=False)
    """The next connection to the service, once ``prepare`` was called."""
    _room: asyncio.Semaphore = field(default_factory=partial(asyncio.Semaphore, AT_ONCE))

    def prepare(self) -> None:
        """Open the connection that the first request to a service behind TLS will need, and then the next ones. Whoever
        calls this closes ``ahead``."""
        service = self.rules.service
        if service is not None and service.secure and service.place is not None:
            self.ahead = Ahead(partial(self.dialer.service, service.place, secure=True), self.clock)
            self.ahead.prepare()

    async def handle(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, local: HostPort | None = None
    ) -> None:
        """Handle one request or one tunnel. ``local``: the port of this machine's loopback that the connection is
        for."""
        try:
            async with self._room:
                if local is None:
                    await self._answer(reader, writer)
                else:
                    await self._join((reader, writer), await self.dialer.local(local))
        except (OSError, EOFError, asyncio.LimitOverrunError, TimeoutError, UnreachableError):
            pass  # the client has gone or never sent anything, or the server is not there
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(HEAD_S):
            data = await reader.readuntil(b"\r\n\r\n")
        try:
            await self._serve(parse(data), (reader, writer))
        except MalformedHttpError as error:
            writer.write(
                refusal(400, "Bad Request", f"CodeButler's proxy does not accept this request: {error}")
            )
        except WrongKeyError:
            writer.write(refusal(403, "This key may not be used here (CodeButler)", WRONG_KEY))
        except UnreachableError as error:
            writer.write(refusal(502, "Unreachable (CodeButler)", f"CodeButler's proxy: {error}"))
        await writer.drain()

    async def _serve(self, head: RequestHead, client: Streams) -> None:
        if head.method == "CONNECT":
            await self._tunnel(head, client)
        elif head.target.startswith("/"):
            await self._ask_service(head, client)
        else:
            await self._forward(head, client)

    async def _tunnel(self, head: RequestHead, client: Streams) -> None:
        wanted = place(head.target)
        if wanted is None:
            raise MalformedHttpError("it names no host and port")
        if not self._allowed(wanted, client[1]):
            return
        server = await self.dialer.public(wanted)
        client[1].write(ESTABLISHED)
        await self._join(client, server)

    async def _join(self, client: Streams, server: Streams) -> None:
        try:
            await both_ways(client, server)
        finally:
            abort(server[1].transport)

    async def _forward(self, head: RequestHead, client: Streams) -> None:
        """Plain HTTP to another host."""
        try:
            parts = urlsplit(head.target)
        except ValueError:  # malformed brackets around an address
            raise MalformedHttpError("it names no host") from None
        wanted = place(parts.netloc, 80)
        if parts.scheme != "http" or wanted is None:
            raise MalformedHttpError("it names no host")
        if not self._allowed(wanted, client[1]):
            return
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        server = await self.dialer.public(wanted)
        await self._exchange((head.onward(path, parts.netloc), head.body), client, server)

    async def _ask_service(self, head: RequestHead, client: Streams) -> None:
        service = self.rules.service
        if service is None or service.place is None or not service.has(head.target):
            client[1].write(refusal(404, "Not Found", "CodeButler's proxy: there is nothing at this address"))
            return
        if head.method in ECHOES:
            client[1].write(refusal(405, "Method Not Allowed", f"CodeButler's proxy: no {head.method} here"))
            return
        onward, length = service.onward(head), head.body
        if self.ahead is None:
            server = await self.dialer.service(service.place, secure=service.secure)
        else:
            server = await self.ahead.take()
            self.ahead.prepare()
        mask, reading = service.mask, self.gauge.reading(head.target, length or 0)
        if mask is None or reading is None:
            await self._exchange((onward, length), client, server, mask)
            return
        # A response of the service passes the token meter and the mask that hides its key.
        try:
            gauged = partial(_gauged, reading, mask)
            await self._exchange((onward, length), client, server, gauged, reading.ask)
        finally:
            reading.end()

    async def _exchange(
        self,
        request: Request,
        client: Streams,
        server: Streams,
        mask: Mask | None = None,
        count: Callable[[int], object] = int,
    ) -> None:
        """Forward one request and its response through ``mask``, and nothing after them. ``count``: see pass_body."""
        head, length = request
        try:
            server[1].write(head.encode())
            async with asyncio.TaskGroup() as tasks:
                asking = tasks.create_task(self._ask(length, client, server, count))
                await self._reply(client, server, mask)
                asking.cancel()
        except* (OSError, EOFError, asyncio.LimitOverrunError, MalformedHttpError):
            pass  # whichever side it was, the other one sees the connection close
        finally:
            abort(server[1].transport)

    async def _ask(
        self, length: int | None, client: Streams, server: Streams, count: Callable[[int], object]
    ) -> None:
        await pass_body(client[0], server[1], length, count)
        # No further request is read here; but if the program goes away, nobody waits for the response.
        if not await client[0].read(1):
            abort(server[1].transport)

    async def _reply(self, client: Streams, server: Streams, mask: Mask | None) -> None:
        status = 100
        while status < 200:
            status, head = closing(await server[0].readuntil(b"\r\n\r\n"))
            client[1].write(head if mask is None else mask(head) + mask(b""))
        await pass_rest(server[0], client[1], mask)

    def _allowed(self, wanted: HostPort, writer: asyncio.StreamWriter) -> bool:
        if self.rules.hosts.allow(wanted):
            return True
        if wanted not in self.refused and len(self.refused) < REFUSED_AT_MOST:
            self.refused.append(wanted)
        if wanted not in self.logged and len(self.logged) < REFUSED_AT_MOST:
            self.logged.add(wanted)
            log.warning(
                "the sandbox blocked an agent's access to %s: to allow it, %s", wanted.authority, OPENING
            )
        reason = f"{wanted.host} is not in sandbox.hosts (CodeButler)"
        text = (
            f"CodeButler's sandbox does not let this agent reach {wanted.authority}. "
            f"To allow it, the owner of this machine can {OPENING}."
        )
        writer.write(refusal(403, reason, text))
        return False


def _gauged(reading: AnswerMeter, mask: Mask, piece: bytes) -> bytes:
    reading.add(piece)
    return mask(piece)
