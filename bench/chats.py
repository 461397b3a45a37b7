"""The parent's memory with a second chat: with two repositories in Slack, and with one of them in Telegram.

Each parent has answered a command in both repositories, so what a chat needs is loaded.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import msgspec

from bench.figures import Figure
from bench.flood import pss_mb
from bench.scene import DEADLINE_S, BenchError, Pace, Scene, scene
from codebutler.config.registry import Registry, RepoEntries
from tests.telegram.server import ANA, GROUP, BotServer

MOST_MORE_MB = 10.0


async def measure(place: Path, pace: Pace) -> list[Figure]:
    """The memory of a parent that serves both, held to that of one with Slack alone and 10 MB more."""
    async with scene(place / "slack", 2) as product:
        await product.supervise()
        for name in product.names:
            await product.asked("!ping", "pong", name)
        alone_mb = await settled_mb(product, pace.settle_s)
    async with BotServer() as telegram, scene(place / "both", 2) as product:
        _move_last(product, telegram)
        await product.supervise()
        await product.asked("!ping", "pong")
        await _asked(telegram)
        both_mb = await settled_mb(product, pace.settle_s)
    print(f"  parent MB: Slack alone {alone_mb:.1f}; with Telegram {both_mb:.1f}")
    return [
        Figure(
            what="memory of a parent with Slack and Telegram",
            measured=both_mb,
            against=alone_mb + MOST_MORE_MB,
            against_what="Slack alone + 10 MB",
            unit="MB",
        )
    ]


async def settled_mb(product: Scene, settle_s: float) -> float:
    """Megabytes of the parent, after ``settle_s``."""
    await asyncio.sleep(settle_s)  # what is measured is memory at rest
    if product.supervisor is None:
        raise BenchError("no supervisor runs")
    return await asyncio.to_thread(pss_mb, product.supervisor.pid)


def _move_last(product: Scene, telegram: BotServer) -> None:
    """The last repository is spoken to in a group of Telegram's."""
    config = json.loads(product.home.config.read_text())
    config["telegram"] = {"botToken": telegram.token, "apiBaseUrl": telegram.url, "allowedUsers": [ANA]}
    product.home.config.write_text(json.dumps(config))

    def moved(entries: RepoEntries) -> RepoEntries:
        return *entries[:-1], msgspec.structs.replace(entries[-1], channel_id=f"tg:{GROUP}")

    Registry(product.home).update(moved)


async def _asked(telegram: BotServer) -> None:
    telegram.say(GROUP, "/ping")
    try:
        async with asyncio.timeout(DEADLINE_S):
            while not any("pong" in text for text in telegram.telegram.texts(GROUP)):  # noqa: ASYNC110 - the server sets no event
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise BenchError(f"no answer in Telegram: {telegram.telegram.texts(GROUP)}") from None
