"""The dashboard in a real browser: what it shows, how it keeps up, and what it does not let in."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, ViewportSize, expect

from codebutler.domain.model import Asked
from tests.browser import PATIENCE_MS, chromium, clean
from tests.dashboards import Watched, repo, turn, watched

pytestmark = pytest.mark.asyncio(loop_scope="module")
HOSTILE = '<img src=x onerror="document.title=1"><script>document.title=2</script>'
LONG = "a-name-that-somebody-chose-without-thinking-of-anybody-who-would-have-to-read-it-on-a-phone"
LOOKS = [(1440, "light"), (1440, "dark"), (390, "light"), (390, "dark")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as started:
        expect.set_options(timeout=PATIENCE_MS)
        yield started


Look = Callable[..., Any]


@pytest.fixture
def look(browser: Browser) -> Look:
    """``look(url, width, scheme)``: a page of its own, whose scripts report no error and which asks nobody else."""

    @asynccontextmanager
    async def opened(url: str, width: int = 1280, scheme: Any = "light") -> AsyncIterator[Page]:
        size: ViewportSize = {"width": width, "height": 844}
        context = await browser.new_context(viewport=size, color_scheme=scheme, reduced_motion="reduce")
        errors: list[str] = []
        asked: set[str] = set()
        try:
            page = await context.new_page()
            page.on("pageerror", lambda error: errors.append(str(error)))
            page.on(
                "console", lambda told: errors.append(told.text) if "Security Policy" in told.text else None
            )
            page.on("request", lambda request: asked.add(re.sub(r"(https?://[^/]+).*", r"\1/", request.url)))
            await page.goto(url)
            yield page
        finally:
            await context.close()
        assert errors == []
        assert asked == {url.partition("#")[0]}

    return opened


def busy(built: Watched) -> None:
    """Something of everything."""
    limits = [{"unit": "usd", "used": 1.2, "limit": 5.0}, {"unit": "turns", "used": 9, "limit": 10}]
    used = {"runs": 9, "tokens": 0, "usd": 1.2, "minutes": 0.0}
    shop = {**repo("shop", running=1, queued=1, waiting=1), "today": used, "budget": limits}
    built.known.repos = [shop, repo("docs", "sleeping"), repo(LONG, "quarantined", "the worker died 5 times")]
    push = Asked(id="a", card="1.2", text="🔐 **Bash**\n```\ngit push\n```")
    built.known.turns = {
        "shop": (
            turn("waiting", "push it", 7, cost_usd=0.42, asked=(push,)),
            turn("running", "why does it fail?", 3),
            turn("queued", "x" * 190, 1),
        ),
        LONG: (turn("interrupted", "translate it", 55), turn("failed", "count to ten", 80)),
    }
    states = {"next": None, "last": None, "last_ok": None, "running": False, "paused": "by the operator"}
    built.known.jobs = [{"name": "nightly", "repo": "shop", "cron": "0 3 * * *", **states}]
    built.log("something failed", "ERR", "shop")


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
async def test_it_can_be_read_by_everybody_everywhere(
    tmp_path: Path, look: Look, width: int, scheme: str
) -> None:
    async with watched(tmp_path) as built:
        busy(built)
        async with look(built.front.link(), width, scheme) as page:
            await expect(page.locator("#connection")).to_have_text("Live")
            await expect(page.locator("#verdict")).to_have_text("1 problem, 2 need you")
            assert await page.title() == "(2) ⚠ CodeButler dashboard"
            await expect(page.locator("#needs li")).to_have_count(2)
            await expect(page.locator("#needs")).to_contain_text("Bash git push")
            await expect(page.locator("#needs a").last).to_have_attribute(
                "href", re.compile("^https://acme.slack.com/")
            )
            await expect(page.locator("#work li")).to_have_count(2)
            await expect(page.locator("#recent")).to_contain_text("failedcount to ten")
            await expect(page.locator("#repos tbody tr")).to_have_count(3)
            await expect(page.locator("#repos")).to_contain_text("$1.20 of $5.00")
            await expect(page.locator("#jobs")).to_contain_text("paused: by the operator")
            await expect(page.locator("#errors")).to_contain_text("something failed")
            await expect(page.locator("#troubles")).to_contain_text("the worker died 5 times")
            assert not await page.evaluate("document.documentElement.scrollWidth > window.innerWidth")
            assert "#" not in page.url
            await clean(page)


async def test_it_keeps_up_and_nobody_loses_their_place(tmp_path: Path, look: Look) -> None:
    async with watched(tmp_path) as built, look(built.front.link()) as page:
        await expect(page.locator("#verdict")).to_have_text("All is well")
        await expect(page.locator("#work")).to_contain_text("Nothing is running.")
        built.known.turns["shop"] = (turn("running", "first", 3),)
        await expect(page.locator("#work li")).to_have_count(1)
        await page.get_by_role("link", name="Thread: shop, first").focus()
        built.known.turns["shop"] = (turn("running", "first", 3, cost_usd=0.5), turn("running", "second", 9))
        await expect(page.locator("#work li")).to_have_count(2)
        await expect(page.locator("#work")).to_contain_text("$0.50")
        await expect(page.get_by_role("link", name="Thread: shop, first")).to_be_focused()
        built.known.slack |= {"state": "reconnecting", "trouble": "no answer"}
        await expect(page.locator("#troubles")).to_contain_text("Slack: no answer")
        built.known.turns["shop"] = ()
        built.known.slack |= {"state": "connected", "trouble": ""}
        await expect(page.locator("#verdict")).to_have_text("All is well")
        await expect(page.locator("#troubles")).to_be_hidden()


async def test_it_says_when_it_knows_nothing_and_comes_back_by_itself(tmp_path: Path, look: Look) -> None:
    async with watched(tmp_path) as first:
        port = int(first.front.url.rstrip("/").rpartition(":")[2])
        opened = look(first.front.link())
        page = await opened.__aenter__()
        await expect(page.locator("#connection")).to_have_text("Live")
    await expect(page.locator("#connection")).to_contain_text("Not connected since")
    await expect(page.locator("#summary")).to_have_text(re.compile("Last seen:.*All is well"))
    await clean(page)
    async with watched(tmp_path, port) as second:
        second.known.repos = [repo("website")]
        await expect(page.locator("#connection")).to_have_text("Live")
        await expect(page.locator("#repos tbody tr")).to_have_count(1)
        await expect(page.locator("#repos tbody")).to_contain_text("website")
        await expect(page.get_by_text("Last seen:")).to_be_hidden()
        await page.reload()
        await expect(page.locator("#connection")).to_have_text("Live")
        await opened.__aexit__(None, None, None)


async def test_only_who_came_by_a_fresh_link_sees_anything(tmp_path: Path, look: Look) -> None:
    async with watched(tmp_path) as built:
        link = built.front.link()
        async with look(link) as page:
            await expect(page.locator("#connection")).to_have_text("Live")
        async with look(link) as page:
            await expect(page.locator("#closed-text")).to_contain_text("already used")
            await expect(page.locator("#page")).to_be_hidden()
            await clean(page)
            fresh = built.front.link().partition("#")[2]
            await page.evaluate("ticket => { location.hash = ticket; }", fresh)
            await expect(page.locator("#connection")).to_have_text("Live")
        async with look(built.front.url) as page:
            await expect(page.locator("#closed-text")).to_contain_text("codebutler dashboard")
            await expect(page.locator("#page")).to_be_hidden()


async def test_who_has_taken_the_port_does_not_get_the_key(tmp_path: Path, look: Look) -> None:
    async with watched(tmp_path / "mine") as first:
        port = int(first.front.url.rstrip("/").rpartition(":")[2])
        opened = look(first.front.link())
        page = await opened.__aenter__()
        await expect(page.locator("#connection")).to_have_text("Live")
        key = (tmp_path / "mine" / "dashboard.key").read_text().strip()
    sent: list[str] = []
    page.on("request", lambda request: sent.append(f"{request.headers} {request.url} {request.post_data}"))
    async with watched(tmp_path / "somebody-elses", port):
        await expect(page.locator("#connection")).to_contain_text("Another supervisor answers here")
    assert key not in "".join(sent)
    async with watched(tmp_path / "mine", port):
        await expect(page.locator("#connection")).to_have_text("Live")
        await opened.__aexit__(None, None, None)


async def test_what_is_told_never_becomes_markup(tmp_path: Path, look: Look) -> None:
    async with watched(tmp_path) as built:
        built.known.repos = [
            repo(HOSTILE, "quarantined", HOSTILE),
            {**repo("shop"), "channel_id": "javascript:alert(1)"},
        ]
        asked = Asked(id="a", card="1.2", text=HOSTILE)
        built.known.turns[HOSTILE] = (turn("waiting", HOSTILE, asked=(asked,)), turn("running", HOSTILE, 9))
        built.known.jobs = [
            {"name": HOSTILE, "repo": HOSTILE, "cron": HOSTILE, "next": None, "last": None, "last_ok": None}
            | {"running": False, "paused": HOSTILE}
        ]
        built.known.slack["trouble"] = HOSTILE
        built.log(HOSTILE, "ERR", HOSTILE)
        async with look(built.front.link()) as page:
            await expect(page.locator("#lines")).to_contain_text("onerror")
            await expect(page.locator("#needs")).to_contain_text("onerror")
            assert await page.title() == "(1) ⚠ CodeButler dashboard"
            assert await page.locator("main :is(img, script)").count() == 0
            assert await page.locator("a[href^=javascript]").count() == 0
            one = turn("running", "twice told")
            built.known.turns[HOSTILE] = (one, one, one)
            await expect(page.locator("#work li")).to_have_count(3)
            built.known.turns[HOSTILE] = (one, turn("running", "another", 1), one)
            await expect(page.locator("#work li")).to_have_count(3)
            await expect(page.locator("#work li", has_text="another")).to_have_count(1)
            built.known.turns[HOSTILE] = (one,)
            await expect(page.locator("#work li")).to_have_count(1)


async def test_the_log_is_filtered_and_followed(tmp_path: Path, look: Look) -> None:
    async with watched(tmp_path) as built:
        built.known.repos = [repo("shop"), repo("docs")]
        for name in ("shop", "docs"):
            for number in range(60):
                built.log(f"{name} says {number}", repo=name)
            built.log(f"{name} fails", "ERR", name)
        async with look(built.front.link()) as page:
            lines = page.locator("#lines li")
            await expect(lines).to_have_count(122)
            await page.locator("#lines").scroll_into_view_if_needed()
            await expect(lines.last).to_be_in_viewport()
            await page.locator("#log").get_by_label("Repository").select_option("docs")
            await expect(lines).to_have_count(61)
            await page.get_by_label("Level", exact=True).select_option("error")
            await expect(lines).to_have_text([re.compile("docs fails")])
            built.log("shop fails again", "ERR", "shop")
            built.log("docs fails again", "ERR", "docs")
            await expect(lines).to_have_text([re.compile("docs fails"), re.compile("docs fails again")])
            await page.locator("#log").get_by_label("Repository").select_option("")
            await expect(lines).to_have_count(4)
            await page.locator("#log").get_by_label("Words").fill("again SHOP")
            await expect(lines).to_have_text([re.compile("shop fails again")])
            await page.locator("#log").get_by_label("Words").fill("")
            await expect(lines).to_have_count(4)
            await page.get_by_label("Level", exact=True).select_option("warn")
            await expect(page.locator("#log").get_by_label("Repository")).to_have_value("")


async def test_among_a_hundred_one_is_found(tmp_path: Path, look: Look) -> None:
    async with watched(tmp_path) as built:
        built.known.repos = [repo(f"service-{number}", "sleeping") for number in range(100)]
        async with look(built.front.link(), 390) as page:
            rows = page.locator("#repos tbody tr")
            await expect(rows).to_have_count(100)
            await clean(page)
            await page.get_by_label("Find").fill("SERVICE-42")
            await expect(rows).to_have_count(1)
            await expect(page.locator("#repos-count")).to_have_text("1 of 100")
            await page.get_by_label("Find").fill("nothing like it")
            await expect(rows).to_have_count(0)
            built.known.repos = []
            await expect(page.locator("#repos")).to_contain_text("No repositories yet")
