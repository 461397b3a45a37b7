"""A program of slack_bolt, connected to a workspace of its own, to measure beside ours."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bench.scene import DEADLINE_S
from codebutler.workspace.server import WorkspaceServer


@asynccontextmanager
async def bolt(server: WorkspaceServer, program: str, *arguments: str) -> AsyncIterator[None]:
    """``program``, a file beside this one, run by this interpreter until the block ends."""
    env = {
        "PATH": os.environ["PATH"],
        "BOT_TOKEN": server.bot_token,
        "APP_TOKEN": server.app_token,
        "API_URL": server.api_url,
    }
    argv = [sys.executable, str(Path(__file__).with_name(program)), *arguments]
    process = await asyncio.to_thread(subprocess.Popen, argv, env=env)
    try:
        await server.until(lambda: len(server.hub.connections) == 1, DEADLINE_S)
        yield
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait)
