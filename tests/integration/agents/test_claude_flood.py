"""What Claude Code, or a tool in its name, writes faster than it is heard: it waits in the pipe, not in our memory."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from codebutler_worker.agents.claude.turn import LARGE_BYTES, QUEUE_LINES, EndOfStream, LiveSession
from codebutler_worker.programs.process import AgentProcess
from codebutler_worker.sandbox.port import Launch

LINES, LINE_BYTES = 60, 2**20
AT_MOST_BYTES = 4 * LINE_BYTES
STEPS = 2000
"""So often the reader may go on while nobody hears: enough for all the lines, 64 KB at a time."""
FLOOD = f"""
for number in range({LINES}):
    print('{{"type": "novelty", "text": "' + "x" * {LINE_BYTES} + '"}}', flush=True)
"""


async def test_large_lines_wait_until_they_are_heard(tmp_path: Path) -> None:
    read = 0

    def record(data: bytes) -> None:
        nonlocal read
        read += len(data)

    launch = Launch((sys.executable, "-c", FLOOD), {}, tmp_path)
    session = LiveSession(await AgentProcess.spawn(launch, record=record))
    try:
        async with asyncio.timeout(120):
            for _ in range(STEPS):
                await asyncio.to_thread(str)
            assert 0 < read <= AT_MOST_BYTES
            heard = 0
            while not isinstance(await session.hear(), EndOfStream):
                heard += 1
                assert read <= heard * LINE_BYTES + AT_MOST_BYTES
    finally:
        await session.end(at_once=True)
    assert heard == LINES


async def test_small_ones_wait_in_a_queue(tmp_path: Path) -> None:
    many = f"print('{{\"type\": \"novelty\"}}\\n' * {3 * QUEUE_LINES}, end='')"
    session = LiveSession(await AgentProcess.spawn(Launch((sys.executable, "-c", many), {}, tmp_path)))
    heard = 0
    async with asyncio.timeout(120):
        while not isinstance(await session.hear(), EndOfStream):
            heard += 1
    await session.end()
    assert heard == 3 * QUEUE_LINES
    assert QUEUE_LINES * LARGE_BYTES <= 16 * 2**20
