"""One turn's two waits: from the event to the agent's process, and from its result line to the answer's post.

The agent is ``agent.sh``, behind the real sandbox where there is one; it tells when it began and answered.
The workspace stamps a message with the moment the call that posted it came in.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from bench.figures import Figure, limit, median
from bench.scene import BenchError, Pace, Scene, scene, whole_text

WARM_UP_TURNS = 2
TOLD = re.compile(r"began (\d+\.\d+), answered (\d+\.\d+)")


async def measure(place: Path, pace: Pace) -> list[Figure]:
    """Two figures, both medians over turns that start a process each."""
    starts: list[float] = []
    answers: list[float] = []
    async with scene(place) as product:
        await product.supervise()
        for number in range(WARM_UP_TURNS + pace.turns):
            start_ms, answer_ms = await _turn(product)
            if number >= WARM_UP_TURNS:
                starts.append(start_ms)
                answers.append(answer_ms)
            await asyncio.sleep(pace.pause_s)
    print(f"  turn ms: starts {_told(starts)}; answers {_told(answers)}")
    return [
        limit("event → agent process started, median", median(starts), 60),
        limit("agent's result → chat.postMessage, median", median(answers), 15),
    ]


async def _turn(product: Scene) -> tuple[float, float]:
    said_s, reply = await product.asked("What is here?", "began ")
    found = TOLD.search(whole_text(reply))
    if found is None:
        raise BenchError(f"not the agent's answer: {reply}")
    return (float(found[1]) - said_s) * 1000, (float(reply["ts"]) - float(found[2])) * 1000


def _told(values: list[float]) -> str:
    return " ".join(f"{value:.1f}" for value in values)
