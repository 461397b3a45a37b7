"""The page of what a run changed, in a real browser: it is read there, and comments go from it into the thread."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, ViewportSize, expect

from codebutler.domain.model import OPERATOR, MessagePosted
from codebutler.protocol.conversations import ChangedFile, RunChanges
from tests.browser import PATIENCE_MS, chromium, clean
from tests.dashboards import Watched, watched

pytestmark = pytest.mark.asyncio(loop_scope="module")
HOSTILE = '<img src=x onerror="document.title=1"><script>document.title=2</script>'
BODY = f"""diff --git a/src/cart.py b/src/cart.py
--- a/src/cart.py
+++ b/src/cart.py
@@ -10,5 +10,6 @@ def total(items: list[Item]) -> Decimal:
     \"\"\"The sum of all prices.\"\"\"
-    # each price is rounded
-    return sum(round(item.price, 2) for item in items)
+    raw = sum(item.price for item in items)
+    # {HOSTILE}
+    return round(raw, 2)  # {"once, " * 30}
diff --git a/tests/test_cart.py b/tests/test_cart.py
--- a/tests/test_cart.py
+++ b/tests/test_cart.py
@@ -1,2 +1,3 @@
 from shop.cart import total
+assert total([]) == 0

"""
FILES = (
    ChangedFile(path="src/cart.py", added=3, removed=2, is_shown=True),
    ChangedFile(path=f"img/{HOSTILE}.png"),
    ChangedFile(path="poetry.lock", added=9000, removed=8000),
    ChangedFile(path="tests/test_cart.py", added=1, removed=0, is_shown=True),
)
RUN = RunChanges(
    request_id="r1", thread="1700000000.000100", agent="claude", task="Round prices once, at the end",
    at="2026-01-01T12:00:00+00:00", files=FILES, commits=("1a2b3c4 Round prices once",), body=BODY.encode(),
)  # fmt: skip
SIZES = [(1280, 800), (390, 844)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as started:
        expect.set_options(timeout=PATIENCE_MS)
        yield started


@asynccontextmanager
async def opened(
    browser: Browser, url: str, size: tuple[int, int] = SIZES[0], **more: Any
) -> AsyncIterator[Page]:
    """A page whose scripts report no error."""
    viewport: ViewportSize = {"width": size[0], "height": size[1]}
    context = await browser.new_context(viewport=viewport, reduced_motion="reduce", **more)
    errors: list[str] = []
    try:
        page = await context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda told: errors.append(told.text) if "Security Policy" in told.text else None)
        await page.goto(url)
        yield page
    finally:
        await context.close()
    assert errors == []


@asynccontextmanager
async def served(home: Path) -> AsyncIterator[Watched]:
    async with watched(home) as built:
        built.worker.runs["t1"] = RUN
        yield built


def address(built: Watched, run: str = "t1") -> str:
    url, _, ticket = built.front.link().partition("#")
    return f"{url}changes/shop/{run}#{ticket}"


def said(built: Watched) -> MessagePosted:
    """The one message that was."""
    (heard,) = built.thread.heard
    assert isinstance(heard, MessagePosted)
    return heard


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
async def test_it_is_read_and_commented_at_any_size(
    browser: Browser, tmp_path: Path, size: tuple[int, int], scheme: str
) -> None:
    async with served(tmp_path) as built, opened(browser, address(built), size, color_scheme=scheme) as page:
        await expect(page.get_by_role("heading", name="Round prices once, at the end")).to_be_visible()
        assert "#" not in page.url
        assert await page.title() == "Round prices once, at the end · shop"
        await expect(page.locator("#files li")).to_have_count(4)
        await expect(page.locator("#file-1")).to_contain_text("Binary file not shown")
        await expect(page.locator("#file-2")).to_contain_text("Too many changed lines")
        await expect(page.locator("#thread")).to_have_attribute(
            "href", "https://acme.slack.com/archives/C0123456/p1700000000000100"
        )
        assert await page.locator("img[src=x], main script").count() == 0
        wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert await page.evaluate(wide) == 0
        await clean(page)
        await page.locator("#file-0 tr.line", has_text="raw = sum").locator("td.num").nth(1).click()
        await (
            page.locator("#file-0 tr.line", has_text="return round")
            .locator("td.num")
            .nth(1)
            .click(modifiers=["Shift"])
        )
        field = page.get_by_label("Comment on src/cart.py:11-13")
        await expect(field).to_be_focused()
        await field.fill("Is this exact?")
        await clean(page)
        await page.get_by_role("button", name="Add comment").click()
        await page.locator("#file-1").get_by_role("button", name="Comment on the file").click()
        await page.keyboard.type("Why an image?")
        await page.keyboard.press("Control+Enter")
        await page.reload()
        await expect(page.locator(".words")).to_have_text(["Is this exact?", "Why an image?"])
        assert built.thread.posted == []
        await page.get_by_role("button", name="Send 2 comments to the thread").click()
        await expect(page.locator("#sent")).to_contain_text("Sent 2 comments.")
        await expect(page.locator(".words")).to_have_count(0)
        await clean(page)
    ((channel, post),) = built.thread.posted
    heard = said(built)
    assert (channel, post.thread, heard.thread) == ("C0123456", RUN.thread, RUN.thread)
    assert (heard.user, heard.origin, heard.ref) == (OPERATOR, "local", "9.1")
    assert heard.text.startswith(
        "Comments on your changes:\n\nsrc/cart.py:11-13\n> +    raw = sum(item.price for item in items)\n"
    )
    assert heard.text.endswith("png\nWhy an image?")


async def test_side_by_side_shows_both_sides_and_comments_what_is_gone(
    browser: Browser, tmp_path: Path
) -> None:
    async with served(tmp_path) as built, opened(browser, address(built)) as page:
        await page.get_by_role("button", name="Side by side").click()
        row = page.locator("#file-0 tr.line", has_text="each price is rounded")
        await expect(row).to_contain_text("raw = sum")
        await clean(page)
        await row.locator("td.num").first.click()
        await page.get_by_label("Comment on src/cart.py:11 (before the change)").fill("This was right.")
        await page.get_by_role("button", name="Add comment").click()
        await page.get_by_role("button", name="Send 1 comment").click()
        await expect(page.locator("#sent")).to_contain_text("Sent 1 comment.")
        await expect(page.locator("#send")).to_have_text("Send to the thread")
    heard = said(built)
    assert "src/cart.py:11 (before the change)\n> -    # each price is rounded\nThis was right." in heard.text


async def test_the_keyboard_alone_is_enough(browser: Browser, tmp_path: Path) -> None:
    async with served(tmp_path) as built, opened(browser, address(built)) as page:
        await page.locator("#file-3 tr.line").first.focus()
        await page.keyboard.press("ArrowDown")
        await page.keyboard.press("Shift+ArrowUp")
        await expect(page.locator('#file-3 [aria-selected="true"]')).to_have_count(2)
        await page.keyboard.press("Enter")
        await expect(page.get_by_label("Comment on tests/test_cart.py:1-2")).to_be_focused()
        await page.keyboard.press("Escape")
        await expect(page.locator("textarea")).to_have_count(0)
        await page.keyboard.press("Enter")
        await page.keyboard.type("Not zero?")
        await page.keyboard.press("Control+Enter")
        await page.get_by_role("button", name="Edit").focus()
        await page.keyboard.press("Enter")
        await page.keyboard.type(" Really.")
        await page.keyboard.press("Control+Enter")
        await expect(page.locator(".words")).to_have_text("Not zero? Really.")
        await page.get_by_role("button", name="Delete").press("Enter")
        await expect(page.locator("#send")).to_be_disabled()


async def test_what_was_refused_stays_to_be_sent_again(browser: Browser, tmp_path: Path) -> None:
    async with served(tmp_path) as built, opened(browser, address(built)) as page:
        built.thread.outcome = "refused"
        await page.locator("#file-0 td.num").nth(1).click()
        await page.keyboard.type("No.")
        await page.keyboard.press("Control+Enter")
        await page.get_by_role("button", name="Send 1 comment").click()
        await expect(page.locator("#wrong")).to_contain_text("Not sent: the message was refused")
        await expect(page.locator(".words")).to_have_text("No.")
        await expect(page.locator("#send")).to_be_enabled()


async def test_without_a_key_it_asks_for_the_link_and_stays_where_it_is(
    browser: Browser, tmp_path: Path
) -> None:
    async with served(tmp_path) as built, opened(browser, address(built).partition("#")[0]) as page:
        await expect(page.locator("#closed-text")).to_have_text(
            "You are not signed in to the dashboard in this browser."
        )
        await clean(page)
        await page.get_by_label("paste the link").fill(built.front.link())
        await page.get_by_role("button", name="Open").click()
        await expect(page.locator("#files li")).to_have_count(4)


async def test_a_run_that_is_not_known_says_so(browser: Browser, tmp_path: Path) -> None:
    async with served(tmp_path) as built, opened(browser, address(built, "t2")) as page:
        await expect(page.locator("#closed-text")).to_have_text("unknown run")


async def test_nobody_without_the_key_reads_or_says_anything(tmp_path: Path) -> None:
    async with (
        served(tmp_path) as built,
        httpx.AsyncClient(base_url=built.front.url, trust_env=False) as client,
    ):
        ticket = built.front.link().partition("#")[2]
        key = (await client.post("/dashboard/key", json={"ticket": ticket})).json()["key"]
        given = {
            "repo": "shop",
            "thread": "1.0",
            "comments": [{"path": "a", "first": 1, "last": 1, "text": "x"}],
        }
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": f"Basic {key}"}):
            asked = await client.get("/dashboard/changes?repo=shop&run=t1", headers=headers)
            said = await client.post("/dashboard/comments", json=given, headers=headers)
            assert (asked.status_code, said.status_code) == (401, 401)
        known = {"authorization": f"Bearer {key}"}
        for stranger in ({"origin": "http://evil.example"}, {"host": "evil.example"}):
            said = await client.post("/dashboard/comments", json=given, headers=known | stranger)
            assert said.status_code == 403
        assert built.thread.posted == []
        nothing, nobodys = given | {"comments": []}, given | {"repo": "another"}
        for wrong, status in (
            (b"{}", 400), (b"\xff", 400), (b"x" * 2**19, 413), (b'{"a":' + b"[" * 4000, 400),
            (msgspec.json.encode(nobodys), 409), (msgspec.json.encode(nothing), 409),
        ):  # fmt: skip
            assert (
                await client.post("/dashboard/comments", content=wrong, headers=known)
            ).status_code == status
        assert built.thread.posted == []
        page = await client.get("/changes/shop/t1")
        assert (page.status_code, "script-src 'self'" in page.headers["content-security-policy"]) == (
            200,
            True,
        )
