"""The dashboard over real HTTP: who gets in, what they are told, and that nobody else is told anything."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import re
import socket
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from codebutler.config.section import DashboardSection
from codebutler.domain.errors import CodeButlerError
from codebutler.web.dashboard.dashboard import MAX_VIEWERS
from codebutler.web.server import DashboardAddress, Hooks, WebServer
from tests.dashboards import DEADLINE_S, NoHooks, Watched, repo, turn, watched

STRANGERS = (
    {"host": "evil.example"},
    {"host": "evil.example:7788"},
    {"host": "127.0.0.1.evil.example"},
    {"origin": "http://evil.example"},
    {"origin": "null"},
    {"origin": "http://127.0.0.1:1"},
)


@pytest.fixture
async def built(tmp_path: Path) -> AsyncIterator[Watched]:
    async with watched(tmp_path / "home") as made, asyncio.timeout(DEADLINE_S):
        yield made


@asynccontextmanager
async def browser(built: Watched) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=built.front.url, trust_env=False) as client:
        yield client


async def key_for(client: httpx.AsyncClient, link: str) -> str:
    answer = await client.post("/dashboard/key", json={"ticket": link.partition("#")[2]})
    return str(answer.json().get("key", ""))


class Told:
    """What a stream tells."""

    def __init__(self, answer: httpx.Response) -> None:
        self.status = answer.status_code
        self._lines = answer.aiter_lines()

    async def event(self, kind: str) -> Any:
        """The next one of this kind; None when the stream ends before."""
        name = ""
        async for line in self._lines:
            field, _, rest = line.partition(": ")
            name = rest if field == "event" else name
            if field == "data" and name == kind:
                return json.loads(rest)
        return None


@asynccontextmanager
async def told(client: httpx.AsyncClient, key: str, query: str = "") -> AsyncIterator[Told]:
    headers = {"authorization": f"Bearer {key}"}
    async with client.stream("GET", f"/dashboard/stream{query}", headers=headers) as answer:
        yield Told(answer)


async def test_whoever_has_a_link_is_told_all_and_then_what_changes(built: Watched) -> None:
    built.log("before", repo="shop")
    built.known.turns["shop"] = (turn("running", "fix it"),)
    async with browser(built) as client, told(client, await key_for(client, built.front.link())) as stream:
        assert (await stream.event("log"))["lines"][0]["text"] == "before"
        page = await stream.event("page")
        assert [each["name"] for each in page["repos"]] == page["names"] == ["shop"]
        assert page["work"][0]["url"] == "https://acme.slack.com/archives/C0123456/p1700000005000001"
        built.known.repos.append(repo("website", "sleeping"))
        change = await stream.event("page")
        assert set(change) == {"now", "repos", "names"}
        assert [each["name"] for each in change["repos"]] == ["website"]
        built.log("after")
        log = await stream.event("log")
        assert ([line["text"] for line in log["lines"]], log["past"]) == (["after"], False)


async def test_of_the_log_what_is_wished_for_is_told(built: Watched) -> None:
    for repo_name in ("shop", "website", ""):
        for tag in ("DBG", "INF", "ERR"):
            built.log(f"{repo_name} {tag}", tag, repo_name)
    async with browser(built) as client:
        key = await key_for(client, built.front.link())
        for query, wanted in (
            ("", ["shop INF", "shop ERR", "website INF", "website ERR", " INF", " ERR"]),
            ("?level=error", ["shop ERR", "website ERR", " ERR"]),
            ("?repo=shop&level=debug", ["shop DBG", "shop INF", "shop ERR"]),
            ("?repo=nobody", []),
            ("?words=Website%20err", ["website ERR"]),
            ("?words=.*", []),
        ):
            async with told(client, key, query) as stream:
                assert [line["text"] for line in (await stream.event("log"))["lines"]] == wanted
        headers = {"authorization": f"Bearer {key}"}
        assert (await client.get("/dashboard/stream?level=all", headers=headers)).status_code == 400


async def test_a_link_opens_once_and_a_key_stays(built: Watched) -> None:
    link = built.front.link()
    assert link.startswith(f"{built.front.url}#")
    async with browser(built) as client:
        key = await key_for(client, link)
        assert key
        again = await client.post("/dashboard/key", json={"ticket": link.partition("#")[2]})
        assert again.status_code == 403
        assert "codebutler dashboard" in again.json()["error"]
        assert await key_for(client, built.front.link()) == key
    kept = built.home / "dashboard.key"
    assert kept.read_text().strip() == key
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600


async def test_it_proves_to_have_the_key_at_its_own_port_only(built: Watched) -> None:
    async with browser(built) as client:
        key = await key_for(client, built.front.link())
        port, nonce = client.base_url.port, "0123456789abcdef" * 2
        given = (await client.get("/dashboard/proof", params={"nonce": nonce})).json()["proof"]
        elsewhere = {"host": "127.0.0.1:1"}
        assert (await client.get("/dashboard/proof", params={"nonce": nonce}, headers=elsewhere)).json()[
            "proof"
        ] == given
        told = f"codebutler dashboard\n{port}\n{nonce}".encode()
        assert given == hmac.new(key.encode(), told, hashlib.sha256).hexdigest()
        for wrong in ("", "x", nonce[:-1], f"{nonce}0", nonce.upper(), f"{nonce[:-1]}\n"):
            assert (await client.get("/dashboard/proof", params={"nonce": wrong})).status_code == 400


async def test_a_key_outlives_the_supervisor_and_a_damaged_one_is_made_anew(tmp_path: Path) -> None:
    async with watched(tmp_path) as first, browser(first) as client:
        key = await key_for(client, first.front.link())
    async with watched(tmp_path) as second, browser(second) as client:
        assert await key_for(client, second.front.link()) == key
    for damaged in (b"", b"short", b"x" * 5000, b"\xff" * 43):
        (tmp_path / "dashboard.key").write_bytes(damaged)
        async with watched(tmp_path) as third, browser(third) as client:
            assert len(await key_for(client, third.front.link())) == 43


async def test_a_home_that_takes_no_file_keeps_nobody_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "dashboard.key").mkdir()
    async with watched(tmp_path) as built, browser(built) as client:
        key = await key_for(client, built.front.link())
        async with told(client, key) as stream:
            assert await stream.event("page")
    assert "dashboard.key" in caplog.text
    assert key not in caplog.text


async def test_without_a_key_nothing_is_told(built: Watched) -> None:
    built.known.repos = [repo("a-name-that-is-nobodys-business")]
    async with browser(built) as client:
        key = await key_for(client, built.front.link())
        wrong = [
            "",
            "Bearer",
            f"Basic {key}",
            f"Bearer {key[:-1]}",
            f"Bearer {key}x",
            f"Bearer {'x' * 43}",
        ]
        for header in wrong:
            answer = await client.get("/dashboard/stream", headers={"authorization": header})
            assert answer.status_code == 401
            assert "nobodys" not in answer.text
        assert (await client.get("/dashboard/stream", params={"key": key})).status_code == 401
        assert (await client.get("/dashboard/stream", headers={"cookie": f"key={key}"})).status_code == 401
        for ticket in ("", "x", key, built.front.link(), None, 7, ["x"]):
            assert (await client.post("/dashboard/key", json={"ticket": ticket})).status_code == 403
        for body in (b"", b"[]", b"{", b"\xff", b'"x"', b'{"ticket": "\\ud800"}', b'{"a":' + b"[" * 4000):
            assert (await client.post("/dashboard/key", content=body)).status_code == 403
        assert (await client.post("/dashboard/key", content=b"x" * 10_000)).status_code == 413
    assert built.known.looks == 0


@pytest.mark.parametrize("headers", STRANGERS, ids=str)
async def test_another_site_or_name_gets_nothing_even_with_the_key(
    built: Watched, headers: dict[str, str]
) -> None:
    async with browser(built) as client:
        key = await key_for(client, built.front.link())
        link = built.front.link()
        for path in ("/", "/dashboard/stream", "/static/js/main.js"):
            answer = await client.get(path, headers={**headers, "authorization": f"Bearer {key}"})
            assert (answer.status_code, answer.text.partition(":")[0]) == (403, "forbidden")
        ticket = json.dumps({"ticket": link.partition("#")[2]})
        assert (await client.post("/dashboard/key", content=ticket, headers=headers)).status_code == 403
        assert await key_for(client, link) == key


async def test_no_answer_may_be_read_framed_or_kept_by_anybody_else(built: Watched) -> None:
    async with browser(built) as client:
        paths = (
            "/",
            "/static/js/main.js",
            "/static/page.css",
            "/dashboard/stream",
            "/nothing",
            "/static/../keys.py",
        )
        for answer in [await client.get(path) for path in paths]:
            headers = answer.headers
            assert not [name for name in headers if name.startswith("access-control-")]
            assert "default-src 'none'" in headers["content-security-policy"]
            assert "frame-ancestors 'none'" in headers["content-security-policy"]
            assert "unsafe" not in headers["content-security-policy"]
            assert headers["cross-origin-resource-policy"] == "same-origin"
            assert headers["cache-control"] == "no-store"
            assert headers["referrer-policy"] == "no-referrer"
            assert "set-cookie" not in headers
        preflight = {"origin": built.front.url.rstrip("/"), "access-control-request-method": "GET"}
        answer = await client.options("/dashboard/stream", headers=preflight)
        assert answer.status_code == 405
        assert not [name for name in answer.headers if name.startswith("access-control-")]
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            assert (await client.request(method, "/dashboard/stream")).status_code == 405


async def test_no_secret_and_no_key_is_told(built: Watched) -> None:
    secret = "hunter2-hunter2-hunter2"
    built.redactor.learn({secret})
    built.known.repos = [repo("shop", problem=f"it failed with {secret}")]
    built.known.turns["shop"] = (
        turn("running", f"use {secret}"),
        turn("waiting", "xoxb-1234567890-abcdef", 7),
    )
    built.known.slack["trouble"] = f"trouble with {secret}"
    async with browser(built) as client:
        key = await key_for(client, built.front.link())
        built.log(f"{secret} {key}", "ERR", "shop")
        async with told(client, key) as stream:
            shown = json.dumps([await stream.event("log"), await stream.event("page")])
        assert shown.count("[redacted]") >= 6
        assert secret not in shown
        assert key not in shown
        assert "xoxb-1234567890" not in shown


async def test_nothing_is_looked_at_for_nobody(built: Watched) -> None:
    async with browser(built) as client:
        key = await key_for(client, built.front.link())
        assert built.known.looks == 0
        async with told(client, key) as stream:
            await stream.event("page")
        assert built.known.looks >= 1


async def test_only_so_many_may_look_at_once(built: Watched) -> None:
    async with browser(built) as client:
        key = await key_for(client, built.front.link())
        async with AsyncExitStack() as stack:
            streams = [await stack.enter_async_context(told(client, key)) for _ in range(MAX_VIEWERS)]
            for stream in streams:
                assert await stream.event("page")
            answer = await client.get("/dashboard/stream", headers={"authorization": f"Bearer {key}"})
            assert answer.status_code == 503
            assert "close some" in answer.json()["error"]
        # Those who have gone make room.
        status = 503
        while status == 503:
            async with told(client, key) as stream:
                status = stream.status
        assert status == 200


async def test_who_connects_first_waits_for_nothing_that_is_lost(built: Watched) -> None:
    async with browser(built) as client:
        answers = await asyncio.gather(*(client.get("/") for _ in range(8)))
    assert {answer.status_code for answer in answers} == {200}


async def test_streams_end_with_the_supervisor(tmp_path: Path) -> None:
    async with browser_of(tmp_path) as (client, key, stop), told(client, key) as stream:
        await stream.event("page")
        stop.set()
        assert await stream.event("nothing") is None


@asynccontextmanager
async def browser_of(home: Path) -> AsyncIterator[tuple[httpx.AsyncClient, str, asyncio.Event]]:
    """A browser that outlives its dashboard, which ends when the event is set."""
    stop, ready = asyncio.Event(), asyncio.Event()
    urls: list[str] = []

    async def serve() -> None:
        async with watched(home) as built:
            urls.append(built.front.link())
            ready.set()
            await stop.wait()

    serving = asyncio.create_task(serve())
    async with asyncio.timeout(DEADLINE_S):
        await ready.wait()
        async with httpx.AsyncClient(base_url=urls[0].partition("#")[0], trust_env=False) as client:
            yield client, await key_for(client, urls[0]), stop
        stop.set()
        await serving


async def test_a_websocket_is_refused(built: Watched) -> None:
    async with browser(built) as client:
        upgrade = {"connection": "upgrade", "upgrade": "websocket", "sec-websocket-version": "13"}
        answer = await client.get("/", headers={**upgrade, "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ=="})
        assert answer.status_code == 403


async def test_beyond_this_machine_it_warns(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = Watched(tmp_path, 0)
    front = WebServer(
        DashboardSection(host="0.0.0.0", port=0),
        Hooks(NoHooks(), made.clock),
        made.dashboard,
        DashboardAddress(),
    )
    with caplog.at_level(logging.INFO):
        running = asyncio.create_task(front.run())
        async with asyncio.timeout(DEADLINE_S):
            await front.listening.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert "dashboard.host is 0.0.0.0" in caplog.text


async def test_without_a_port_there_is_no_link(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = Watched(tmp_path, 0)
    off = WebServer(
        DashboardSection(enabled=False), Hooks(NoHooks(), made.clock), made.dashboard, DashboardAddress()
    )
    await off.run()
    with pytest.raises(CodeButlerError, match=r"dashboard\.enabled is false"):
        off.link()
    for host in ("203.0.113.7", "a..b"):
        nowhere = WebServer(
            DashboardSection(host=host), Hooks(NoHooks(), made.clock), made.dashboard, DashboardAddress()
        )
        await nowhere.run()
        with pytest.raises(CodeButlerError, match=f"cannot listen on {re.escape(host)}"):
            nowhere.link()
    assert "the dashboard and hooks are unavailable" in caplog.text


def test_nothing_of_a_web_server_is_loaded_before_somebody_comes() -> None:
    heavy = ("starlette", "uvicorn", "h11", "codebutler.web.dashboard.site")
    program = (
        f"import sys, codebutler.parent.bootstrap; print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


async def test_a_visitor_who_says_nothing_keeps_nobody_out(built: Watched) -> None:
    place = built.front.url.removeprefix("http://").rstrip("/").split(":")
    with socket.create_connection((place[0], int(place[1]))):
        async with browser(built) as client:
            assert (await client.get("/")).status_code == 200
