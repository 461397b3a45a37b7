"""The peer of the ack measurement: slack_bolt as its own manual sets it up, with a listener that does nothing."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from slack_bolt.adapter.socket_mode.aiohttp import AsyncSocketModeHandler
from slack_bolt.async_app import AsyncApp
from slack_sdk.web.async_client import AsyncWebClient


async def take(event: dict[str, Any]) -> None:
    """Bolt has acknowledged the event by now."""
    del event


async def main() -> None:
    """Until SIGTERM. The workspace's address and tokens come in the environment."""
    client = AsyncWebClient(os.environ["BOT_TOKEN"], base_url=os.environ["API_URL"])
    app = AsyncApp(client=client)
    app.event({"type": "message", "subtype": "message_deleted"})(take)
    await AsyncSocketModeHandler(app, os.environ["APP_TOKEN"]).start_async()  # type: ignore[no-untyped-call] # theirs


if __name__ == "__main__":
    asyncio.run(main())
