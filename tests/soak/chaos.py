"""Everything that goes wrong in a soak, at random and on the record."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections import Counter
from dataclasses import dataclass
from random import Random
from typing import cast

from codebutler.workspace.api import Fault, Kind
from codebutler.workspace.connections import Reason
from tests.soak.gauges import below, children
from tests.soak.plan import Plan
from tests.soak.stage import Stage

# Five deaths within ten minutes mean quarantine, which is right and would end the soak for that repository.
DEATHS_OF_A_WORKER = 3
END_S = 60.0
RESTART_S = 0.5
METHODS = (
    "chat.postMessage",
    "chat.postMessage",
    "chat.update",
    "reactions.add",
    "reactions.remove",
    "conversations.replies",
    "conversations.history",
    "apps.connections.open",
    "files.getUploadURLExternal",
    "files.upload",
    "files.completeUploadExternal",
    "files.download",
)


@dataclass(frozen=True, slots=True)
class Tried:
    """A fault: its kind, its moment (Unix time), and whom it can have touched ("" = all)."""

    kind: str
    at_s: float
    channel: str = ""


class Chaos:
    """``run`` for ever; ``tried`` is the record. The supervisor is started again whenever it ended."""

    def __init__(self, stage: Stage, plan: Plan, rng: Random) -> None:
        self._ending = False
        self.tried: list[Tried] = []
        self._stage = stage
        self._plan = plan
        self._rng = rng
        self._deaths: Counter[str] = Counter()

    @property
    def pid(self) -> int | None:
        """The supervisor's, while it lives."""
        supervisor = self._stage.built.supervisor
        return supervisor.pid if supervisor is not None and supervisor.returncode is None else None

    async def run(self) -> None:
        kinds, weights = list(self._plan.weights), list(self._plan.weights.values())
        while True:
            await asyncio.sleep(self._rng.expovariate(1 / self._plan.fault_s))
            [kind] = self._rng.choices(kinds, weights)
            await self.do(kind)

    def calm(self) -> None:
        """No more faults in what Slack answers."""
        self._stage.built.workspace.faults.clear()

    async def do(self, kind: str) -> None:
        """One fault of a kind."""
        match kind.split(" ", 1):
            case ["slack:", fault]:
                self._slack(kind, cast(Kind, fault))
            case ["socket:", reason]:
                self._stage.built.workspace.hub.disconnect(cast(Reason, reason))
                self._note(kind)
            case ["cut", _]:
                self._stage.built.workspace.hub.connections.drop()
                self._note(kind)
            case [_, "supervisor"]:
                await self._end_supervisor(kind)
            case [_, "fork server"]:
                self._kill_fork_server(kind)
            case _:
                await self._harm_worker(kind)

    def _note(self, kind: str, channel: str = "") -> None:
        self.tried.append(Tried(kind, time.time(), channel))

    def _slack(self, kind: str, fault: Kind) -> None:
        method = self._rng.choice(METHODS)
        delay_s = self._rng.uniform(0.2, 2.0)
        times = self._rng.choice((1, 1, 2))
        error = self._rng.choice(("internal_error", "service_unavailable"))
        status = self._rng.choice((500, 502, 503))
        order = Fault(method=method, kind=fault, times=times, status=status, error=error, delay_s=delay_s)
        self._stage.built.workspace.faults.add(order)
        self._note(kind)

    async def _end_supervisor(self, kind: str) -> None:
        self._note(kind)
        self._ending = True
        await self._stage.built.stop(signal.SIGKILL if kind.startswith("kill") else signal.SIGTERM)
        self._deaths.clear()
        await asyncio.sleep(RESTART_S)
        await self._stage.built.start_supervisor()
        self._ending = False

    async def see_off(self) -> None:
        """Wait for the end of a supervisor that was told to end when the faults were over; see that there is one."""
        if self._ending and self._stage.built.supervisor is not None:
            async with asyncio.timeout(END_S):
                await self._stage.built.supervisor.wait()
        if self.pid is None:
            await self._stage.built.start_supervisor()

    def _kill_fork_server(self, kind: str) -> None:
        """The process whose children the workers are."""
        for child in children(self.pid or 0):
            if children(child):
                self._deaths.update(repo.name for repo in self._stage.repos)
                self._kill(child, signal.SIGKILL)
                self._note(kind)

    async def _harm_worker(self, kind: str) -> None:
        status = await self._stage.built.status()
        rows = [row for row in status["repos"] if row["worker"]["pid"]] if status else []
        spared = {name for name, times in self._deaths.items() if times >= DEATHS_OF_A_WORKER}
        if kind == "kill agent":
            rows = [row for row in rows if children(row["worker"]["pid"])]
        else:
            rows = [row for row in rows if row["name"] not in spared]
        if not rows:
            return
        row = self._rng.choice(rows)
        pid = row["worker"]["pid"]
        if kind == "kill agent":
            pid = self._rng.choice(below(pid) or [0])
        else:
            self._deaths[row["name"]] += 1
        if pid and self._kill(pid, signal.SIGSTOP if kind == "stop worker" else signal.SIGKILL):
            self._note(kind, row["channel_id"])

    def _kill(self, pid: int, number: signal.Signals) -> bool:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
            return True
        return False
