"""Which hosts a program may reach, and how to connect to them: the name is resolved once, every address is checked, and
the connection goes to exactly the checked address."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ipaddress
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from msgspec import Struct, field

from codebutler.domain.clock import Clock
from codebutler.platform.tasks import abort
from codebutler_worker.egress.http import MAX_HEAD_BYTES, Streams
from codebutler_worker.internet.addresses import (
    NotPublicError,
    PageRefusedError,
    Resolve,
    public_address,
    system_resolve,
)
from codebutler_worker.internet.remote import proxy_of

# Which hosts a program may reach: a list of names.

PORTS = (80, 443)
"""The ports that a name without a port allows."""
LOCAL = ("127.0.0.1", "localhost")
_NAME = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*")
_NUMBER = re.compile(r"\d+|0x[0-9a-f]*")
_AUTHORITY = re.compile(r"(?:\[([0-9A-Fa-f:.]{2,45})\]|([A-Za-z0-9_.-]{1,254}))(?::([0-9]{1,5}))?")


class HostPort(Struct, frozen=True):
    """``host``: a name in lower case without a final dot, or an address without brackets."""

    host: str
    port: int

    @property
    def authority(self) -> str:
        """As written in an HTTP request."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def place(authority: str, default_port: int = 0) -> HostPort | None:
    """Parse ``host:port`` from the wire; None for anything that two parsers could read differently."""
    found = _AUTHORITY.fullmatch(authority)
    if found is None:
        return None
    port = int(found[3]) if found[3] else default_port
    host = _canonical(found[1] or found[2].lower().removesuffix("."))
    return HostPort(host, port) if host and 0 < port < 65536 else None


def _canonical(host: str) -> str:
    """An address in its usual form, a name as it is; "" for anything else.

    Resolvers also accept ``127.1`` and ``0x7f.1`` as addresses, so a name whose last label is a number is refused.
    """
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        last = host.rpartition(".")[2]
        return host if _NAME.fullmatch(host) and not _NUMBER.fullmatch(last) else ""


class Hosts(Struct, frozen=True):
    """A list of allowed hosts. ``entries``: ``name``, ``*.name`` (its subdomains, not the name itself) or an address,
    each with a port after a colon, or without one (then 80 and 443)."""

    entries: tuple[str, ...] = ()

    def allow(self, wanted: HostPort) -> bool:
        """Whether ``wanted`` is on the list."""
        return any(_fits(entry, wanted) for entry in self.entries)


@cache
def local_places(entries: tuple[str, ...]) -> dict[int, HostPort]:
    """Port -> place, for those of a list's ``entries`` that are on this machine's own loopback. A program inside has a
    different loopback, which it reaches without a proxy."""
    named = [(place(entry), place(entry, port)) for entry in entries for port in PORTS]
    found = [with_port or by_scheme for with_port, by_scheme in named]
    return {at.port: at for at in reversed(found) if at is not None and at.host in LOCAL}


def _fits(entry: str, wanted: HostPort) -> bool:
    bare = entry.removeprefix("*.")
    named = place(bare, PORTS[0])
    if named is None or wanted.port not in ((named.port,) if place(bare) else PORTS):
        return False
    return wanted.host.endswith(f".{named.host}") if bare != entry else wanted.host == named.host


# Connecting to a host by name: resolved once, every address checked, and connected to exactly the checked address.

if TYPE_CHECKING:
    import ssl

CONNECT_S = 15.0

Connect = Callable[..., Awaitable[Streams]]
"""asyncio.open_connection; tests run without internet and pass their own."""


class UnreachableError(Exception):
    """No connection is possible; the message is one line that says why."""


class Dialer(Struct):
    """Connects to hosts. ``env`` may name an upstream proxy (HTTPS_PROXY, NO_PROXY) and certificate authorities to
    trust (SSL_CERT_FILE, NODE_EXTRA_CA_CERTS)."""

    env: Mapping[str, str] = field(default_factory=dict)
    resolve: Resolve = system_resolve
    connect: Connect = asyncio.open_connection
    _tls: ssl.SSLContext | None = None

    async def public(self, wanted: HostPort) -> Streams:
        """Connect to a host on the public internet, or to an address that the configuration allows explicitly.

        Raises UnreachableError.
        """
        if proxy := self._proxy(wanted):
            # Only the proxy can resolve names; our own resolver may not.
            return await self._through(proxy, wanted)
        return await self._open(await self._checked(wanted), wanted.port)

    async def local(self, wanted: HostPort) -> Streams:
        """Connect to this machine's own loopback, bypassing every proxy. Raises UnreachableError."""
        return await self._open(wanted.host, wanted.port)

    async def service(self, wanted: HostPort, *, secure: bool) -> Streams:
        """Connect to a service from trusted configuration, wherever it is. Raises UnreachableError."""
        proxy = self._proxy(wanted)
        tls: dict[str, Any] = {}
        if secure:
            # More than a hundred certificates: read once, and off the event loop.
            self._tls = self._tls or await asyncio.to_thread(self._context)
            tls = {"ssl": self._tls, "server_hostname": wanted.host}
        if proxy is None:
            return await self._open(wanted.host, wanted.port, **tls)
        reader, writer = await self._through(proxy, wanted)
        if secure:
            try:
                async with _closed_on_failure(writer), asyncio.timeout(CONNECT_S):
                    await writer.start_tls(tls["ssl"], server_hostname=wanted.host)
            except (OSError, TimeoutError) as error:
                raise UnreachableError(f"{wanted.host} cannot be reached ({_why(error)})") from None
        return reader, writer

    async def _checked(self, wanted: HostPort) -> str:
        try:
            return str(ipaddress.ip_address(wanted.host))
        except ValueError:
            pass
        try:
            async with asyncio.timeout(CONNECT_S):
                return await public_address(wanted.host, wanted.port, self.resolve)
        except TimeoutError:
            raise UnreachableError(f"looking up {wanted.host} took too long") from None
        except NotPublicError as error:
            raise UnreachableError(f"{error}: to allow it, add its address to sandbox.hosts") from None
        except PageRefusedError as error:
            raise UnreachableError(str(error)) from None

    async def _open(self, host: str, port: int, **tls: Any) -> Streams:
        try:
            async with asyncio.timeout(CONNECT_S):
                return await self.connect(host, port, limit=MAX_HEAD_BYTES, **tls)
        except (OSError, TimeoutError) as error:
            raise UnreachableError(f"{host} cannot be reached ({_why(error)})") from None

    async def _through(self, proxy: str, wanted: HostPort) -> Streams:
        parts = urlsplit(proxy)
        before = place(parts.netloc.rpartition("@")[2], 80)
        if parts.scheme != "http" or before is None:
            raise UnreachableError("HTTPS_PROXY is invalid: use http://HOST:PORT")
        reader, writer = await self._open(before.host, before.port)
        user = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
        secret = base64.b64encode(user.encode()).decode()
        login = f"Proxy-Authorization: Basic {secret}\r\n" if parts.username else ""
        name = wanted.authority
        async with _closed_on_failure(writer):
            try:
                async with asyncio.timeout(CONNECT_S):
                    writer.write(f"CONNECT {name} HTTP/1.1\r\nHost: {name}\r\n{login}\r\n".encode("latin-1"))
                    answer = await reader.readuntil(b"\r\n\r\n")
            except (OSError, TimeoutError, EOFError, asyncio.LimitOverrunError):
                answer = b""
            if answer[9:12] != b"200":
                raise UnreachableError(f"the proxy {before.authority} does not connect to {wanted.host}")
        return reader, writer

    def _proxy(self, wanted: HostPort) -> str | None:
        return proxy_of(f"https://{wanted.authority}", self.env)

    def _context(self) -> ssl.SSLContext:
        """The machine's trusted authorities and those that the CLIs bring along. Reads files."""
        import ssl

        import certifi

        context = ssl.create_default_context(cafile=self.env.get("SSL_CERT_FILE") or None)
        context.load_verify_locations(cafile=certifi.where())
        if extra := self.env.get("NODE_EXTRA_CA_CERTS"):
            context.load_verify_locations(cafile=extra)
        context.set_alpn_protocols(["http/1.1"])
        return context


@asynccontextmanager
async def _closed_on_failure(writer: asyncio.StreamWriter) -> AsyncIterator[None]:
    """Also closes the connection if the waiting task is cancelled."""
    try:
        yield
    except BaseException:
        abort(writer.transport)
        raise


def _why(error: BaseException) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or type(error).__name__


# A connection to a model's service, opened ahead of time so that nobody waits for the handshake.
#
# Each request still gets a fresh connection, so that none can hide behind another.

FRESH_S = 20.0
"""Services close an idle connection after about a minute; we discard ours well before that."""


class Ahead:
    """Holds at most one connection; opens none before ``prepare``."""

    def __init__(self, dial: Callable[[], Coroutine[Any, Any, Streams]], clock: Clock) -> None:
        self._dial = dial
        self._clock = clock
        self._begun_s = 0.0
        self._next: asyncio.Task[Streams] | None = None

    def prepare(self) -> None:
        """Start opening a connection, unless there is one already."""
        if self._next is None:
            self._begun_s = self._clock.monotonic()
            self._next = asyncio.create_task(self._dial(), name="connection ahead")

    async def take(self) -> Streams:
        """A fresh connection. Raises UnreachableError."""
        made, self._next = self._next, None
        if made is not None:
            if self._clock.monotonic() - self._begun_s < FRESH_S:
                with contextlib.suppress(UnreachableError):
                    streams = await made
                    if not streams[0].at_eof() and not streams[1].is_closing():
                        return streams
            await _discard(made)
        return await self._dial()

    async def close(self) -> None:
        """Discard the connection, if any."""
        made, self._next = self._next, None
        if made is not None:
            await _discard(made)


async def _discard(made: asyncio.Task[Streams]) -> None:
    made.cancel()
    await asyncio.wait({made})
    if not made.cancelled() and made.exception() is None:
        abort(made.result()[1].transport)
