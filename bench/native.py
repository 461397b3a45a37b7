"""The built-in agent's own time for each step, and how much of each request the service can take from its cache.

The model answers at once, and each request is spelled as it would be sent; the tool does next to nothing, so what is
left is the loop: deciding, keeping the session on disk, writing the log.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

from msgspec.structs import replace

from bench.figures import Figure, limit, median
from bench.scene import BenchError, Pace
from codebutler.domain.clock import SystemClock
from codebutler_worker.agents.backend import Finished, Refusal, ToolResult, TurnRequest
from codebutler_worker.agents.native.backend import Habits, NativeBackend
from codebutler_worker.agents.native.loop import LoopLimits
from codebutler_worker.agents.native.model import (
    AssistantMessage,
    ModelReply,
    ModelRequest,
    TokenCount,
    ToolCall,
)
from codebutler_worker.agents.native.services import Dialect
from codebutler_worker.agents.native.sessions import NativeSessions
from codebutler_worker.agents.native.turn import Thinker
from codebutler_worker.agents.native.wire import body
from codebutler_worker.agents.running import AgentContext
from codebutler_worker.agents.session_logs import SessionLogs
from codebutler_worker.egress.policy import NetworkPolicy
from codebutler_worker.sandbox.port import SandboxPolicy
from codebutler_worker.sandbox.select import NoSandbox
from codebutler_worker.tools.programs import tool_policy
from codebutler_worker.tools.reading import READ_FILES, ReadFilesArguments
from codebutler_worker.tools.tool import Context, Result
from tests.ordinary import give_repository_away

STEPS = 100
CONTENT = "a line of a file, as long as many are\n" * 60


async def told(_context: Context, _args: ReadFilesArguments) -> Result:
    """What read_files would say, without reading anything: what tools do takes time of its own."""
    return Result(CONTENT)


class Metronome:
    """A model that wants to read a part of a file, ``STEPS`` times; it keeps what it was sent."""

    name = "metronome"

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    async def ask(self, prompt: ModelRequest) -> AsyncGenerator[Refusal | ModelReply]:
        """The next step, or the end."""
        self.bodies.append(body(self.name, prompt, Dialect("own")))
        at = len(self.bodies)
        if at > STEPS:
            yield ModelReply(AssistantMessage("Done."))
            return
        given = json.dumps({"paths": ["file.txt"], "lines": at})
        yield ModelReply(
            AssistantMessage("I read on.", (ToolCall(f"c{at}", "read_files", given),)), TokenCount(100, 10)
        )

    async def close(self) -> None:
        """There is nothing to let go of."""


async def measure(place: Path, pace: Pace) -> list[Figure]:
    """Two figures: the median step of a turn, and the request that was least like the one before."""
    repo = place / "repo"
    (repo / ".codebutler").mkdir(parents=True)
    give_repository_away(repo)
    steps_ms: list[float] = []
    unlike: list[float] = []
    for number in range(pace.rounds):
        model = Metronome()
        steps_ms += await _turn(_agent(repo, model), repo, number)
        unlike += [_unlike(before, now) for before, now in itertools.pairwise(model.bodies)]
    return [
        limit("the native agent's own time per step, median", median(steps_ms), 5),
        limit("what its requests do not repeat of the one before, at most", max(unlike), 5, "%"),
    ]


def _agent(repo: Path, model: Metronome) -> NativeBackend:
    context = AgentContext(NoSandbox(), SystemClock(), NetworkPolicy("none"), SessionLogs(repo, 30))

    def policy(workdir: Path, chat: str) -> SandboxPolicy:
        return tool_policy(workdir, repo, os.defpath, {}, chat)

    thinker = Thinker(model=model, context=10_000_000, cost=lambda _: None)
    habits = Habits(limits=LoopLimits(most_turns=STEPS + 1))
    return NativeBackend(
        thinker, (replace(READ_FILES, run=told),), context, policy, NativeSessions(repo, 30), habits
    )


async def _turn(agent: NativeBackend, repo: Path, number: int) -> list[float]:
    """Milliseconds from result to result."""
    request = TurnRequest(turn_id=f"bench{number}", conversation="C1:1", prompt="read", workdir=repo)
    stamps: list[float] = []
    async with asyncio.timeout(60), aclosing(agent.start(request)) as events:
        async for event in events:
            if isinstance(event, ToolResult):
                stamps.append(time.monotonic())
            elif isinstance(event, Finished) and not event.ok:
                raise BenchError(event.text)
    return [(now - before) * 1000 for before, now in itertools.pairwise(stamps)]


def _unlike(before: bytes, now: bytes) -> float:
    """How much of the one before, in percent, does not begin the other."""
    shorter = min(len(before), len(now))
    same = next((at for at in range(shorter) if before[at] != now[at]), shorter)
    return 100 * (1 - same / len(before))
