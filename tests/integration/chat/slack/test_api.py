"""The Web API client against answers no documentation promises: each becomes one of our errors."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest
from aiohttp import web

from codebutler.chat.slack.api import SlackApi
from codebutler.domain.clock import Clock
from codebutler.domain.errors import (
    ChatAuthError,
    ChatError,
    ChatOutcomeUnknownError,
    ChatRateLimitedError,
    ChatUnreachableError,
)
from codebutler.domain.message import Button, said
from codebutler.domain.model import Post, React, Upload
from tests.clock import ManualClock
from tests.loopback import on_loopback

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
TOKEN = "xoxb-very-secret"
HI = Post(message=said("hi"))


class Scripted:
    """An HTTP server that answers each method as the test says."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.forms: list[dict[str, str]] = []
        self.tokens: list[str] = []
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.content_type == "application/x-www-form-urlencoded":
            self.forms.append({name: str(value) for name, value in (await request.post()).items()})
        self.tokens.append(request.headers.get("Authorization", ""))
        return await self.answers[request.match_info["method"]](request)

    def says(self, method: str, body: object, status: int = 200, **headers: str) -> None:
        async def answer(_request: web.Request) -> web.StreamResponse:
            return web.json_response(body, status=status, headers=headers)

        self.answers[method] = answer

    def raw(self, method: str, body: bytes, content_type: str, status: int = 200) -> None:
        async def answer(_request: web.Request) -> web.StreamResponse:
            return web.Response(body=body, content_type=content_type, status=status)

        self.answers[method] = answer


@asynccontextmanager
async def serving(
    timeout_s: float = 5, clock: Clock | None = None
) -> AsyncIterator[tuple[Scripted, SlackApi]]:
    scripted = Scripted()
    app = web.Application()
    app.router.add_route("*", "/api/{method}", scripted.handle)
    async with on_loopback(app) as port:
        scripted.url = f"http://127.0.0.1:{port}/api/"
        async with SlackApi(TOKEN, base_url=scripted.url, timeout_s=timeout_s, clock=clock) as api:
            yield scripted, api


async def test_a_post_is_sent_as_slack_reads_it() -> None:
    async with serving() as (server, api):
        server.says("chat.postMessage", {"ok": True, "ts": "1.2"})
        post = Post(message=said("a & \ud800b", Button("Go", "codebutler.stop", "v")), thread="1.1")
        assert await api.post("C1", post, "op-1") == "1.2"
        (form,) = server.forms
        assert form["text"] == "a &amp; ?b"
        assert [block["type"] for block in json.loads(form["blocks"])] == ["section", "actions"]
        assert json.loads(form["metadata"])["event_payload"] == {"op_id": "op-1"}
        assert (form["unfurl_links"], form["unfurl_media"]) == ("false", "false")
        assert server.tokens == [f"Bearer {TOKEN}"]


@pytest.mark.parametrize(
    ("body", "content_type", "status"),
    [
        (b"<!doctype html><p>sign in", "text/html", 200),
        (b"", "application/json", 200),
        (b"{", "application/json", 200),
        (b"[]", "application/json", 200),
        (b'["x"]', "application/json", 200),
        (b"null", "application/json", 200),
        (b"ok", "text/plain", 200),
        (b"bad gateway", "text/html", 502),
        (b'{"ok":false,"error":"internal_error"}', "application/json", 500),
    ],
)
async def test_nonsense_leaves_a_posts_outcome_open_and_a_reading_repeatable(
    body: bytes, content_type: str, status: int
) -> None:
    async with serving() as (server, api):
        server.raw("chat.postMessage", body, content_type, status)
        server.raw("conversations.history", body, content_type, status)
        with pytest.raises(ChatOutcomeUnknownError):
            await api.post("C1", HI, "op-1")
        with pytest.raises(ChatUnreachableError):
            await api.history("C1")


async def test_a_rate_limit_without_json_keeps_its_retry_after() -> None:
    async with serving() as (server, api):
        server.says("chat.postMessage", {"ok": False}, status=429, **{"Retry-After": "12"})
        with pytest.raises(ChatRateLimitedError) as caught:
            await api.post("C1", HI, "op-1")
        assert caught.value.retry_after_s == 12


async def test_a_refused_connection_sent_nothing() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/api/"
        async with SlackApi(TOKEN, base_url=url) as api:
            with pytest.raises(ChatUnreachableError):
                await api.post("C1", HI, "op-1")


async def test_an_unknown_host_sent_nothing() -> None:
    async with SlackApi(TOKEN, base_url="http://nowhere.invalid.localhost:9/api/") as api:
        with pytest.raises(ChatUnreachableError):
            await api.post("C1", HI, "op-1")


async def test_silence_after_the_request_leaves_the_outcome_open() -> None:
    async with serving(timeout_s=0.2) as (server, api):
        never = asyncio.Event()

        async def answer(_request: web.Request) -> web.StreamResponse:
            await never.wait()
            return web.Response()

        server.answers["chat.postMessage"] = answer
        with pytest.raises(ChatOutcomeUnknownError):
            await api.post("C1", HI, "op-1")
        never.set()


async def test_a_connection_cut_after_the_request_leaves_the_outcome_open_and_is_not_repeated() -> None:
    async with serving() as (server, api):

        async def answer(request: web.Request) -> web.StreamResponse:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()

        server.answers["chat.postMessage"] = answer
        with pytest.raises(ChatOutcomeUnknownError):
            await api.post("C1", HI, "op-1")
        assert len(server.forms) == 1


async def test_a_half_read_answer_leaves_the_outcome_open() -> None:
    async with serving() as (server, api):

        async def answer(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse(
                headers={"Content-Type": "application/json", "Content-Length": "100"}
            )
            await response.prepare(request)
            await response.write(b'{"ok":true')
            assert request.transport is not None
            request.transport.abort()
            return response

        server.answers["chat.postMessage"] = answer
        with pytest.raises(ChatOutcomeUnknownError):
            await api.post("C1", HI, "op-1")


@pytest.mark.parametrize(("remove", "code"), [(False, "already_reacted"), (True, "no_reaction")])
async def test_a_reaction_that_is_as_wished_is_success(remove: bool, code: str) -> None:
    async with serving() as (server, api):
        server.says(f"reactions.{'remove' if remove else 'add'}", {"ok": False, "error": code})
        await api.react("C1", React(target="1.1", mark="working", remove=remove))


@pytest.mark.parametrize("status", [500, 404])
async def test_an_upload_whose_bytes_fail_may_simply_be_done_again(status: int) -> None:
    async with serving() as (server, api):
        where = {"ok": True, "upload_url": f"{server.url}bytes", "file_id": "F1"}
        server.says("files.getUploadURLExternal", where)
        server.raw("bytes", b"no", "text/plain", status)
        with pytest.raises(ChatUnreachableError):
            await api.upload(Upload(filename="a", content=b"x"))


async def test_an_upload_sends_the_token_to_slack_only() -> None:
    async with serving() as (server, api):
        where = {"ok": True, "upload_url": f"{server.url}bytes", "file_id": "F1"}
        server.says("files.getUploadURLExternal", where)
        server.raw("bytes", b"OK - 1", "text/plain")
        server.says("files.completeUploadExternal", {"ok": True, "files": [{"id": "F1"}]})
        upload = Upload(filename="a", content=b"x", thread="1.1")
        assert await api.upload(upload) == "F1"
        await api.share("C1", upload, "F1")
        assert server.tokens == [f"Bearer {TOKEN}", "", f"Bearer {TOKEN}"]


async def test_the_app_token_opens_connections_and_a_refusal_names_it() -> None:
    async with serving() as (server, api):
        server.says("apps.connections.open", {"ok": True, "url": "wss://wss.slack.com/link/?ticket=1"})
        assert await api.open_connection("xapp-1") == "wss://wss.slack.com/link/?ticket=1"
        assert server.tokens == ["Bearer xapp-1"]
        server.says("apps.connections.open", {"ok": False, "error": "invalid_auth"})
        with pytest.raises(ChatAuthError, match=r"slack\.appToken"):
            await api.open_connection("xapp-1")


async def test_tokens_of_the_wrong_kind_are_recognised_without_a_call() -> None:
    with pytest.raises(ChatAuthError, match="xoxb-"):
        SlackApi("xapp-1-A")
    async with serving() as (server, api):
        with pytest.raises(ChatAuthError, match="xapp-"):
            await api.open_connection("xoxb-1")
        assert server.tokens == []


async def test_channels_are_listed_over_every_page() -> None:
    async with serving() as (server, api):

        async def answer(_request: web.Request) -> web.StreamResponse:
            last = "cursor" in server.forms[-1]
            channel = {"id": "C2" if last else "C1", "name": "x", "is_member": last}
            cursor = "" if last else "more"
            body = {"ok": True, "channels": [channel], "response_metadata": {"next_cursor": cursor}}
            return web.json_response(body)

        server.answers["conversations.list"] = answer
        assert [(c.id, c.is_member) for c in await api.list_channels()] == [("C1", False), ("C2", True)]


async def test_a_taken_channel_name_is_told_by_its_code() -> None:
    async with serving() as (server, api):
        server.says("conversations.create", {"ok": False, "error": "name_taken"})
        with pytest.raises(ChatError) as caught:
            await api.create_channel("repo")
        assert caught.value.code == "name_taken"


async def test_a_proxy_in_the_environment_is_not_used_for_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with serving() as (server, api):
        server.says("auth.test", {"ok": True, "user_id": "U1", "bot_id": "B1", "team_id": "T1"})
        assert (await api.identity()).user_id == "U1"


async def test_secrets_are_in_no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with serving() as (server, api):
        server.says("apps.connections.open", {"ok": True, "url": "wss://x/?ticket=4711"})
        await api.open_connection("xapp-hidden")
        server.says("auth.test", {"ok": False, "error": "invalid_auth"})
        with pytest.raises(ChatAuthError) as caught:
            await api.identity()
        everything = caplog.text + str(caught.value)
        assert not [secret for secret in ("4711", "xapp-hidden", TOKEN) if secret in everything]


@pytest.mark.parametrize(
    ("user", "name"),
    [
        ({"name": "ana", "profile": {"display_name": "Ana", "real_name": "Ana Banana"}}, "Ana"),
        ({"name": "ana", "profile": {"display_name": "", "real_name": "Ana Banana"}}, "Ana Banana"),
        ({"name": "ana", "profile": {}}, "ana"),
        ({"name": ["ana"], "profile": {"real_name": 7}}, ""),
    ],
)
async def test_a_user_has_the_name_they_chose(user: object, name: str) -> None:
    async with serving() as (server, api):
        server.says("users.info", {"ok": True, "user": user})
        assert (await api.person("U1")).names[:1] == ((name,) if name else ())
        assert server.forms[0]["user"] == "U1"


async def test_the_time_of_day_is_what_slack_said_with_its_last_answer() -> None:
    clock = ManualClock()
    async with serving(clock=clock) as (server, api):
        assert api.clock.now() == clock.now()
        for date in ("Tue, 03 Feb 2026 04:05:06 GMT", "yesterday"):
            server.says("auth.test", {"ok": True, "user_id": "U1"}, Date=date)
            await api.identity()
            assert api.clock.now() == datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)
        await clock.advance(60)
        assert api.clock.now() == datetime(2026, 2, 3, 4, 6, 6, tzinfo=UTC)
