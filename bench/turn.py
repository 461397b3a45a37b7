"""The two waits of a run: from the event to the agent's process, and from its result line to the answer's post.

The agent is ``agent.sh``, behind the real sandbox where there is one; it tells when it began and answered.
The workspace stamps a message with the moment the call that posted it came in.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from pathlib import Path

from bench.figures import Figure, limit, median
from bench.peer import bolt
from bench.scene import BenchError, Pace, asked, scene, whole_text
from codebutler.workspace.server import Options, WorkspaceServer

WARM_UP_TURNS = 2
TOLD = re.compile(r"began (\d+\.\d+), answered (\d+\.\d+)")


async def measure(place: Path, pace: Pace) -> list[Figure]:
    """Two figures, both medians over turns that start a process each. What the bare steps cost on the same machine
    at the same time is printed beside: a machine that dozes between two turns makes either slow."""
    ours, bare = Waits(), Waits()
    async with (
        scene(place) as product,
        WorkspaceServer(Options(channels=product.names)) as other,
        bolt(other, "bare_app.py", str(place / "bare.db")),
    ):
        await product.supervise()
        for number in range(WARM_UP_TURNS + pace.turns):
            for server, waits in ((product.server, ours), (other, bare)):
                took = await _turn(server, product.names[0])
                if number >= WARM_UP_TURNS:
                    waits.add(*took)
                await asyncio.sleep(pace.pause_s)
    for who, waits in (("ours", ours), ("the bare steps", bare)):
        print(f"  turn ms, {who}: starts {_told(waits.starts)}; answers {_told(waits.answers)}")
    return [
        limit("event → agent process started, median", median(ours.starts), 60),
        limit("agent's result → chat.postMessage, median", median(ours.answers), 15),
    ]


@dataclass
class Waits:
    """Of each turn, in milliseconds."""

    starts: list[float] = field(default_factory=list)
    answers: list[float] = field(default_factory=list)

    def add(self, start: float, answer: float) -> None:
        """One turn more: milliseconds to its beginning, and to its answer."""
        self.starts.append(start)
        self.answers.append(answer)


async def _turn(server: WorkspaceServer, channel: str) -> tuple[float, float]:
    said_s, reply = await asked(server, channel, "What is here?", "began ")
    found = TOLD.search(whole_text(reply))
    if found is None:
        raise BenchError(f"not the agent's answer: {reply}")
    return (float(found[1]) - said_s) * 1000, (float(reply["ts"]) - float(found[2])) * 1000


def _told(values: list[float]) -> str:
    return f"{' '.join(f'{value:.1f}' for value in values)} (median {median(values):.1f})"
