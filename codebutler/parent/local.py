"""Where the workers come from: forked on this machine, or run by the hosts of a cluster."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from codebutler.config.paths import Home
from codebutler.domain.clock import Clock
from codebutler.intake.journal import Journal
from codebutler.intake.records import Notes
from codebutler.platform.processes import Descriptors
from codebutler.platform.signals import Stopping
from codebutler.protocol.messages import LogTag
from codebutler.supervisor.forkserver import ForkServer, kill_orphans
from codebutler.supervisor.port import Places, Services, Shared
from codebutler.supervisor.supervisor import Supervisor
from codebutler.supervisor.workers import Workers

Record = Callable[[str, LogTag, str], None]


@dataclass(frozen=True)
class Beginning:
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
