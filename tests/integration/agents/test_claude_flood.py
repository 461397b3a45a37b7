"""What Claude Code, or a tool in its name, writes faster than it is heard: it waits in the pipe, not in our memory."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from codebutler.domain.clock import SystemClock
from codebutler_worker.agents.backend import TurnRequest
from codebutler_worker.agents.claude.translate import ClaudeTranslator
from codebutler_worker.agents.claude.turn import ClaudeTurn
from codebutler_worker.agents.process import TimeLimits
from codebutler_worker.egress.access import NetworkAccess
from codebutler_worker.sandbox.port import Launch
from codebutler_worker.sandbox.process import AgentProcess

LINES, LINE_BYTES = 60, 2**20
AT_MOST_BYTES = 4 * LINE_BYTES
STEPS = 2000
"""So often the reader may go on while nobody hears: enough for all the lines, 64 KB at a time."""
FLOOD = f"""
for number in range({LINES}):
    noise = "x" * {LINE_BYTES}
    print('{{"type": "rate_limit_event", "rate_limit_info": {{"status": "rejected", "x": "' + noise + '"}}}}')
"""


async def test_what_nobody_has_heard_yet_is_not_read(tmp_path: Path) -> None:
    read = 0

    def record(data: bytes) -> None:
        nonlocal read
        read += len(data)

    process = await AgentProcess(Launch((sys.executable, "-c", FLOOD), {}, tmp_path), record=record).start()
    request = TurnRequest(turn_id="t", conversation="c", prompt="p", workdir=tmp_path)
    access, translator = NetworkAccess("none"), ClaudeTranslator(tmp_path)
    turn = ClaudeTurn(request, process, access, SystemClock(), TimeLimits(600), process.lines(), translator)
    heard = 0
    try:
        async with asyncio.timeout(120):
            async for _ in turn.events():
                if not heard:
                    for _step in range(STEPS):
                        await asyncio.to_thread(str)
                heard += 1
                assert read <= heard * LINE_BYTES + AT_MOST_BYTES
    finally:
        await turn.end(at_once=True)
    assert heard == LINES
    assert turn.verdict is not None
    assert turn.verdict.reason == "failed"
