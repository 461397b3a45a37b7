"""The peer of the turn measurement: the least that the same steps can cost, as slack_bolt's own manual sets it up.

A message is committed (WAL, FULL), a program is started behind bubblewrap where there is one, its line is committed
and posted. Nothing is authorised, queued, limited, shown or remembered.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import sys
from typing import Any

from slack_bolt.adapter.socket_mode.aiohttp import AsyncSocketModeHandler
from slack_bolt.async_app import AsyncApp
from slack_sdk.web.async_client import AsyncWebClient

AGENT = "began=$EPOCHREALTIME; sleep 1; echo began $began, answered $EPOCHREALTIME"
SANDBOX = (
    "bwrap",
    "--unshare-pid",
    "--ro-bind",
    "/",
    "/",
    "--proc",
    "/proc",
    "--dev",
    "/dev",
    "--die-with-parent",
)


class Bare:
    """What one message costs."""

    def __init__(self, database: str, client: AsyncWebClient) -> None:
        self._client = client
        self._rows = sqlite3.connect(database, isolation_level=None, check_same_thread=False)
        self._rows.execute("PRAGMA journal_mode = WAL").fetchone()
        self._rows.execute("PRAGMA synchronous = FULL")
        self._rows.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, content TEXT)")
        self._sandbox = SANDBOX if shutil.which("bwrap") else ()

    async def take(self, event: dict[str, Any]) -> None:
        """Answer one message in its thread."""
        if event.get("bot_id"):
            return
        await self._keep(str(event.get("text")))
        program = await asyncio.create_subprocess_exec(
            *self._sandbox, "bash", "-c", AGENT, stdout=asyncio.subprocess.PIPE
        )
        assert program.stdout is not None
        line = (await program.stdout.readline()).decode()
        await self._keep(line)
        await self._client.chat_postMessage(channel=event["channel"], text=line, thread_ts=event["ts"])

    async def _keep(self, content: str) -> None:
        await asyncio.to_thread(self._rows.execute, "INSERT INTO rows (content) VALUES (?)", (content,))


async def main() -> None:
    """Until SIGTERM. The workspace's address and tokens come in the environment; a file's name is the argument."""
    client = AsyncWebClient(os.environ["BOT_TOKEN"], base_url=os.environ["API_URL"])
    app = AsyncApp(client=client)
    app.event("message")(Bare(sys.argv[1], client).take)
    await AsyncSocketModeHandler(app, os.environ["APP_TOKEN"]).start_async()  # type: ignore[no-untyped-call] # theirs


if __name__ == "__main__":
    asyncio.run(main())
