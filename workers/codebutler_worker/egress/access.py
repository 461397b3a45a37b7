"""Network access for one program, through a proxy while it runs.

Nothing of ours keeps running in a namespace without network. The launcher there creates a listening socket, passes it
out through a Unix socket that is removed a moment later, and becomes the program; we answer from outside.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import shutil
import socket
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Self

from msgspec.structs import replace

from codebutler_worker.egress.hosts import PORTS, HostPort, local_places
from codebutler_worker.egress.http import MAX_HEAD_BYTES
from codebutler_worker.egress.proxy import Proxy
from codebutler_worker.egress.service import TokenMeter
from codebutler_worker.sandbox.port import Network, ProxySocket, SandboxPolicy

PORT = 3128
"""The proxy's port inside. Any port would do, since the namespace has no others; this one is recognizable."""
HAND_OVER_S = 60.0
GONE_S = 1.0
BACKLOG = 128
LOOPBACK = "127.0.0.1"
SHORT = "/tmp"  # noqa: S108 - the path of a Unix socket has at most 107 bytes
FORWARDED_AT_MOST = 64
"""Ports of this machine's loopback. All their descriptors, and a few more, can be passed at once (unix(7))."""
HELD_AT_MOST = 256
"""Connections per program; agents and package managers use a few dozen."""
HERE = "localhost,127.0.0.1,::1"

log = logging.getLogger(__name__)

IMPATIENT: Mapping[str, str] = MappingProxyType(
    {
        "PIP_RETRIES": "1",
        "UV_HTTP_RETRIES": "1",
        "npm_config_fetch_retries": "1",
        "npm_config_fetch_retry_mintimeout": "1000",
        "CARGO_NET_RETRY": "1",
    }
)
"""For package managers: retrying for minutes does not help if a host is refused."""

NAMED = 5


def new_token() -> str:
    """What an agent holds in place of a key."""
    return f"codebutler-{secrets.token_hex(24)}"


@dataclass(slots=True)
class NetworkAccess:
    """Without a proxy. Use as an async context manager around the program's whole life.

    ``network`` and ``env`` go into its policy; ``port``: where the service is on its loopback (0 = there is no proxy);
    ``refused``: the hosts that it asked for and may not reach, each once; ``gauge``: the tokens of its model's service
    so far, none if its key does not pass through a proxy.
    """

    network: Network = "open"
    port: int = 0
    env: Mapping[str, str] = field(default_factory=dict)
    refused: list[HostPort] = field(default_factory=list)
    gauge: TokenMeter = field(default_factory=TokenMeter)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def through(self, policy: SandboxPolicy) -> SandboxPolicy:
        """``policy`` with this network access."""
        return replace(policy, network=self.network, env={**policy.env, **self.env})

    async def close(self) -> None:
        """Nothing gets through a proxy any more."""


@dataclass(slots=True)
class ProxiedAccess(NetworkAccess):
    """With a ``proxy``, whose ``refused`` and ``gauge`` it shares, and perhaps nothing else."""

    proxy: Proxy = field(kw_only=True, repr=False)
    _servers: list[asyncio.Server] = field(default_factory=list)
    _listener: socket.socket | None = None
    _directory: Path | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)
    _closed: bool = False

    async def here(self) -> None:
        """Listen on this machine's own loopback, for programs that share its network."""
        await self._serve(socket.create_server((LOOPBACK, 0), backlog=BACKLOG))
        self.port = self._servers[0].sockets[0].getsockname()[1]

    def behind_socket(self, workdir: Path) -> None:
        """Listen in the namespace of the first client to connect, as a proxy and on each listed port of this machine's
        loopback. If we are root, that client runs as the owner of ``workdir``. Raises OSError."""
        local = tuple(sorted(local_places(self.proxy.rules.hosts.entries)))[:FORWARDED_AT_MOST]
        port = next(port for port in range(PORT, PORT + len(local) + 1) if port not in local)
        self._directory = Path(tempfile.mkdtemp(prefix="cb-proxy-", dir=SHORT))
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        proxy = ProxySocket(self._directory / "socket", port, local)
        try:
            self._listener.bind(str(proxy.path))
            self._listener.listen(1)
            self._listener.settimeout(0)
            if os.geteuid() == 0:
                uid = workdir.stat().st_uid
                os.chown(proxy.path, uid, -1)
                os.chown(self._directory, uid, -1)
        except OSError:
            self._shut()
            raise
        self.network, self.port = proxy, port
        # The variables by which programs find the proxy.
        names = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
        found = {**dict.fromkeys(names, f"http://{LOOPBACK}:{port}"), "NO_PROXY": HERE, "no_proxy": HERE}
        self.env = {**found, "NODE_USE_ENV_PROXY": "1", **IMPATIENT}
        taking = asyncio.create_task(self._take(self._listener), name="network access")
        self._tasks.add(taking)
        taking.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Close all connections; nothing gets through any more."""
        self._closed = True
        for server in self._servers:
            server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=GONE_S)
        for writer in self._writers:
            writer.transport.abort()
        if self.proxy.ahead is not None:
            await self.proxy.ahead.close()
        self._shut()

    def _shut(self) -> None:
        """Close the Unix socket, whether or not a client has connected."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    async def _take(self, listener: socket.socket) -> None:
        """Serve at the listening sockets that the first client passes out; any that is not on the loopback is closed.
        Without a thread: switching to one and back would take longer than all the rest."""
        loop, sent = asyncio.get_running_loop(), asyncio.Event()
        try:
            async with asyncio.timeout(HAND_OVER_S):
                connection, _ = await loop.sock_accept(listener)
                with connection:
                    loop.add_reader(connection, sent.set)
                    try:
                        await sent.wait()
                    finally:
                        loop.remove_reader(connection)
                    _, fds, _, _ = socket.recv_fds(connection, 1, 1 + FORWARDED_AT_MOST)
                for given in [socket.socket(fileno=fd) for fd in fds]:
                    listens = given.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                    if given.family == socket.AF_INET and listens and given.getsockname()[0] == LOOPBACK:
                        given.settimeout(0)
                        await self._serve(given)
                    else:
                        given.close()
        except (OSError, TimeoutError) as error:
            log.warning("an agent cannot reach the proxy from its sandbox: %s", error or type(error).__name__)
        finally:
            self._shut()

    async def _handle(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, local: HostPort | None
    ) -> None:
        try:
            await self.proxy.handle(reader, writer, local)
        finally:
            self._writers.discard(writer)

    async def _serve(self, listener: socket.socket) -> None:
        """Listen there: as the service that the configuration names for this port, if any, else as the proxy."""
        local = local_places(self.proxy.rules.hosts.entries).get(listener.getsockname()[1])

        def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            # Each connection takes one of our descriptors, and perhaps another one for its target.
            if self._closed or len(self._writers) >= HELD_AT_MOST:
                writer.transport.abort()
                return
            # A task cancelled before it starts closes nothing, so we keep its connection here too.
            self._writers.add(writer)
            task = asyncio.create_task(self._handle(reader, writer, local), name="network access")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        self._servers.append(await asyncio.start_server(handle, sock=listener, limit=MAX_HEAD_BYTES))


def noted(text: str, refused: Sequence[HostPort]) -> str:
    """An agent's answer, with a line about the hosts it was refused. Pure."""
    if not refused:
        return text
    names = [f"`{place.host if place.port in PORTS else place.authority}`" for place in refused]
    names = list(dict.fromkeys(names))
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    note = f"_⚠️ The sandbox blocked access to {', '.join(names[:NAMED])}{more}. To allow it, change `sandbox.hosts`._"
    return f"{text}\n\n{note}" if text else note
