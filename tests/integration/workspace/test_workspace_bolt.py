"""Bolt, an independent client, builds a working app on the workspace."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from slack_bolt.adapter.socket_mode.aiohttp import AsyncSocketModeHandler as AiohttpHandler
from slack_bolt.adapter.socket_mode.websockets import AsyncSocketModeHandler as WebsocketsHandler
from slack_bolt.async_app import AsyncApp
from slack_sdk.web.async_client import AsyncWebClient

from codebutler.workspace.server import WorkspaceServer

BUTTONS = [
    {
        "type": "actions",
        "block_id": "ask",
        "elements": [
            {
                "type": "button",
                "action_id": "allow",
                "value": "42",
                "text": {"type": "plain_text", "text": "Allow"},
            }
        ],
    }
]


def build_app(client: AsyncWebClient) -> AsyncApp:
    app = AsyncApp(client=client)

    @app.message("hello")
    async def greet(message: dict[str, Any], say: Any) -> None:
        await say(text=f"hi <@{message['user']}>", blocks=None, thread_ts=message["ts"])

    @app.event("app_mention")
    async def mentioned(event: dict[str, Any], say: Any) -> None:
        await say(text="you called?", thread_ts=event["ts"])

    @app.event("message")
    async def other(body: dict[str, Any]) -> None:
        del body

    @app.action("allow")
    async def allow(ack: Any, action: dict[str, Any], body: dict[str, Any], respond: Any) -> None:
        await ack()
        await respond(text=f"allowed {action['value']} in {action['block_id']}", replace_original=True)

    @app.command("/butler")
    async def butler(ack: Any, command: dict[str, Any]) -> None:
        await ack(text=f"butler heard {command['text']}", response_type="in_channel")

    return app


@pytest.fixture(params=[AiohttpHandler, WebsocketsHandler], ids=["aiohttp", "websockets"])
async def app(
    request: pytest.FixtureRequest, server: WorkspaceServer, bot: AsyncWebClient
) -> AsyncIterator[AsyncApp]:
    app = build_app(bot)
    handler = request.param(app, server.app_token)
    handler.client.proxy = None
    await handler.connect_async()
    await server.until(lambda: len(server.hub.connections) == 1)
    yield app
    await handler.close_async()


async def reply(server: WorkspaceServer, ts: str, channel: str = "demo") -> dict[str, Any]:
    thread = await server.until(lambda: server.thread(channel, ts)[1:])
    return thread[0]


async def test_a_message_reaches_the_handler_and_its_answer_the_thread(
    app: AsyncApp, server: WorkspaceServer, person: AsyncWebClient
) -> None:
    posted = await person.chat_postMessage(channel=server.channel_id("demo"), text="hello there")
    answer = await reply(server, posted["ts"])
    assert answer["text"] == f"hi <@{server.workspace.person.id}>"
    assert answer["bot_id"] == server.workspace.bot.bot_id
    assert answer["thread_ts"] == posted["ts"]


async def test_a_mention_arrives_as_app_mention_too(app: AsyncApp, server: WorkspaceServer) -> None:
    ts = server.say("demo", "@CodeButler are you there? Not me@codebutler.example")
    assert server.thread("demo", ts)[0]["text"].startswith(f"<@{server.workspace.bot.id}> are")
    assert server.thread("demo", ts)[0]["text"].endswith("me@codebutler.example")
    assert (await reply(server, ts))["text"] == "you called?"


async def test_a_click_reaches_the_app_and_its_response_replaces_the_message(
    app: AsyncApp, server: WorkspaceServer, bot: AsyncWebClient
) -> None:
    channel = server.channel_id("demo")
    asked = await bot.chat_postMessage(channel=channel, text="May I?", blocks=BUTTONS)
    given = {"channel": channel, "message_ts": asked["ts"], "action_id": "allow"}
    await server.interactions.click(server.workspace.person, given)
    shown = await server.until(lambda: _with_text(server, asked["ts"], "allowed 42 in ask"))
    assert "blocks" not in shown


async def test_a_slash_command_is_answered_in_the_channel(app: AsyncApp, server: WorkspaceServer) -> None:
    channel = server.channel_id("demo")
    given = {"channel": channel, "command": "/butler", "text": "status"}
    told = await server.interactions.slash(server.workspace.person, given)
    assert told["payload"]["text"] == "butler heard status"
    history = server.call("conversations.history", server.user_token, channel=channel)
    assert [message["text"] for message in history["messages"]] == ["butler heard status"]


async def test_the_app_goes_on_after_a_refresh(app: AsyncApp, server: WorkspaceServer) -> None:
    old = len(server.hub.connections)
    server.hub.disconnect("refresh_requested")
    await server.until(lambda: server.hub.connections.active_count == old)
    ts = server.say("demo", "hello again")
    assert (await reply(server, ts))["text"].startswith("hi ")


async def test_an_event_sent_while_nobody_was_connected_is_sent_again(
    server: WorkspaceServer, bot: AsyncWebClient
) -> None:
    ts = server.say("demo", "hello, anybody?")
    handler: Any = AiohttpHandler(build_app(bot), server.app_token)
    handler.client.proxy = None
    await handler.connect_async()
    try:
        assert (await reply(server, ts))["text"].startswith("hi ")
    finally:
        await handler.close_async()
    assert server.hub.counts.retried >= 1


async def test_a_burst_is_delivered_once_each(app: AsyncApp, server: WorkspaceServer) -> None:
    stamps = [server.say("demo", f"hello {number}") for number in range(100)]
    await server.until(lambda: all(server.thread("demo", ts)[1:] for ts in stamps), 30)
    await server.until(lambda: server.hub.pending == 0)
    assert {len(server.thread("demo", ts)) for ts in stamps} == {2}


def _with_text(server: WorkspaceServer, ts: str, text: str) -> dict[str, Any] | None:
    return next((told for told in server.thread("demo", ts) if told["text"] == text), None)
