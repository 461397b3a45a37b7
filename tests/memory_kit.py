"""Conversations from which a worker learns, from a model of the tests over real HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import msgspec

from codebutler.config.schema import (
    KimiSection,
    MemorySection,
    RepoSettings,
)
from codebutler.domain.model import Command
from tests.events import clicked, posted
from tests.modelserver.completions import CompletionsServer
from tests.modelserver.server import Reply
from tests.shown import blocks_of
from tests.worker_kit import CHANNEL, USER, Parent, settings

KEY = "sk-kimi-0123456789abcdef"
Review = Literal["auto", "ask", "off"]


def learning(repo: Path, model: CompletionsServer, review: Review = "auto") -> RepoSettings:
    plain = settings(repo, silence_seconds=60)
    kimi = KimiSection(api_key=KEY, base_url=model.base_url, model="kimi-test")
    config = msgspec.structs.replace(plain.config, kimi=kimi, memory=MemorySection(review=review))
    return msgspec.structs.replace(plain, config=config)


def memory(repo: Path) -> str:
    file = repo / ".codebutler" / "memory.md"
    return file.read_text() if file.exists() else ""


def wants(*operations: dict[str, str]) -> Reply:
    return Reply(json.dumps(operations))


def append(line: str) -> dict[str, str]:
    return {"op": "append", "line": line}


async def talk(
    parent: Parent,
    ts: str = "100.1",
    answer: str = "Done.",
    asked: str = "how do we deploy?",
    thread: str | None = None,
) -> None:
    """One turn to its end."""
    number = len(parent.backend.runs)
    parent.says(asked, ts, thread)
    (await parent.run(number)).finish(answer)
    await parent.until(lambda: "white_check_mark" in parent.reactions(ts), flow=True)


async def silence(parent: Parent) -> None:
    """Nobody says anything for a minute."""
    await parent.clock.advance(61)


async def learned(parent: Parent, lines: int = 1) -> list[str]:
    """The log of the memory once it has so many lines, after a silence."""
    await silence(parent)
    await parent.until(lambda: len(parent.logs("MEM")) >= lines, flow=True)
    return parent.logs("MEM")


def says(parent: Parent, argument: str, ts: str) -> None:
    event = posted(channel=CHANNEL, ref=ts, user=USER, text=f"!memory {argument}", thread=None)
    parent.deliver(event, Command(name="memory", argument=argument))


def press(parent: Parent, action: str, value: str, ts: str, user: str = USER, times: str = "1") -> None:
    parent.deliver(
        clicked(
            channel=CHANNEL,
            user=user,
            message=ts,
            action_id=action,
            value=value,
            press=times,
            user_name="Ana",
        )
    )


@asynccontextmanager
async def card_of(parent: Parent) -> AsyncIterator[tuple[str, str]]:
    """(ts, change) of the card that asks."""
    post = await parent.post_with("Remember this for every new session?")
    button = blocks_of(post)[-1]["elements"][0]
    sent = next(each for each in parent.heard if getattr(each, "operation", None) is post)
    yield parent.ts_of(sent.op_id), str(button["value"])  # type: ignore[union-attr] # a Send
