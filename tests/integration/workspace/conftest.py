"""A running workspace, and Slack's own clients against it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from typing import Any

import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from codebutler.workspace.server import Options, WorkspaceServer
from codebutler.workspace.socket import Timing


@pytest.fixture
async def server() -> AsyncIterator[WorkspaceServer]:
    options = Options(channels=("demo", "other"), timing=Timing().scaled(0.01))
    async with WorkspaceServer(options) as running:
        yield running


def client_for(server: WorkspaceServer, token: str) -> AsyncWebClient:
    client = AsyncWebClient(token, base_url=server.api_url)
    # The client takes a proxy from the environment even for loopback.
    client.proxy = None
    return client


@pytest.fixture
def bot(server: WorkspaceServer) -> AsyncWebClient:
    return client_for(server, server.bot_token)


@pytest.fixture
def person(server: WorkspaceServer) -> AsyncWebClient:
    return client_for(server, server.user_token)


@pytest.fixture
def channel(server: WorkspaceServer) -> str:
    return server.channel_id("demo")


async def refused(call: Awaitable[Any]) -> str:
    """The error with which a call is refused."""
    with pytest.raises(SlackApiError) as caught:
        await call
    return str(caught.value.response["error"])
