"""The people at the page: who may act as whom, what they are offered, and the faults they may order."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect

from codebutler.domain.errors import CodeButlerError
from codebutler.workspace.server import Options, WorkspaceServer


def page_of(server: WorkspaceServer, token: str) -> httpx.AsyncClient:
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.AsyncClient(base_url=server.context.url, headers=headers, trust_env=False)


@pytest.fixture
async def page(server: WorkspaceServer) -> AsyncIterator[httpx.AsyncClient]:
    async with page_of(server, server.user_token) as client:
        yield client


async def test_the_owner_lets_somebody_in_and_speaks_for_them(
    page: httpx.AsyncClient, server: WorkspaceServer
) -> None:
    told = (await page.post("/workspace/people", json={"name": "Ada L."})).json()
    assert told["user"]["name"] == "Ada L."
    became = (await page.post("/workspace/become", json={"user": told["user"]["id"]})).json()
    async with page_of(server, became["token"]) as hers:
        boot = (await hers.get("/workspace/boot")).json()
        assert (boot["me"]["name"], boot["is_owner"]) == ("Ada L.", False)
        refused = await hers.post("/workspace/become", json={"user": server.workspace.person.id})
        assert (refused.status_code, refused.json()["error"]) == (400, "not_allowed")
        assert (await hers.post("/workspace/people", json={"name": "Eve"})).json()["error"] == "not_allowed"


async def test_nobody_becomes_the_app_and_no_name_is_taken_twice(
    page: httpx.AsyncClient, server: WorkspaceServer
) -> None:
    app = await page.post("/workspace/become", json={"user": server.workspace.bot.id})
    assert app.json()["error"] == "not_allowed"
    for name, code in (("you", "name_taken"), ("<b>", "invalid_name"), ("", "invalid_name")):
        assert (await page.post("/workspace/people", json={"name": name})).json()["error"] == code
    with pytest.raises(CodeButlerError, match="'you' already exists"):
        WorkspaceServer(Options(guests=("you",)))


async def test_a_guest_bot_uses_the_page_as_people_do(
    page: httpx.AsyncClient, server: WorkspaceServer
) -> None:
    made = (await page.post("/workspace/people", json={"name": "robot", "is_bot": True})).json()
    token = (await page.post("/workspace/become", json={"user": made["user"]["id"]})).json()["token"]
    async with page_of(server, token) as its:
        assert (await its.get("/workspace/boot")).json()["me"]["name"] == "robot"
        posted = await its.post("/api/chat.postMessage", json={"channel": "CDEMO000000", "text": "beep"})
    assert posted.json()["message"]["bot_profile"]["name"] == "robot"


async def test_an_ephemeral_message_is_pressed_and_replaced(
    page: httpx.AsyncClient, server: WorkspaceServer
) -> None:
    channel, you = server.channel_id("demo"), server.workspace.person
    button = {"type": "button", "action_id": "ok", "text": {"type": "plain_text", "text": "OK"}}
    blocks = [{"type": "actions", "elements": [button]}]
    sent = {"channel": channel, "user": you.id, "text": "only you", "blocks": json.dumps(blocks)}
    ts = server.call("chat.postEphemeral", server.bot_token, **sent)["message_ts"]
    url = server.call("apps.connections.open", server.app_token)["url"]
    async with connect(url, proxy=None) as socket:
        await socket.recv()
        clicked = {"channel": channel, "message_ts": ts, "action_id": "ok"}
        clicking = asyncio.create_task(page.post("/workspace/click", json=clicked))
        payload = await taken(socket)
        assert (await clicking).json() == {"ok": True}
    assert payload["container"]["is_ephemeral"] is True
    assert "message" not in payload
    told = {"text": "noted", "replace_original": True}
    assert (await page.post(payload["response_url"], json=told)).status_code == 200
    whisper = server.context.ephemerals.find(you.id, ts)
    assert whisper is not None
    assert whisper.text == "noted"
    await page.post(payload["response_url"], json={"delete_original": True})
    assert server.context.ephemerals.find(you.id, ts) is None


async def test_an_external_select_asks_the_app(page: httpx.AsyncClient, server: WorkspaceServer) -> None:
    select = {"type": "external_select", "action_id": "branch", "min_query_length": 0}
    blocks = json.dumps([{"type": "actions", "block_id": "row", "elements": [select]}])
    sent = {"channel": server.channel_id("demo"), "text": "Which?", "blocks": blocks}
    ts = server.call("chat.postMessage", server.bot_token, **sent)["ts"]
    url = server.call("apps.connections.open", server.app_token)["url"]
    option = {"text": {"type": "plain_text", "text": "main"}, "value": "main"}
    async with connect(url, proxy=None) as socket:
        await socket.recv()
        given = {"channel": sent["channel"], "message_ts": ts, "action_id": "branch", "value": "ma"}
        asking = asyncio.create_task(page.post("/workspace/suggest", json=given))
        payload = await taken(socket, {"options": [option]})
        assert (payload["type"], payload["value"], payload["action_id"]) == (
            "block_suggestion",
            "ma",
            "branch",
        )
        assert (await asking).json()["options"] == [option]


async def taken(socket: Any, response: dict[str, Any] | None = None) -> dict[str, Any]:
    """The next interactive payload, acknowledged; events in between are, too."""
    while True:
        envelope = json.loads(await socket.recv())
        ack = {"envelope_id": envelope["envelope_id"]}
        interactive = envelope["type"] == "interactive"
        await socket.send(json.dumps({**ack, "payload": response} if response and interactive else ack))
        if interactive:
            payload: dict[str, Any] = envelope["payload"]
            return payload


async def test_the_panel_orders_faults_and_tells_what_they_did(
    page: httpx.AsyncClient, server: WorkspaceServer
) -> None:
    fault = {"method": "chat.postMessage", "kind": "rate_limit", "times": 2, "retry_after_s": 7}
    told = (await page.post("/workspace/faults", json=fault)).json()
    assert told["faults"][0]["retry_after_s"] == 7
    assert (told["connections"], told["limits"]["enforced"]) == (0, False)
    assert (await page.post("/workspace/limits", json={"enforced": True})).json()["limits"]["enforced"]
    assert server.limits.enforced
    assert (await page.delete("/workspace/faults")).json()["faults"] == []
    refused = await page.post("/workspace/faults", json={"method": "x", "kind": "earthquake"})
    assert (refused.status_code, refused.json()["error"]) == (400, "invalid_arguments")


async def test_a_status_is_told_to_a_page_that_comes_later(
    page: httpx.AsyncClient, server: WorkspaceServer
) -> None:
    ts = server.say("demo", "work")
    status = {"channel_id": server.channel_id("demo"), "thread_ts": ts, "status": "is reading"}
    server.call("assistant.threads.setStatus", server.bot_token, **status)
    told = (await page.get("/workspace/boot")).json()["statuses"]
    assert [(status["thread_ts"], status["status"]) for status in told] == [(ts, "is reading")]
    assert 100 < told[0]["lasts_s"] <= 120
