"""What every worker's supervision is made with, and its times."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from codebutler.clock import Clock
from codebutler.supervisor.places import Places
from codebutler.supervisor.port import Services, Spawner
from codebutler.supervisor.restart import Policy

STARTS_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Timing:
    """How long a worker may take. ``abort_s`` is what it gets to dump its stacks; ``eof_s`` to end once its
    pipe is closed; ``slot_s`` how long a slow start may keep others from starting."""

    start_s: float = 30.0
    heartbeat_s: float = 5.0
    missed: int = 3
    abort_s: float = 2.0
    eof_s: float = 2.0
    sleep_grace_s: float = 10.0
    slot_s: float = 3.0

    @property
    def silence_s(self) -> float:
        """A worker that says nothing for this long hangs."""
        return self.heartbeat_s * self.missed


@dataclass(frozen=True, slots=True)
class Kit:
    """Shared by all handles; ``rng`` gives numbers in [0, 1). Made inside a running loop. ``places``: how many may run
    at once; ``slots``: how many of them may be starting."""

    spawner: Spawner
    services: Services
    clock: Clock
    rng: Callable[[], float]
    timing: Timing = field(default_factory=Timing)
    policy: Policy = field(default_factory=Policy)
    places: Places = field(default_factory=Places)
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(STARTS_AT_ONCE))
