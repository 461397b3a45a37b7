"""A supervisor over workers without processes, on a clock that stands still until told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from codebutler.protocol.messages import (
    Heartbeat,
)
from codebutler.supervisor.port import Shared
from codebutler.supervisor.supervisor import Supervisor
from tests.clock import ManualClock, settle
from tests.workers.inprocess import FakeSpawner, FakeWorker
from tests.workers.services import RecordingServices, repo


@dataclass
class Stage:
    supervisor: Supervisor
    spawner: FakeSpawner
    services: RecordingServices
    clock: ManualClock

    @property
    def worker(self) -> FakeWorker:
        return self.spawner.last

    def state(self, name: str = "shop") -> str:
        return next(row.worker.state for row in self.supervisor.rows() if row.name == name)

    async def beat(self, seconds: float, **load: int) -> None:
        """Let time pass while the worker keeps beating."""
        for _ in range(int(seconds // 5)):
            self.worker.say(Heartbeat(**load))
            await self.clock.advance(5)


@asynccontextmanager
async def stage(
    *, eager: bool = True, stubborn: bool = False, idle_min: float = 0, start: bool = True
) -> AsyncIterator[Stage]:
    services, clock = RecordingServices(), ManualClock()
    spawner = FakeSpawner(eager=eager, stubborn=stubborn)
    async with Supervisor(Shared(spawner.spawn, services, clock, lambda: 0.0)) as supervisor:
        supervisor.add(repo(idle_min=idle_min))
        if start:
            supervisor.start()
        await settle()
        yield Stage(supervisor, spawner, services, clock)
