"""A thread's transcript and search over conversations, in a real browser; and how a new tab gets the key."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from msgspec import structs
from playwright.async_api import Browser, BrowserContext, Page, ViewportSize, expect

from codebutler.domain.model import Asked, ButtonClicked
from codebutler.protocol.conversations import AskedTold, FoundRun, FoundTold, RunTold, SaidTold, ThreadTold
from tests.browser import PATIENCE_MS, chromium, clean
from tests.dashboards import Watched, repo, turn, watched

pytestmark = pytest.mark.asyncio(loop_scope="module")
AT = "2026-01-01T12:00:00+00:00"
HOSTILE = '<img src=x onerror="document.title=1">'
RUNS = (
    RunTold(
        id="t0",
        state="done",
        agent="claude",
        at=AT,
        said=(SaidTold(user="U01", at=AT, text=f"why does it fail? {HOSTILE}"),),
        answer="The linker does not find it:\n```\ncc: libfoo " + "x" * 200 + "\n```\nSo install it.",
        cost_usd=0.12,
        changed=True,
    ),
    RunTold(
        id="t1",
        state="failed",
        agent="kimi",
        at=AT,
        said=(SaidTold(user="operator", at=AT, text="install it"),),
        decided=('Permission allowed by U01. {"tool":"Bash"}',),
        is_cut=True,
    ),
)
LOOKS = [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as started:
        expect.set_options(timeout=PATIENCE_MS)
        yield started


@asynccontextmanager
async def window(browser: Browser, width: int = 1280, scheme: Any = "light") -> AsyncIterator[BrowserContext]:
    """Tabs of one browser, whose scripts report no error."""
    size: ViewportSize = {"width": width, "height": 844}
    context = await browser.new_context(viewport=size, color_scheme=scheme, reduced_motion="reduce")
    errors: list[str] = []
    context.on("weberror", lambda error: errors.append(str(error.error)))
    try:
        yield context
    finally:
        await context.close()
    assert errors == []


async def tab(context: BrowserContext, url: str) -> Page:
    page = await context.new_page()
    await page.goto(url)
    return page


@asynccontextmanager
async def talked(home: Path) -> AsyncIterator[Watched]:
    async with watched(home) as built:
        told = ThreadTold(request_id="", thread="1700000000.000100", runs=RUNS, has_more=True)
        built.worker.threads = {"t0": told, "t1": told}
        found = FoundRun(
            id="t1", thread="1700000000.000100", agent="kimi", at=AT, title="why?", text="the **linker**"
        )
        built.known.repos = [repo("shop"), repo("docs", "sleeping"), repo("down", "quarantined", "it died")]
        built.worker.found = {
            "shop": FoundTold(request_id="", runs=(found,)),
            "docs": FoundTold(request_id=""),
        }
        yield built


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
async def test_a_thread_is_read_by_everybody_everywhere(
    browser: Browser, tmp_path: Path, width: int, scheme: str
) -> None:
    async with talked(tmp_path) as built, window(browser, width, scheme) as context:
        url, _, ticket = built.front.link().partition("#")
        page = await tab(context, f"{url}thread/shop/t1#{ticket}")
        await expect(page.locator("#runs > li")).to_have_count(2)
        await expect(page.get_by_role("heading", level=1)).to_contain_text("why does it fail?")
        await expect(page.locator("#runs")).to_contain_text("Ana")
        await expect(page.locator("#runs pre")).to_contain_text("cc: libfoo")
        await expect(page.locator(".decided")).to_contain_text("Permission allowed by Ana")
        await expect(page.locator("#runs > li.chosen")).to_contain_text("open the thread in the chat")
        await expect(page.get_by_role("link", name="Changes")).to_have_attribute("href", "/changes/shop/t0")
        await expect(page.get_by_text("Earlier runs are not shown here")).to_be_visible()
        assert await page.locator("main img").count() == 0
        assert not await page.evaluate("document.documentElement.scrollWidth > window.innerWidth")
        await clean(page)


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
async def test_what_is_too_long_for_the_list_is_decided_where_all_of_it_is_read(
    browser: Browser, tmp_path: Path, width: int, scheme: str
) -> None:
    async with talked(tmp_path) as built, window(browser, width, scheme) as context:
        plan = Asked(id="p1", card="1.2")
        waiting = turn("waiting", "plan it", 3, asked=(plan,))
        built.known.turns["shop"] = (waiting,)
        text = "📋 Here is the plan.\n\n" + "1. look\n" * 200 + HOSTILE
        asked = AskedTold(asked=structs.replace(plan, text=text), is_foreign=True)
        told = ThreadTold(request_id="", thread="1700000000.000100", runs=RUNS, asked=(asked,))
        built.worker.threads[waiting.id] = told
        page = await tab(context, built.front.link())
        await page.get_by_role("link", name="Read it and decide: shop, plan it").click()
        await expect(page.locator("#needs .says")).to_contain_text("1. look")
        assert await page.locator("main img").count() == 0
        await clean(page)
        built.worker.threads[waiting.id] = structs.replace(told, asked=())
        await page.get_by_role("button", name="Allow: shop").click()
        await expect(page.locator("#told")).to_contain_text("Sent")
        await expect(page.locator("#needs")).to_be_hidden()
        (heard,) = built.thread.heard
        assert isinstance(heard, ButtonClicked)
        assert (heard.action_id, heard.value, heard.message) == ("codebutler.allow", "p1", "1.2")


async def test_what_there_is_none_of_says_so(browser: Browser, tmp_path: Path) -> None:
    async with talked(tmp_path) as built, window(browser) as context:
        url, _, ticket = built.front.link().partition("#")
        page = await tab(context, f"{url}thread/shop/gone#{ticket}")
        await expect(page.locator("#closed-text")).to_have_text("unknown run")
        await page.goto(f"{url}thread/nobody/t1")
        await expect(page.locator("#closed-text")).to_contain_text("no repository with that name")


@pytest.mark.parametrize("width", [1280, 390])
async def test_conversations_are_searched_and_read(browser: Browser, tmp_path: Path, width: int) -> None:
    async with talked(tmp_path) as built, window(browser, width) as context:
        page = await tab(context, built.front.link())
        await page.get_by_role("searchbox", name="Words").first.fill("linker")
        await page.keyboard.press("Enter")
        await expect(page.locator("#search li")).to_have_count(1)
        await expect(page.locator("#search strong")).to_have_text("linker")
        await expect(page.locator("#search-told")).to_have_text(
            "1 conversation with “linker”. Not searched: down: the worker is not running."
        )
        await clean(page)
        await page.locator("#search-repo").select_option("docs")
        await page.get_by_role("button", name="Search").click()
        await expect(page.locator("#search-told")).to_have_text("No conversations with “linker”.")
        assert built.worker.asked == ["shop", "docs", "down", "docs"]
        await page.locator("#search-repo").select_option("")
        await page.get_by_role("button", name="Search").click()
        await page.get_by_role("link", name="why?").click()
        await expect(page.locator("#runs > li")).to_have_count(2)


async def test_a_new_tab_gets_the_key_from_one_that_is_open(browser: Browser, tmp_path: Path) -> None:
    async with talked(tmp_path) as built, window(browser) as context:
        url = built.front.url
        waiting = await tab(context, f"{url}thread/shop/t1")
        await expect(waiting.locator("#enter")).to_be_visible()
        first = await tab(context, built.front.link())
        await expect(first.locator("#connection")).to_have_text("Live")
        await expect(waiting.locator("#runs > li")).to_have_count(2)
        second = await tab(context, url)
        await expect(second.locator("#connection")).to_have_text("Live")
    async with talked(tmp_path) as built, window(browser) as stranger:
        page = await tab(stranger, built.front.url)
        await expect(page.locator("#closed-text")).to_contain_text("codebutler dashboard")


async def test_a_page_of_somebody_who_has_taken_the_port_gets_no_key(
    browser: Browser, tmp_path: Path
) -> None:
    async with window(browser) as context:
        async with talked(tmp_path / "mine") as built:
            port = int(built.front.url.rstrip("/").rpartition(":")[2])
            page = await tab(context, built.front.link())
            await expect(page.locator("#connection")).to_have_text("Live")
        async with watched(tmp_path / "somebody-elses", port) as other:
            other.known.turns["shop"] = (turn("running", "theirs"),)
            theirs = await tab(context, other.front.url)
            await expect(theirs.locator("#closed-text")).to_contain_text("has no key")
            assert await theirs.evaluate("sessionStorage.length") == 0
