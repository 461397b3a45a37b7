"""The workspace's page under attack: by what a bot or an agent says, by names, by addresses, and by other sites."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.async_api import Page, Request, expect

from codebutler.workspace.state import Json
from tests.integration.workspace.browser import Stage, enter, stage

pytestmark = pytest.mark.asyncio(loop_scope="module")
__all__ = ["stage"]
EVIL = '"><img src=x onerror="document.title=1"><script>document.title=2</script>'
LINKS = (
    "#token=xoxp-evil",
    "/#token=xoxp-evil",
    "?x#token=xoxp-evil",
    "/workspace/boot",
    "//evil.example/x",
    "javascript:document.title=1",
    "JaVaScRiPt&colon;document.title=1",
    "&#x1;javascript:document.title=1",
    "data:text/html,<script>alert(1)</script>",
    "data:image/png;base64,AAAA",
    "blob:http://127.0.0.1/x",
    "vbscript:x",
    "file:///etc/passwd",
    "intent://x",
    "http:evil",
)


class Watched:
    """A page's requests to anybody but the workspace."""

    def __init__(self, page: Page, host: str) -> None:
        self.strangers: list[str] = []
        self.referers: list[str] = []
        self._host = host
        page.on("request", self._see)

    def _see(self, request: Request) -> None:
        if urlsplit(request.url).scheme in ("http", "https") and urlsplit(request.url).netloc != self._host:
            self.strangers.append(request.url)
        self.referers += [said] if (said := request.headers.get("referer")) else []


def host_of(stage: Stage) -> str:
    return urlsplit(stage.server.url).netloc


async def test_links_and_pictures_in_markdown_lead_to_the_web_beside_the_page_or_nowhere(
    stage: Stage,
) -> None:
    channel, name = stage.channel()
    lines = [f"- [link {at}]({address})" for at, address in enumerate(LINKS)]
    lines += [f"- ![picture {at}](<{address}>)" for at, address in enumerate(LINKS)]
    lines += [
        "![p](http://evil.example/p.png)",
        "[good](https://good.example/)",
        "[mail](mailto:a@b.example)",
    ]
    stage.post(channel, [{"type": "markdown", "text": "\n".join(lines)}])
    async with stage.page() as page:
        watched = Watched(page, host_of(stage))
        await enter(page, name)
        body = page.locator("#messages .markdown")
        await expect(body.get_by_role("link", name="good")).to_have_attribute("href", "https://good.example/")
        found: list[list[str]] = await body.locator("a").evaluate_all(
            "all => all.map((a) => [a.getAttribute('href'), a.target, a.rel])"
        )
        assert len(found) >= 2
        assert [each for each in found if not re.match(r"https?://|mailto:", each[0])] == []
        assert [each for each in found if each[1:] != ["_blank", "noopener noreferrer"]] == []
        await expect(body.locator("img, script, iframe, object, form, style")).to_have_count(0)
        assert watched.strangers == []


async def test_an_address_with_a_false_key_does_not_take_the_place_of_the_right_one(stage: Stage) -> None:
    _, name = stage.channel()
    async with stage.page(name) as page:
        await page.evaluate("location.hash = 'token=xoxp-evil'")
        await page.reload()
        await expect(page.locator("#connection")).to_have_text("connected")
        assert "token" not in page.url
        assert await page.evaluate("sessionStorage.getItem('token')") == stage.server.user_token


async def test_the_key_is_in_no_address_that_is_kept_and_in_no_referer(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    channel, name = stage.channel()
    stage.server.say(channel, "https://good.example/")
    async with stage.page() as page:
        watched = Watched(page, host_of(stage))
        await enter(page, name)
        assert "token" not in page.url
        kept = await page.evaluate("[document.cookie, JSON.stringify({...localStorage}), document.referrer]")
        assert stage.server.user_token not in "".join(kept)
        await page.reload()
        await enter(page, name)
        assert watched.referers == []
    assert stage.server.user_token not in caplog.text


async def test_words_that_objects_have_by_themselves_are_words(stage: Stage) -> None:
    channel, name = stage.channel()
    ts = stage.server.say(channel, ":constructor: :__proto__: :x:")
    stage.server.workspace.channel(channel).messages[ts].reactions["constructor"] = ["U1"]
    async with stage.page(name) as page:
        messages = page.locator("#messages")
        await expect(messages).to_contain_text(":constructor: :__proto__: ❌")
        await expect(messages).to_contain_text(":constructor: 1")
        await expect(messages).not_to_contain_text("native code")
        await expect(messages).not_to_contain_text("[object")


async def test_names_of_people_places_and_files_are_words(stage: Stage) -> None:
    channel, name = stage.channel()
    workspace = stage.server.workspace
    stranger = next(user for user in workspace.users.values() if user.name == "stranger")
    workspace.channel(channel).topic = EVIL
    token = stage.server.bot_token
    for file_name, kind in ((f"{EVIL}.html", "text/html"), ("a.svg", "image/svg+xml"), ("__proto__", "")):
        content = f"<svg xmlns='http://www.w3.org/2000/svg' onload='document.title=3'/>{EVIL}".encode()
        ticket = stage.server.call(
            "files.getUploadURLExternal", token, filename=file_name, length=len(content)
        )
        path = urlsplit(str(ticket["upload_url"])).path
        await upload(stage, path, content, kind)
        files: list[Json] = [{"id": ticket["file_id"], "title": EVIL}]
        stage.server.call("files.completeUploadExternal", token, channel_id=channel, files=files)
    named: dict[str, Any] = {"username": EVIL, "icons": {"emoji": ":constructor:"}}
    stage.post(channel, None, **named)
    stranger.name, was = EVIL, stranger.name
    try:
        stage.server.say(channel, f"hi <@{stranger.id}> {EVIL}", user=stranger)
        async with stage.page(name) as page:
            messages = page.locator("#messages")
            await expect(messages).to_contain_text("onerror", use_inner_text=True)
            await expect(page.locator("#messages .message").last).to_contain_text(f"hi @{EVIL}")
            await messages.get_by_role("button", name="Preview").first.click()
            await expect(page.locator("dialog pre")).to_contain_text("onload")
            await expect(
                page.locator("#messages img, #messages script, dialog img, dialog script")
            ).to_have_count(0)
            await expect(page).to_have_title(re.compile(rf"^(\(\d+\) )?#{name} · Workspace$"))
    finally:
        stranger.name = was


async def upload(stage: Stage, path: str, content: bytes, kind: str) -> None:
    async with httpx.AsyncClient(trust_env=False) as client:
        address = f"http://{host_of(stage)}{path}"
        answer = await client.post(address, content=content, headers={"content-type": kind or "text/plain"})
        assert answer.status_code == 200


async def test_another_site_can_neither_frame_nor_ask_nor_listen(stage: Stage) -> None:
    host = host_of(stage)
    token = stage.server.user_token
    context = await stage.browser.new_context()
    page = await context.new_page()
    try:
        await page.route(
            "http://evil.example/**", lambda route: route.fulfill(body="<p>evil", content_type="text/html")
        )
        await page.goto("http://evil.example/")
        # Even with the key, which no other site has.
        asked = await page.evaluate(
            """async ([host, token]) => {
              const ask = async (path, options, told) => {
                const signal = AbortSignal.timeout(3000);
                try { return told(await fetch(`http://${host}${path}`, { ...options, signal })); }
                catch { return "refused"; }
              };
              const blind = { method: "POST", mode: "no-cors", body: "{}" };
              const headers = { Authorization: `Bearer ${token}` };
              const frame = Object.assign(document.createElement("iframe"), { src: `http://${host}/#token=${token}` });
              document.body.append(frame);
              await new Promise((resolve) => { frame.onload = resolve; setTimeout(resolve, 3000); });
              const inside = () => { try { return frame.contentDocument?.body.innerText ?? ""; } catch { return ""; } };
              const socket = new WebSocket(`ws://${host}/link/?ticket=x`);
              const opened = new Promise((resolve) => {
                socket.onopen = () => resolve("open");
                socket.onerror = () => resolve("refused");
                setTimeout(() => resolve("refused"), 3000);
              });
              return {
                cors: await ask("/workspace/faults", { method: "POST", headers, body: "{}" }, (a) => a.status),
                read: await ask("/workspace/boot", {}, (a) => a.text()),
                blind: await ask(`/workspace/faults?token=${token}`, blind, (a) => a.type),
                frame: inside(),
                socket: await opened,
              };
            }""",
            [host, token],
        )
        assert asked["cors"] == asked["read"] == asked["socket"] == "refused"
        assert asked["frame"] == ""
        assert asked["blind"] in ("opaque", "refused")
        assert stage.server.faults.pending() == ()
    finally:
        await context.close()
