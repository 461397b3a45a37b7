"""The place where somebody reads: what opens, closes or arrives does not take it away."""

from __future__ import annotations

import pytest
from playwright.async_api import Locator, Page, expect

from tests.integration.workspace.browser import Stage, enter, stage
from tests.integration.workspace.test_page_desk import KEEP_SOURCE
from tests.integration.workspace.test_page_reading import FIRST_SEEN

pytestmark = pytest.mark.asyncio(loop_scope="module")
__all__ = ["stage"]


async def first_seen(messages: Locator) -> str:
    """The ts of the first visible message, once the browser has drawn what changed."""
    drawn = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
    await messages.page.evaluate(drawn)
    return str(await messages.evaluate(FIRST_SEEN))


async def scrolled_up(page: Page, texts: int) -> str:
    """Go to the middle of the channel; the ts of what is read there."""
    messages = page.locator("#messages")
    await expect(page.locator("#messages .message")).to_have_count(texts)
    await messages.evaluate("list => { list.scrollTop = list.scrollHeight / 2; }")
    return await first_seen(messages)


def filled(stage: Stage) -> tuple[str, str]:
    """A channel with 60 messages, each with one reply; its ID and name."""
    channel, name = stage.channel()
    for number in range(60):
        root = stage.post(
            channel, text=f"number {number}, which is long enough for two lines in a narrow channel"
        )
        stage.post(channel, text="a reply", thread_ts=root)
    return channel, name


async def test_a_thread_that_opens_or_closes_leaves_the_channel_in_its_place(stage: Stage) -> None:
    _, name = filled(stage)
    async with stage.page(name) as page:
        messages = page.locator("#messages")
        seen = await scrolled_up(page, 60)
        await messages.locator(f"[data-ts='{seen}'] ~ .message .replies").first.click()
        await expect(page.locator("#replies .message")).to_have_count(2)
        await expect(page.get_by_label("Reply…")).to_be_focused()
        assert await first_seen(messages) == seen
        await page.get_by_label("Close thread").click()
        await expect(page.get_by_label(f"Message #{name}")).to_be_focused()
        assert await first_seen(messages) == seen


async def test_a_page_that_begins_anew_shows_what_was_read(stage: Stage) -> None:
    channel, name = filled(stage)
    async with stage.page(name, script=KEEP_SOURCE) as page:
        messages = page.locator("#messages")
        seen = await scrolled_up(page, 60)
        await page.evaluate("source.close()")
        stage.server.say(channel, "while you were away")
        await page.evaluate("source.dispatchEvent(new Event('reset'))")
        await expect(page.locator("#messages .message", has_text="while you were away")).to_be_attached()
        assert await first_seen(messages) == seen


async def test_news_below_what_is_read_is_offered_and_gone_to(stage: Stage) -> None:
    channel, name = filled(stage)
    async with stage.page(name) as page:
        news = page.locator("#channel").get_by_role("button", name="New messages")
        await scrolled_up(page, 60)
        await expect(news).to_be_hidden()
        stage.post(channel, text="the latest")
        await news.click()
        await expect(page.locator("#messages .message", has_text="the latest")).to_be_in_viewport()
        await expect(news).to_be_hidden()
        # At the bottom, what is new is seen anyway.
        stage.post(channel, text="the very latest")
        await expect(page.locator("#messages .message", has_text="the very latest")).to_be_in_viewport()
        await expect(news).to_be_hidden()


async def test_escape_closes_a_menu_and_only_then_the_thread(stage: Stage) -> None:
    channel, name = stage.channel()
    stage.post(channel, text="a reply", thread_ts=stage.server.say(channel, "look at this"))
    async with stage.page(name) as page:
        await page.locator("#messages .replies").click()
        mine = page.locator("#replies .message").first
        await mine.hover()
        await mine.get_by_label("Add a reaction").click()
        menu = page.get_by_role("group", name="Reactions")
        await expect(menu).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(menu).to_have_count(0)
        await expect(page.locator("#thread")).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(page.locator("#thread")).to_be_hidden()


async def test_on_a_phone_no_keyboard_rises_before_one_wants_to_write(stage: Stage) -> None:
    channel, name = stage.channel()
    stage.post(channel, text="a reply", thread_ts=stage.server.say(channel, "look at this"))
    async with stage.page(width=390, height=844, has_touch=True, is_mobile=True) as page:
        await enter(page, name)
        await page.locator("#messages .replies").tap()
        await expect(page.locator("#replies")).to_contain_text("a reply")
        async with page.expect_response("**/conversations.history"):
            await page.get_by_label("Close thread").tap()
        await first_seen(page.locator("#messages"))
        assert await page.evaluate("document.activeElement.tagName") != "TEXTAREA"
