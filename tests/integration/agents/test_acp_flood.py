"""What an agent writes over its protocol faster than it is heard: it waits in the pipe, not in our memory."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from codebutler_worker.agents.acp.link import LARGE_BYTES, Pipe
from codebutler_worker.sandbox.port import Launch
from codebutler_worker.sandbox.process import AgentProcess

WRITE = f"""
for size in (1, {LARGE_BYTES}, 1):
    print('{{"method": "m", "params": "' + "x" * size + '"}}', flush=True)
"""


async def test_after_a_large_message_all_is_heard_before_the_next_is_read(tmp_path: Path) -> None:
    asked: list[bool] = []

    async def room(large: bool) -> None:
        asked.append(large)

    async with await AgentProcess(Launch((sys.executable, "-c", WRITE), {}, tmp_path)).start() as process:
        pipe = Pipe(process, room)
        async with asyncio.timeout(60):
            while await pipe.receive() is not None:
                pass
    assert asked == [False, False, True, False]
