"""Downloads against a server: where the token goes, what is refused, whose files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from codebutler.chat.slack.answers import shares_in
from codebutler.chat.slack.api import SlackApi
from codebutler.chat.slack.download import Downloads
from codebutler.domain.errors import ChatError
from codebutler.domain.model import File
from tests.clock import ManualClock, settle
from tests.loopback import on_loopback

TOKEN = "xoxb-download-test"
LOGIN_PAGE = "<!DOCTYPE html><html><body>Sign in</body></html>"


@dataclass
class Server:
    """files.info and downloads; ``tokens`` are those each path was asked with."""

    url: str = ""
    infos: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    answers: dict[str, web.Response | Callable[[], web.Response]] = field(default_factory=dict)
    tokens: list[tuple[str, str]] = field(default_factory=list)
    asked: asyncio.Event = field(default_factory=asyncio.Event)

    def file(self, path: str, **fields: Any) -> None:
        info = {"id": "F01", "channels": ["C01"], "url_private_download": f"{self.url}/{path}", **fields}
        self.infos.setdefault("F01", []).append(info)

    async def info(self, request: web.Request) -> web.Response:
        told = self.infos.get(str((await request.post())["file"]))
        self.asked.set()
        if told is None:
            return web.json_response({"ok": False, "error": "file_not_found"})
        return web.json_response({"ok": True, "file": told.pop(0) if len(told) > 1 else told[0]})

    async def give(self, request: web.Request) -> web.Response:
        path = request.match_info["path"]
        self.tokens.append((path, request.headers.get("authorization", "")))
        answer = self.answers[path]
        return answer if isinstance(answer, web.Response) else answer()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    app = web.Application()
    app.router.add_post("/api/files.info", server.info)
    app.router.add_get("/{path:.+}", server.give)
    async with on_loopback(app) as port:
        server.url = f"http://127.0.0.1:{port}"
        yield server


async def fetch(
    server: Server,
    file_id: str = "F01",
    channel: str = "C01",
    max_bytes: int = 1000,
    clock: ManualClock | None = None,
) -> tuple[bytes, str]:
    pieces = bytearray()

    async def take(piece: bytes) -> None:
        pieces.extend(piece)

    async with SlackApi(TOKEN, f"{server.url}/api/") as api:
        told = await Downloads(api, clock or ManualClock(), max_bytes).fetch(channel, file_id, take)
    return bytes(pieces), told.transcript


async def refused(server: Server, **how: Any) -> str:
    with pytest.raises(ChatError) as told:
        await fetch(server, **how)
    return told.value.code


async def test_a_file_comes_with_the_token_sent_to_its_own_server(server: Server) -> None:
    server.file("a.txt")
    server.answers["a.txt"] = web.Response(body=b"content")
    assert await fetch(server) == (b"content", "")
    assert server.tokens == [("a.txt", f"Bearer {TOKEN}")]


@pytest.mark.parametrize(
    "fields",
    [
        {"channels": ["C02"]},
        {"channels": []},
        {"channels": "C01"},
        {"channels": [], "shares": {"public": {"C02": []}}},
    ],
)
async def test_the_file_of_another_channel_is_not_there(server: Server, fields: dict[str, Any]) -> None:
    server.file("a.txt", **fields)
    assert await refused(server) == "file_not_found"
    assert server.tokens == []


def test_every_kind_of_sharing_counts() -> None:
    info = {
        "channels": ["C1"],
        "groups": ["G1"],
        "ims": ["D1"],
        "shares": {"private": {"C2": []}, "public": {"C3": []}},
    }
    assert shares_in(info) == {"C1", "G1", "D1", "C2", "C3"}


@pytest.mark.parametrize("file_id", ["", "F", "f01", "F01/..", "F01&x=1", "C01", "F" * 99])
async def test_only_a_files_id_is_looked_up(server: Server, file_id: str) -> None:
    assert await refused(server, file_id=file_id) == "file_not_found"
    assert not server.asked.is_set()


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.example/a.txt",
        "http://127.0.0.1:1/a.txt",
        "http://files.slack.com/a.txt",
        "https://files.slack.com/a.txt",
        "https://slack.com.evil.example/a.txt",
        "file:///etc/passwd",
        "//evil.example/a",
        "/a.txt",
        "",
        "http://[bad",
        "http://127.0.0.1:99999/x",
    ],
)
async def test_an_address_elsewhere_is_never_asked(server: Server, url: str) -> None:
    server.file("a.txt", url_private_download=url, url_private=url)
    assert await refused(server) == "untrusted_host"


async def test_a_name_before_the_host_is_refused(server: Server) -> None:
    server.file("a.txt", url_private_download=server.url.replace("http://", "http://user:pw@") + "/a.txt")
    assert await refused(server) == "untrusted_host"
    assert server.tokens == []


async def test_a_redirect_within_the_server_keeps_the_token(server: Server) -> None:
    server.file("a.txt")
    server.answers["a.txt"] = web.Response(status=302, headers={"Location": "/b.txt"})
    server.answers["b.txt"] = web.Response(body=b"there")
    assert await fetch(server) == (b"there", "")
    assert [token for _, token in server.tokens] == [f"Bearer {TOKEN}"] * 2


@pytest.mark.parametrize(
    "location",
    [
        "http://evil.example/a",
        "https://localhost/a",
        "https://169.254.169.254/latest/meta-data",
        "https://10.0.0.1/a",
        "https://[::1]/a",
        "https://printer/a",
        "file:///etc/passwd",
    ],
)
async def test_a_redirect_into_the_network_around_us_is_refused(server: Server, location: str) -> None:
    server.file("a.txt")
    server.answers["a.txt"] = web.Response(status=302, headers={"Location": location})
    assert await refused(server) == "untrusted_host"


async def test_redirects_end(server: Server) -> None:
    server.file("a.txt")
    server.answers["a.txt"] = lambda: web.Response(status=302, headers={"Location": "/a.txt"})
    assert await refused(server) == "refused"
    assert len(server.tokens) == 4


@pytest.mark.parametrize(
    "answer",
    [
        lambda: web.Response(text=LOGIN_PAGE, content_type="text/html"),
        lambda: web.Response(text=f"\ufeff \n{LOGIN_PAGE}", content_type="text/plain"),
        lambda: web.Response(text="<html><body>", content_type="application/octet-stream"),
    ],
)
async def test_a_login_page_is_not_a_file(server: Server, answer: Any) -> None:
    server.file("a.png", mimetype="image/png")
    server.answers["a.png"] = answer()
    assert await refused(server) == "login_page"


async def test_a_page_that_was_announced_is_a_file(server: Server) -> None:
    server.file("a.html", mimetype="text/html")
    server.answers["a.html"] = web.Response(text=LOGIN_PAGE, content_type="text/html")
    assert (await fetch(server))[0] == LOGIN_PAGE.encode()


async def test_too_much_is_refused_by_any_measure(server: Server) -> None:
    server.file("a.txt", size=1001)
    assert await refused(server) == "too_large"
    assert server.tokens == []
    server.infos.clear()
    server.file("a.txt", size=1)
    server.answers["a.txt"] = web.Response(body=b"x" * 1001)
    assert await refused(server) == "too_large"


async def test_a_refusal_of_the_server_is_refused(server: Server) -> None:
    server.file("a.txt")
    server.answers["a.txt"] = web.Response(status=403)
    assert await refused(server) == "refused"


async def test_slacks_own_transcript_saves_the_download(server: Server) -> None:
    done = {"status": "complete", "preview": {"content": "run the tests", "has_more": False}}
    server.file("clip.m4a", transcription=done)
    assert await fetch(server) == (b"", "run the tests")


async def test_a_long_transcript_is_read_from_the_captions(server: Server) -> None:
    more = {"status": "complete", "preview": {"content": "run", "has_more": True}}
    server.file("clip.m4a", transcription=more, vtt=f"{server.url}/clip.vtt")
    server.answers["clip.vtt"] = web.Response(
        text="\ufeffWEBVTT\n\n00:00.000 --> 00:01.000\nrun all of the tests\n", content_type="text/vtt"
    )
    assert await fetch(server) == (b"", "run all of the tests")


async def test_without_usable_captions_the_clip_itself_comes(server: Server) -> None:
    more = {"status": "complete", "preview": {"content": "run", "has_more": True}}
    server.file("clip.m4a", transcription=more, vtt="https://evil.example/clip.vtt")
    server.answers["clip.m4a"] = web.Response(body=b"sound")
    assert await fetch(server) == (b"sound", "")


async def test_a_transcription_under_way_is_waited_for(server: Server) -> None:
    server.file("clip.m4a", transcription={"status": "processing"})
    server.file(
        "clip.m4a", transcription={"status": "complete", "preview": {"content": "hello", "has_more": False}}
    )
    clock = ManualClock()
    task = asyncio.create_task(fetch(server, clock=clock))
    await advance_until_done(clock, task)
    assert await task == (b"", "hello")


async def test_a_transcription_that_never_ends_does_not_hold_the_clip(server: Server) -> None:
    server.file("clip.m4a", transcription={"status": "processing"})
    server.answers["clip.m4a"] = web.Response(body=b"sound")
    clock = ManualClock()
    task = asyncio.create_task(fetch(server, clock=clock))
    await advance_until_done(clock, task)
    assert await task == (b"sound", "")


async def advance_until_done(clock: ManualClock, task: asyncio.Task[tuple[bytes, str]]) -> None:
    async with asyncio.timeout(20):
        while not task.done():
            await clock.advance(0.5)
            await settle(5)
            await asyncio.wait({task}, timeout=0.005)


async def test_what_slack_knows_of_the_file_comes_along(server: Server) -> None:
    server.file("a.png", name="a.png", mimetype="image/png", size=3, subtype="x", filetype=7)
    server.answers["a.png"] = web.Response(body=b"abc")

    async def take(_: bytes) -> None:
        return

    async with SlackApi(TOKEN, f"{server.url}/api/") as api:
        told = await Downloads(api, ManualClock()).fetch("C01", "F01", take)
    assert told.file == File(id="F01", name="a.png", mimetype="image/png", size_bytes=3)


ERROR = '{"ok":false,"error":"service_unavailable"}'


def an_error() -> web.Response:
    return web.Response(text=ERROR, content_type="application/json")


async def test_an_error_of_slacks_is_not_a_file(server: Server) -> None:
    server.file("a.txt", size=7)
    server.answers["a.txt"] = an_error
    clock = ManualClock()
    task = asyncio.create_task(fetch(server, clock=clock))
    await advance_until_done(clock, task)
    with pytest.raises(ChatError) as told:
        await task
    assert told.value.code == "refused"


@pytest.mark.parametrize("trouble", ["an error", "503", "429"])
async def test_a_download_that_fails_before_its_first_byte_is_tried_again(
    server: Server, trouble: str
) -> None:
    answers = iter(
        [
            an_error() if trouble == "an error" else web.Response(status=int(trouble)),
            web.Response(body=b"content"),
        ]
    )
    server.file("a.txt", size=7)
    server.answers["a.txt"] = lambda: next(answers)
    clock = ManualClock()
    task = asyncio.create_task(fetch(server, clock=clock))
    await advance_until_done(clock, task)
    assert await task == (b"content", "")


async def test_a_file_may_say_what_an_error_says(server: Server) -> None:
    server.file("a.json", size=len(ERROR))
    server.answers["a.json"] = web.Response(text=ERROR, content_type="application/json")
    assert await fetch(server) == (ERROR.encode(), "")
