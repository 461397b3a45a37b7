"""How long a new user waits from `git clone` over `make run` to the answer to a first message in the chat.

The environment is made anew from the package index that pip is configured for, without pip's cache.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from slack_sdk.web.async_client import AsyncWebClient

from bench.figures import Figure, limit
from bench.scene import BenchError, Pace
from tests.ordinary import open_the_way

LIMIT_S = 60.0
WORK_S = 30.0
"""Processor time: what is left of the figure where others keep the machine busy."""
PATIENCE_S = 600.0
POLL_S = 0.05
SOURCE = Path(__file__).parents[1]
ASKED = "replace Hello with Good morning in greet.py"
DONE, FAILED = "white_check_mark", "x"


async def measure(place: Path, _pace: Pace) -> list[Figure]:
    """Once: from the clone to the answer."""
    place.mkdir(parents=True)
    (place / "tmp").mkdir()
    open_the_way(place / "tmp")
    checkout = place / "checkout"
    before_s = _worked_s()
    began_s = time.monotonic()
    cloning = await asyncio.create_subprocess_exec("git", "clone", "-q", str(SOURCE), str(checkout))
    if await cloning.wait():
        raise BenchError("git clone failed")
    python = f"PYTHON={getattr(sys, '_base_executable', sys.executable)}"
    env = {**os.environ, "PIP_NO_CACHE_DIR": "1", "BROWSER": "true", "TMPDIR": str(place / "tmp")}
    for name in ("VIRTUAL_ENV", "MAKEFLAGS", "MAKELEVEL"):
        env.pop(name, None)
    demo = await asyncio.create_subprocess_exec(
        *("make", "run", python),
        cwd=checkout,
        env=env,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(PATIENCE_S):
            url = await _address(demo)
            ready_s = time.monotonic()
            await _answered(url)
            answered_s = time.monotonic()
    except TimeoutError:
        raise BenchError(f"no answer within {PATIENCE_S:g} s") from None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(demo.pid, signal.SIGINT)
        await demo.wait()
    return [
        limit("git clone and make run until the page is there", ready_s - began_s, LIMIT_S, "s"),
        limit("git clone to the first answer of the demo", answered_s - began_s, LIMIT_S, "s"),
        limit("processor time of all that, and of its end", _worked_s() - before_s, WORK_S, "s"),
    ]


def _worked_s() -> float:
    """Processor time of the programs that were started here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


async def _address(demo: asyncio.subprocess.Process) -> str:
    assert demo.stdout is not None
    async for line in demo.stdout:
        word, _, rest = line.decode().partition(" ")
        if word == "Open":
            return rest.strip()
    raise BenchError("make run ended before it printed an address")


async def _answered(url: str) -> None:
    """Write as the person at the page, and wait for the outcome."""
    parts = urlsplit(url)
    client = AsyncWebClient(url.partition("token=")[2], base_url=f"{parts.scheme}://{parts.netloc}/api/")
    client.proxy = None
    channel = (await client.conversations_list())["channels"][0]["id"]
    ts = str((await client.chat_postMessage(channel=channel, text=ASKED))["ts"])
    while True:
        told = (await client.reactions_get(channel=channel, timestamp=ts))["message"]
        names = {reaction["name"] for reaction in told.get("reactions", [])}
        if FAILED in names:
            raise BenchError("the first message failed")
        if DONE in names:
            return
        await asyncio.sleep(POLL_S)  # asked as a client asks
