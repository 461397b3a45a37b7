"""A short disconnection in a busy workspace: how soon the missed message of each channel is answered.

A real supervisor beside the embedded workspace, with Slack's rate limits. Each channel has a past of its own: every
message in it was answered in its thread.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from bench.figures import Figure, limit
from bench.past import live_through
from bench.scene import BenchError, Pace, Scene, all_ready, scene, whole_text
from codebutler.workspace.state import Message

MESSAGES = 2_000
AT_MOST_S = 30.0
CALLS = 2
DEADLINE_S = 600.0
# A line is seldom cut right after a start, which has used up what Slack allows at once.
QUIET_S = 30.0
READING = ("conversations.history", "conversations.replies")


async def measure(place: Path, pace: Pace) -> list[Figure]:
    """One message is missed in each channel; it comes with no retry of Slack's."""
    async with scene(place, pace.past_channels) as product:
        await product.supervise()
        await asyncio.gather(*(product.asked("go", "answered", name) for name in product.names))
        await asyncio.sleep(pace.settle_s)
        await product.stop()
        for name in product.names:
            live_through(product, name, MESSAGES)
        await product.supervise()
        await _read(product)
        product.server.limits.enforced = True
        before = _calls(product)
        missed = {name: _unheard(product, name) for name in product.names}
        product.server.hub.connections.drop()
        cut_s = time.time()
        answered = await asyncio.gather(*(_answered(product, name, ts) for name, ts in missed.items()))
        await _read(product)
        # The owner's direct messages are caught up, too.
        calls = (_calls(product) - before) / (len(product.names) + 1)
    what = f"a line cut, {pace.past_channels} channels × {MESSAGES:,} messages"
    return [
        limit(f"{what}: the last missed message is answered", max(answered) - cut_s, AT_MOST_S, "s"),
        limit(f"{what}: calls that read history, a conversation", calls, CALLS, ""),
    ]


async def _read(product: Scene) -> None:
    """Until what may have been missed has been looked for, and a moment more."""
    await product.until_status(lambda status: all_ready(status) and not status["slack"]["catching_up"])
    await asyncio.sleep(QUIET_S)


def _unheard(product: Scene, name: str) -> str:
    """Somebody writes and no event tells of it; returns the ts."""
    workspace = product.server.workspace
    message = Message(ts=workspace.next_ts(), user=workspace.person.id, text="!ping")
    workspace.channel(product.server.channel_id(name)).add(message)
    return message.ts


async def _answered(product: Scene, name: str, ts: str) -> float:
    def look() -> float | None:
        said = [each for each in product.server.thread(name, ts) if "pong" in whole_text(each)]
        return float(said[0]["ts"]) if said else None

    try:
        return await product.server.until(look, DEADLINE_S)
    except TimeoutError:
        raise BenchError(f"the missed message of {name} was not answered") from None


def _calls(product: Scene) -> int:
    return sum(product.server.limits.calls[method] for method in READING)
