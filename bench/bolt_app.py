"""The peer of the ack measurement: slack_bolt as its own manual sets it up, with a listener that does nothing.

Given a file's name, its listener commits each event there (WAL, FULL) and only then slack_bolt acknowledges it: on
its one thread, which is the quickest it can.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import sys
from typing import Any

from slack_bolt.adapter.socket_mode.aiohttp import AsyncSocketModeHandler
from slack_bolt.async_app import AsyncApp
from slack_sdk.web.async_client import AsyncWebClient


async def take(event: dict[str, Any]) -> None:
    """Bolt has acknowledged the event by now."""
    del event


class Keeper:
    """Keeps every event in ``database``."""

    def __init__(self, database: str) -> None:
        self._rows = sqlite3.connect(database, isolation_level=None)
        self._rows.execute("PRAGMA journal_mode = WAL").fetchone()
        self._rows.execute("PRAGMA synchronous = FULL")
        self._rows.execute("PRAGMA fullfsync = ON")
        self._rows.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, content TEXT)")

    async def take(self, event: dict[str, Any]) -> None:
        """Bolt acknowledges the event when this returns."""
        self._rows.execute("INSERT INTO rows (content) VALUES (?)", (json.dumps(event),))


async def main() -> None:
    """Until SIGTERM. The workspace's address and tokens come in the environment."""
    listener = Keeper(sys.argv[1]).take if len(sys.argv) > 1 else take
    client = AsyncWebClient(os.environ["BOT_TOKEN"], base_url=os.environ["API_URL"])
    app = AsyncApp(client=client, process_before_response=len(sys.argv) > 1)
    app.event({"type": "message", "subtype": "message_deleted"})(listener)
    await AsyncSocketModeHandler(app, os.environ["APP_TOKEN"]).start_async()  # type: ignore[no-untyped-call] # theirs


if __name__ == "__main__":
    asyncio.run(main())
