"""Many people at once: how soon the last of them has the answer, with Slack's rate limits enforced."""

from __future__ import annotations

from pathlib import Path

from bench.figures import Figure, limit
from bench.least import least_s
from bench.scene import BenchError, Pace, Scene, scene
from tests.history import answers

CHANNELS, MESSAGES = 16, 5
ONE_EACH_S = 5.0
PATIENCE_S = 180.0
QUESTION = "What did I say?"


async def measure(place: Path, pace: Pace) -> list[Figure]:
    """From the first message to the last answer, and what Slack refused."""
    async with scene(place / "few", CHANNELS, strict=True) as product:
        await product.supervise()
        last_s = await _all_answered(product, MESSAGES)
        refused = product.server.limits.violations
        print(f"  burst: calls {dict(product.server.limits.calls)}; beyond Slack's limits {dict(refused)}")
    async with scene(place / "many", pace.burst_channels, strict=True) as product:
        await product.supervise()
        each_s = await _all_answered(product, 1)
        refused += product.server.limits.violations
    what = f"{CHANNELS} channels × {MESSAGES} messages at once"
    return [
        Figure(
            what=f"{what}: the last answer",
            measured=last_s,
            against=least_s(dict.fromkeys(product.names[:CHANNELS], MESSAGES)),
            against_what="Slack's limits",
            unit="s",
            reach=1.5,
        ),
        limit(
            f"{pace.burst_channels} channels × 1 message at once: the last answer", each_s, ONE_EACH_S, "s"
        ),
        limit("the same: calls beyond Slack's limits", refused.total(), 0, "calls"),
    ]


async def _all_answered(product: Scene, messages: int) -> float:
    """Seconds from the first message to the last answer. Raises BenchError."""
    server = product.server
    asked = [(name, server.say(name, QUESTION)) for _ in range(messages) for name in product.names]

    def look() -> list[float] | None:
        threads = [answers(server.thread(name, ts)) for name, ts in asked]
        return [float(thread[0]["ts"]) for thread in threads] if all(threads) else None

    try:
        told = await server.until(look, PATIENCE_S)
    except TimeoutError:
        raise BenchError(f"not all {len(asked)} messages were answered within {PATIENCE_S:g} s") from None
    return max(told) - float(asked[0][1])
