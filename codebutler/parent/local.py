"""A parent's process: what it begins with, where its workers come from (forked on this machine, or run by the hosts of
a cluster), and its life: it serves until it is asked to stop, and then drains."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from codebutler.config.paths import Home
from codebutler.domain.clock import Clock
from codebutler.intake.journal import Journal
from codebutler.intake.records import Notes
from codebutler.parent.configuration import GRACE_S, Configuration
from codebutler.parent.integration import ChatConnections, Inbound, Outbound
from codebutler.parent.operator import Operator
from codebutler.parent.parts import Parts
from codebutler.platform.processes import Descriptors, kill_orphans
from codebutler.platform.signals import Stopping
from codebutler.platform.tasks import beside
from codebutler.protocol.control import control_server
from codebutler.protocol.messages import LogTag, StopReason
from codebutler.supervisor.forkserver import ForkServer
from codebutler.supervisor.port import Places, Services, Shared
from codebutler.supervisor.supervisor import Supervisor
from codebutler.supervisor.workers import Workers

Record = Callable[[str, LogTag, str], None]
FLUSH_S = 5.0


class Beginning(Struct, frozen=True):
    """A process that holds its home: what every composition root starts from."""

    home: Home
    env: Mapping[str, str]
    clock: Clock
    descriptors: Descriptors
    stopping: Stopping


class WorkerSource(Protocol):
    """Makes the workers that serve the repositories. ``are_remote``: they run on hosts, not on this machine.
    ``notes``: where the next gateway finds what it needs, None = there is no other."""

    are_remote: bool
    notes: Notes | None

    def start(self) -> None:
        """Called once, before anything else is opened."""

    def journal(self, path: Path, clock: Clock) -> Journal:
        """Where accepted events are stored. Blocks. Raises as ``Journal.open``."""

    def open(self, services: Services, record: Record) -> AbstractAsyncContextManager[Workers]:
        """Leaving the block ends what still runs here."""


class LocalWorkers:
    """Workers of this machine, forked from a server that is started before anything else is loaded."""

    are_remote = False
    notes: Notes | None = None

    def __init__(self, beginning: Beginning) -> None:
        self._beginning = beginning
        # A demo's home differs from the environment's; and programs are searched for beyond our own PATH.
        path = beginning.env.get("PATH", os.defpath)
        env = {"CODEBUTLER_HOME": str(beginning.home.root), "PATH": path}
        self._spawner = ForkServer(given=env, files=beginning.descriptors.given)

    def start(self) -> None:
        """Start the fork server."""
        self._spawner.start()

    def journal(self, path: Path, clock: Clock) -> Journal:
        """Opens the journal's file."""
        return Journal.open(path, clock)

    @asynccontextmanager
    async def open(self, services: Services, record: Record) -> AsyncIterator[Supervisor]:
        """Ends what an earlier supervisor left behind."""
        places = Places(self._beginning.descriptors.workers)
        shared = Shared(self._spawner.spawn, services, self._beginning.clock, random.random, places=places)
        async with Supervisor(shared) as supervisor:
            if ended := await asyncio.to_thread(kill_orphans):
                record("", "WRN", f"ended {ended} processes left by an earlier supervisor")
            yield supervisor


class Serving:
    """From the first connection to the last message that leaves; ``run`` is all of it."""

    def __init__(
        self,
        parts: Parts,
        outbound: Outbound,
        inbound: Inbound,
        configuration: Configuration,
        connections: ChatConnections,
    ) -> None:
        self._journal = parts.journal
        self._tasks = parts.tasks
        self._record = parts.logs.record
        self._socket = parts.given.home.socket
        self._configuration = configuration
        self._intake = inbound.intake
        self._moves = inbound.moves
        self._connections = connections
        self._supervisor = outbound.supervisor
        self._chats = outbound.chats

    async def run(self, operator: Operator, stopping: Stopping) -> None:
        """Runs until ``stopping``. Raises ChatAuthError if every chat refuses its tokens at the start."""
        await self._configuration.begin()
        await self._moves.resume()
        await self._intake.resume()
        self._record("", "INF", f"serving {self._configuration.count} (pid {os.getpid()})")
        control = control_server(self._socket, operator.answer, operator.chat)
        async with beside(self._watch_journal(), name="journal"), control:
            await self._until_asked(stopping)
            await self._moves.close()
            await self._wind_down(stopping)
        self._record("", "INF", "stopped")

    async def _watch_journal(self) -> None:
        """Events that could not be accepted while the journal was unavailable are fetched from history."""
        while True:
            self._record("", "ERR", await self._journal.news())
            if not self._journal.trouble:
                self._connections.look_again()

    async def _tell_ready(self, stopping: Stopping) -> None:
        await self._connections.any_connected.wait()
        await self._supervisor.wait_started()
        stopping.ready.set()

    async def _until_asked(self, stopping: Stopping) -> None:
        connections = asyncio.create_task(self._connections.run(), name="chats")
        asked = asyncio.create_task(stopping.asked.wait(), name="stop")
        ready = asyncio.create_task(self._tell_ready(stopping), name="readiness")
        try:
            await asyncio.wait({connections, asked}, return_when=asyncio.FIRST_COMPLETED)
            if connections.done():
                connections.result()
            await asked
        finally:
            asked.cancel()
            ready.cancel()
            if not connections.done():
                await self._connections.stop()
                connections.cancel()
            await asyncio.gather(connections, asked, ready, return_exceptions=True)

    async def _wind_down(self, stopping: Stopping) -> None:
        """Drain within the grace period; at the second signal, stop now. Unfinished work is on disk."""
        self._record(
            "", "INF", f"stopping: running work has {GRACE_S:g} s to finish, a second signal ends it now"
        )
        reason: StopReason = "restart" if stopping.restarts else "shutdown"
        drained = asyncio.create_task(self._drain(reason), name="drain")
        insisted = asyncio.create_task(stopping.insisted.wait(), name="insist")
        await asyncio.wait({drained, insisted}, return_when=asyncio.FIRST_COMPLETED)
        if not drained.done():
            await self._supervisor.shutdown(0)
            drained.cancel()
        insisted.cancel()
        await asyncio.gather(drained, insisted, return_exceptions=True)

    async def _drain(self, reason: StopReason) -> None:
        await self._supervisor.shutdown(GRACE_S, reason)
        await self._tasks.close(FLUSH_S)
        try:
            async with asyncio.timeout(FLUSH_S):
                await self._chats.drain()
        except TimeoutError:
            self._record("", "WRN", f"{self._chats.pending} messages remain for the next start")
