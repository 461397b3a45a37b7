"""What the chat page asks for: boot, the live stream, clicks, commands, and who is kept out."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus

from codebutler.domain.errors import CodeButlerError
from codebutler.workspace.server import Options, WorkspaceServer


@pytest.fixture
async def page(server: WorkspaceServer) -> AsyncIterator[httpx.AsyncClient]:
    headers = {"Authorization": f"Bearer {server.user_token}"}
    async with httpx.AsyncClient(base_url=server.context.url, headers=headers, trust_env=False) as client:
        yield client


@contextlib.asynccontextmanager
async def app_socket(server: WorkspaceServer) -> AsyncIterator[ClientConnection]:
    """A minimal app: the test reads envelopes and acknowledges them itself."""
    url = server.call("apps.connections.open", server.app_token)["url"]
    async with connect(url, proxy=None) as socket:
        assert json.loads(await socket.recv())["type"] == "hello"
        yield socket


@contextlib.asynccontextmanager
async def following(page: httpx.AsyncClient, **headers: str) -> AsyncIterator[AsyncIterator[str]]:
    """The lines of the live stream, once following has begun."""
    async with page.stream("GET", "/workspace/stream", headers=headers, timeout=10) as response:
        lines = response.aiter_lines()
        assert await anext(lines) == ": hello"
        yield lines


async def next_frame(lines: AsyncIterator[str]) -> dict[str, str]:
    """The next frame that carries data, as {id, event, data}."""
    frame: dict[str, str] = {}
    async for line in lines:
        name, _, value = line.partition(": ")
        frame[name] = value
        if not line and "data" in frame:
            return frame
    raise AssertionError("the stream ended")


async def test_boot_tells_the_page_what_is_there(page: httpx.AsyncClient, server: WorkspaceServer) -> None:
    told = (await page.get("/workspace/boot")).json()
    assert told["me"] == {"id": server.workspace.person.id, "name": "you"}
    assert told["bot"] == {"user_id": server.workspace.bot.id, "name": "CodeButler"}
    assert [channel["name"] for channel in told["channels"]] == ["demo", "other"]


async def test_the_page_and_its_files_are_served_with_a_strict_policy(server: WorkspaceServer) -> None:
    async with httpx.AsyncClient(base_url=server.context.url, trust_env=False) as stranger:
        index = await stranger.get("/")
        assert "default-src 'self'" in index.headers["content-security-policy"]
        assert (await stranger.get("/archives/C1/p1700000000000001")).text == index.text
        assert (await stranger.get("/static/js/main.js")).status_code == 200
        assert (await stranger.get("/static/../server.py")).status_code == 404


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/workspace/boot"),
        ("GET", "/workspace/stream?token=wrong"),
        ("POST", "/workspace/click"),
        ("POST", "/workspace/slash"),
        ("POST", "/workspace/render"),
        ("POST", "/workspace/faults"),
        ("POST", "/workspace/disconnect"),
    ],
)
async def test_nothing_is_told_without_a_persons_token(
    server: WorkspaceServer, method: str, path: str
) -> None:
    async with httpx.AsyncClient(base_url=server.context.url, trust_env=False) as stranger:
        assert (await stranger.request(method, path, json={})).status_code == 401
        bot = {"Authorization": f"Bearer {server.bot_token}"}
        assert (await stranger.request(method, path, json={}, headers=bot)).status_code == 401


@pytest.mark.parametrize(
    "headers",
    [{"Host": "evil.example"}, {"Host": "127.0.0.1.evil.example"}, {"Origin": "http://evil.example"}],
)
async def test_other_names_and_other_sites_are_kept_out(
    page: httpx.AsyncClient, server: WorkspaceServer, headers: dict[str, str]
) -> None:
    assert (await page.get("/workspace/boot", headers=headers)).status_code == 403
    url = server.call("apps.connections.open", server.app_token)["url"]
    with pytest.raises(InvalidStatus):
        async with connect(url, additional_headers={"Origin": "http://evil.example"}, proxy=None):
            pass


async def test_a_socket_ticket_works_once(server: WorkspaceServer) -> None:
    url = server.call("apps.connections.open", server.app_token)["url"]
    async with connect(url, proxy=None) as socket:
        await socket.recv()
        with pytest.raises(InvalidStatus):
            async with connect(url, proxy=None):
                pass


async def test_the_stream_tells_events_and_replays_missed_ones(
    page: httpx.AsyncClient, server: WorkspaceServer
) -> None:
    root = server.say("demo", "before")
    async with following(page) as lines:
        server.say("demo", "live")
        frame = await next_frame(lines)
    assert json.loads(frame["data"])["text"] == "live"
    missed = server.say("demo", "missed", thread_ts=root)
    async with following(page, **{"Last-Event-ID": frame["id"]}) as lines:
        event = json.loads((await next_frame(lines))["data"])
    assert (event["type"], event["ts"], event["thread_ts"]) == ("message", missed, root)


async def test_a_follower_that_missed_too_much_is_told_to_load_again(
    page: httpx.AsyncClient, server: WorkspaceServer
) -> None:
    async with following(page, **{"Last-Event-ID": "999999"}) as lines:
        assert (await next_frame(lines))["event"] == "reset"
        server.say("demo", "and on")
        assert json.loads((await next_frame(lines))["data"])["text"] == "and on"


async def test_direct_words_reach_only_their_members(
    page: httpx.AsyncClient, server: WorkspaceServer
) -> None:
    other = server.add_user("other")
    hidden = server.call("conversations.open", server.bot_token, users=other.id)["channel"]["id"]
    async with following(page) as lines:
        server.call("chat.postMessage", server.bot_token, channel=hidden, text="psst")
        server.say("demo", "aloud")
        assert json.loads((await next_frame(lines))["data"])["text"] == "aloud"


async def test_the_status_line_goes_with_the_answer(page: httpx.AsyncClient, server: WorkspaceServer) -> None:
    ts = server.say("demo", "work")
    channel = server.channel_id("demo")
    async with following(page) as lines:
        status = {"channel_id": channel, "thread_ts": ts, "status": "is thinking…"}
        server.call("assistant.threads.setStatus", server.bot_token, **status)
        server.call("chat.postMessage", server.bot_token, channel=channel, text="done", thread_ts=ts)
        told = [json.loads((await next_frame(lines))["data"]) for _ in range(3)]
    assert [event.get("status", event["type"]) for event in told] == ["is thinking…", "message", ""]


async def test_a_click_and_a_command_reach_the_app_as_slack_sends_them(
    page: httpx.AsyncClient, server: WorkspaceServer
) -> None:
    channel = server.channel_id("demo")
    button = {"type": "button", "action_id": "go", "value": "1", "text": {"type": "plain_text", "text": "Go"}}
    blocks = [{"type": "actions", "elements": [button]}]
    asked = {"channel": channel, "text": "Go?", "blocks": blocks}
    ts = server.call("chat.postMessage", server.bot_token, **asked)["ts"]
    async with app_socket(server) as socket:
        click = {"channel": channel, "message_ts": ts, "action_id": "go", "value": "1"}
        clicking = asyncio.create_task(page.post("/workspace/click", json=click))
        payload = await answer(socket, "interactive")
        assert (payload["type"], payload["container"]["message_ts"]) == ("block_actions", ts)
        assert payload["actions"][0]["block_id"] == "b0"
        assert payload["message"]["text"] == "Go?"
        assert (await clicking).json() == {"ok": True}
        command = {"channel": channel, "command": "/butler", "text": "ping"}
        typing = asyncio.create_task(page.post("/workspace/slash", json=command))
        payload = await answer(socket, "slash_commands", {"text": "pong"})
        assert (payload["command"], payload["text"]) == ("/butler", "ping")
        assert (await typing).json() == {"ok": True, "payload": {"text": "pong"}}


async def answer(
    socket: ClientConnection, kind: str, response: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Acknowledge envelopes until one of ``kind`` came; its payload."""
    while True:
        envelope = json.loads(await socket.recv())
        ack: dict[str, Any] = {"envelope_id": envelope["envelope_id"]}
        if envelope["type"] == kind:
            await socket.send(json.dumps({**ack, "payload": response} if response else ack))
            payload: dict[str, Any] = envelope["payload"]
            return payload
        await socket.send(json.dumps(ack))


async def test_a_click_nobody_takes_times_out(page: httpx.AsyncClient, server: WorkspaceServer) -> None:
    ts = server.say("demo", "hm")
    click = {"channel": server.channel_id("demo"), "message_ts": ts, "action_id": "go"}
    told = await page.post("/workspace/click", json=click)
    assert (told.status_code, told.json()["error"]) == (400, "operation_timeout")


async def test_a_response_url_speaks_five_times(page: httpx.AsyncClient, server: WorkspaceServer) -> None:
    async with app_socket(server) as socket:
        command = {"channel": server.channel_id("demo"), "command": "/butler", "text": ""}
        typing = asyncio.create_task(page.post("/workspace/slash", json=command))
        url = (await answer(socket, "slash_commands"))["response_url"]
        await typing
        said = [await page.post(url, json={"text": "x", "response_type": "in_channel"}) for _ in range(6)]
    assert [response.status_code for response in said] == [200] * 5 + [404]
    assert len(server.workspace.channel(command["channel"]).timeline) == 5


async def test_markup_in_markdown_stays_text(page: httpx.AsyncClient) -> None:
    markdown = "**bold** <script>alert(1)</script> [x](javascript:alert(1))"
    html = (await page.post("/workspace/render", json={"markdown": markdown})).json()["html"]
    assert "<strong>bold</strong>" in html
    assert "<script" not in html
    assert "href" not in html


async def test_connections_end_on_demand(page: httpx.AsyncClient, server: WorkspaceServer) -> None:
    async with app_socket(server) as socket:
        await page.post("/workspace/disconnect", json={"reason": "warning"})
        assert json.loads(await socket.recv())["reason"] == "warning"
        await page.post("/workspace/disconnect", json={"reason": "link_disabled"})
        assert json.loads(await socket.recv())["reason"] == "link_disabled"
        await socket.wait_closed()
    with pytest.raises(CodeButlerError, match="feature_not_enabled"):
        server.call("apps.connections.open", server.app_token)


async def test_a_dropped_connection_ends_without_a_word(
    page: httpx.AsyncClient, server: WorkspaceServer
) -> None:
    async with app_socket(server) as socket:
        await page.post("/workspace/disconnect", json={"reason": "drop"})
        await asyncio.wait_for(socket.wait_closed(), 5)
        assert socket.close_code == 1006
    await server.until(lambda: len(server.hub.connections) == 0)


async def test_a_taken_port_is_one_clear_line(server: WorkspaceServer) -> None:
    port = int(server.context.url.rpartition(":")[2])
    with pytest.raises(CodeButlerError, match=f"port {port} is in use: choose another with --port"):
        async with WorkspaceServer(Options(port=port)):
            pass
