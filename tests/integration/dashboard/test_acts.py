"""What a person does on the dashboard: it is the click, the message or the order that it would be elsewhere.

`make screenshot` runs this with CODEBUTLER_SCREENSHOT set: the pictures in the docs are what the test saw.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, ViewportSize, expect

from codebutler.domain.model import OPERATOR, Asked, ButtonClicked, MessagePosted
from tests.browser import PATIENCE_MS, chromium, clean
from tests.dashboards import Watched, repo, turn, watched

pytestmark = pytest.mark.asyncio(loop_scope="module")
PUSH = Asked(
    id="a1",
    card="1.2",
    text="🔐 Permission needed: `Bash`\n```\ngit push origin fix/rounding\n```\nin `~/shop`",
)
WHICH = Asked(
    id="q1", card="1.3", text="🤔 Which database?", options=("SQLite", "PostgreSQL"), is_question=True
)
BROWSERS = Asked(
    id="q2",
    card="1.3",
    text="🤔 Which browsers?",
    options=("Chromium", "Firefox"),
    is_question=True,
    several=True,
)
PICTURES = {(1280, "light"): "dashboard.png", (390, "dark"): "dashboard-phone.png"}
LOOKS = [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as started:
        expect.set_options(timeout=PATIENCE_MS)
        yield started


@asynccontextmanager
async def opened(browser: Browser, url: str, width: int = 1280, scheme: Any = "light") -> AsyncIterator[Page]:
    """A page whose scripts report no error."""
    size: ViewportSize = {"width": width, "height": 844}
    context = await browser.new_context(viewport=size, color_scheme=scheme, reduced_motion="reduce")
    errors: list[str] = []
    try:
        page = await context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda told: errors.append(told.text) if "Security Policy" in told.text else None)
        await page.goto(url)
        await expect(page.locator("#connection")).to_have_text("Live")
        yield page
    finally:
        await context.close()
    assert errors == []


@asynccontextmanager
async def asking(home: Path) -> AsyncIterator[Watched]:
    """Three runs need somebody, two are at work."""
    async with watched(home) as built:
        built.known.turns["shop"] = (
            turn("waiting", "push the fix", 3, asked=(PUSH,)),
            turn("waiting", "set up the tests", 2, asked=(WHICH, BROWSERS)),
            turn("interrupted", "translate the front page", 1, card="1.4"),
            turn("running", "why does the build fail?", 5),
            turn("queued", "then write the changelog", 4),
            turn("done", "round prices once, at the end", 9, cost_usd=0.12, changed=True),
        )
        states: dict[str, Any] = {"next": None, "last": None, "last_ok": None, "running": False}
        at = (datetime.now(UTC) + timedelta(hours=9)).isoformat()
        built.known.jobs = [
            {"name": "nightly tests", "repo": "shop", "cron": "0 3 * * *", **states, "next": at, "paused": ""}
        ]
        yield built


def click(built: Watched) -> ButtonClicked:
    """The newest event, which is a click of the operator's."""
    heard = built.thread.heard[-1]
    assert isinstance(heard, ButtonClicked)
    assert (heard.user, heard.origin, heard.channel) == (OPERATOR, "local", "C0123456")
    return heard


async def pressed(page: Page, built: Watched, name: str) -> ButtonClicked:
    """Press the button of that name."""
    before = len(built.thread.heard)
    await page.get_by_role("button", name=name, exact=True).click()
    await expect(page.locator("#told")).to_contain_text("Sent")
    assert len(built.thread.heard) == before + 1
    return click(built)


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
async def test_everything_can_be_decided_by_everybody_everywhere(
    browser: Browser, tmp_path: Path, width: int, scheme: str
) -> None:
    async with asking(tmp_path) as built, opened(browser, built.front.link(), width, scheme) as page:
        await expect(page.locator("#needs li pre")).to_have_text("git push origin fix/rounding")
        await page.get_by_role("button", name="Deny with a reason: shop, push the fix").click()
        await expect(page.get_by_label("Why not, or what instead?")).to_be_focused()
        assert not await page.evaluate("document.documentElement.scrollWidth > window.innerWidth")
        await clean(page)
        if (pictures := os.environ.get("CODEBUTLER_SCREENSHOT")) and (width, scheme) in PICTURES:
            await page.get_by_role("button", name="Deny with a reason: shop, push the fix").click()
            await page.evaluate("scrollTo(0, 0)")
            await page.screenshot(path=Path(pictures) / PICTURES[width, scheme])


async def test_a_decision_is_the_click_on_its_card(browser: Browser, tmp_path: Path) -> None:
    async with asking(tmp_path) as built, opened(browser, built.front.link()) as page:
        allowed = await pressed(page, built, "Allow: shop, push the fix")
        assert (allowed.action_id, allowed.value, allowed.message) == ("codebutler.allow", "a1", "1.2")
        assert allowed.thread == built.known.turns["shop"][0].thread
        await expect(page.locator("#needs li", has_text="push the fix")).to_have_class("turn busy")
        built.known.turns["shop"] = built.known.turns["shop"][1:]
        await expect(page.locator("#needs li")).to_have_count(2)
        await expect(page.get_by_role("heading", name="Needs you")).to_be_focused()
        chosen = await pressed(page, built, "PostgreSQL: shop, set up the tests, 1 of 2")
        assert (chosen.action_id, chosen.value) == ("codebutler.answer", "q1:1")
        continued = await pressed(page, built, "Continue: shop, translate the front page")
        assert (continued.action_id, continued.message) == ("codebutler.retry", "1.4")
        stopped = await pressed(page, built, "Stop: shop, why does the build fail?")
        assert (stopped.action_id, stopped.value) == ("codebutler.stop", built.known.turns["shop"][2].id)
        withdrawn = await pressed(page, built, "Withdraw: shop, then write the changelog")
        assert withdrawn.action_id == "codebutler.stop"


async def test_a_reason_the_boxes_and_words_go_with_it(browser: Browser, tmp_path: Path) -> None:
    async with asking(tmp_path) as built, opened(browser, built.front.link()) as page:
        await page.get_by_role("button", name="Deny with a reason: shop, push the fix").click()
        await page.keyboard.type("not on a Friday")
        # What changes beside it takes nothing away that is being written.
        shop = built.known.turns["shop"]
        built.known.turns["shop"] = (
            turn("waiting", "push the fix", 3, asked=(PUSH,), cost_usd=0.25),
            *shop[1:],
        )
        await expect(page.locator("#needs")).to_contain_text("$0.25")
        await expect(page.get_by_label("Why not, or what instead?")).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(page.locator("#told")).to_contain_text("Sent")
        denied = click(built)
        assert (denied.action_id, denied.value, denied.words) == ("codebutler.deny", "a1", "not on a Friday")
        await page.get_by_label("Firefox").check()
        several = await pressed(page, built, "Done: shop, set up the tests, 2 of 2")
        assert (several.value, several.picked) == ("q2:ticked", ("q2:1",))
        built.known.turns["shop"] = (turn("waiting", "set up the tests", 2, asked=(WHICH,)),)
        await expect(page.locator("#needs li")).to_have_count(1)
        await page.get_by_label("Or answer in your own words").fill("MariaDB")
        await page.get_by_role("button", name="Answer: shop, set up the tests").click()
        await expect(page.locator("#told")).to_contain_text("your answer")
        said = built.thread.heard[-1]
        assert isinstance(said, MessagePosted)
        assert (said.text, said.thread, said.user, said.seen) == ("MariaDB", shop[1].thread, OPERATOR, "1.3")
        assert built.thread.posted[-1][1].message.markdown == "**operator:** MariaDB"


async def test_why_nothing_came_of_it_is_told_and_it_can_be_pressed_again(
    browser: Browser, tmp_path: Path
) -> None:
    async with asking(tmp_path) as built, opened(browser, built.front.link()) as page:
        built.thread.outcome = "refused"
        button = page.get_by_role("button", name="Allow: shop, push the fix")
        await button.click()
        await expect(page.locator("#wrong")).to_contain_text("refused")
        built.thread.outcome = "accepted"
        await button.click()
        await expect(page.locator("#told")).to_contain_text("Sent")
        await expect(page.locator("#wrong")).to_be_hidden()
        await button.click()
        assert len(built.thread.heard) == 2


async def test_what_comes_under_the_pointer_is_not_decided_by_the_same_click(
    browser: Browser, tmp_path: Path
) -> None:
    async with watched(tmp_path) as built:
        other = Asked(id="a2", card="1.5", text=PUSH.text)
        built.known.turns["shop"] = (
            turn("waiting", "push the fix", 9, asked=(PUSH,)),
            turn("waiting", "push the rest", 8, asked=(other,)),
        )
        async with opened(browser, built.front.link()) as page:
            button = page.get_by_role("button", name="Allow: shop, push the fix")
            await button.scroll_into_view_if_needed()
            place = await button.bounding_box()
            assert place is not None
            at = (place["x"] + 5, place["y"] + 5)
            await page.mouse.click(*at)
            await expect(page.locator("#told")).to_contain_text("Sent")
            built.known.turns["shop"] = built.known.turns["shop"][1:]
            await expect(page.locator("#needs li")).to_have_count(1)
            await page.mouse.click(*at)
            await expect(page.locator("#wrong")).to_contain_text("press again")
            assert click(built).value == "a1"
            await page.mouse.click(*at)
            await expect(page.locator("#told")).to_contain_text("Sent")
            assert click(built).value == "a2"


async def test_workers_and_schedules_are_tended(browser: Browser, tmp_path: Path) -> None:
    async with watched(tmp_path) as built:
        built.known.repos = [repo("shop"), repo("docs", "sleeping")]
        states: dict[str, Any] = {"next": None, "last": None, "last_ok": None, "running": False}
        built.known.jobs = [{"name": "nightly", "repo": "shop", "cron": "0 3 * * *", **states, "paused": ""}]
        built.known.timers = [
            {"id": "a1b2", "repo": "shop", "at": "2100-01-01T00:00:00+00:00", "text": "look"}
        ]
        async with opened(browser, built.front.link()) as page:
            page.on("dialog", lambda dialog: dialog.accept())
            for name in ("Restart: shop", "Wake: docs", "Run now: shop, nightly", "Cancel: shop, look"):
                await page.get_by_role("button", name=name).click()
                await expect(page.locator("#told")).not_to_be_empty()
            built.known.jobs[0]["paused"] = "by the operator"
            await page.get_by_role("button", name="Resume: shop, nightly").click()
            await expect(page.locator("#told")).to_have_text("shop/nightly: resume")
        assert built.known.done == [
            ("restart", "shop"),
            ("wake", "docs"),
            ("run", "shop/nightly"),
            ("cancel", "shop", "a1b2"),
            ("resume", "shop/nightly"),
        ]
        assert [
            (act.user, act.channel, act.kind, act.text, act.decision) for act in built.known.audit[:2]
        ] == [
            (OPERATOR, "C0123456", "dashboard restart worker", "shop", "allowed"),
            (OPERATOR, "C0123456", "dashboard start worker", "docs", "allowed"),
        ]


async def key_of(client: httpx.AsyncClient, built: Watched) -> str:
    ticket = built.front.link().partition("#")[2]
    return str((await client.post("/dashboard/key", json={"ticket": ticket})).json()["key"])


async def test_only_what_is_open_is_decided_and_only_with_the_key(tmp_path: Path) -> None:
    async with (
        asking(tmp_path) as built,
        httpx.AsyncClient(base_url=built.front.url, trust_env=False) as client,
    ):
        waiting = built.known.turns["shop"][0]
        allow = {"do": "decide", "repo": "shop", "run": waiting.id, "card": "1.2", "value": "a1"}
        allow |= {"action": "codebutler.allow"}

        async def act(body: dict[str, Any], **headers: str) -> httpx.Response:
            return await client.post("/dashboard/act", json=body, headers=headers)

        bearer = {"authorization": f"Bearer {await key_of(client, built)}"}
        assert (await act(allow)).status_code == 401
        assert (await act(allow, authorization="Bearer guessed")).status_code == 401
        assert (await act(allow, **bearer, origin="http://evil.example")).status_code == 403
        assert (await act(allow, **bearer, host="evil.example")).status_code == 403
        for other in (
            {"action": "codebutler.push"},
            {"value": "a2"},
            {"card": "1.3"},
            {"run": "gone"},
            {"repo": "unknown"},
        ):
            assert (await act({**allow, **other}, **bearer)).status_code == 409, other
        assert (await act({**allow, "user": "U1"}, **bearer)).status_code == 400
        assert (await act({"do": "worker", "repo": "shop", "how": "kill"}, **bearer)).status_code == 400
        assert built.thread.heard == []
        assert (await act(allow, **bearer)).json() == {"told": "Sent. The thread shows the result."}
        built.thread.down = "it stays down"
        assert "it stays down" in (await act(allow, **bearer)).json()["error"]
        assert len(built.thread.heard) == 2  # it is kept until the worker runs


async def test_what_is_not_shown_in_full_cannot_be_decided(browser: Browser, tmp_path: Path) -> None:
    async with watched(tmp_path) as built:
        plan = Asked(id="p1", card="1.2")
        made_up = Asked(id="x" * 5000, card="1.2", text="short")
        built.known.turns["shop"] = (turn("waiting", "plan it", asked=(plan, made_up)),)
        async with opened(browser, built.front.link()) as page:
            await expect(page.locator("#needs .asked")).to_have_count(2)
            way = page.get_by_role("link", name="Read it and decide: shop, plan it")
            await expect(way).to_have_count(2)
            await expect(page.locator("#needs .asked button")).to_have_count(0)
