"""Reading: what a message looks like in any script, and how fingers and keys get at what one may do with it."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import expect

from tests.browser import clean
from tests.integration.workspace.browser import Stage, enter, stage

pytestmark = pytest.mark.asyncio(loop_scope="module")
__all__ = ["stage"]
FIRST_SEEN = """list => {
  const top = list.getBoundingClientRect().top + 4;
  return [...list.children].find((item) => item.getBoundingClientRect().bottom > top && item.dataset.ts).dataset.ts;
}"""
RIGHT_TO_LEFT = """node => {
  const range = document.createRange();
  range.selectNodeContents(node);
  const box = node.getBoundingClientRect(), text = range.getClientRects()[0];
  return text.left - box.left > 20 && box.right - text.right < 2;
}"""


async def test_bare_addresses_are_links_where_they_end(stage: Stage) -> None:
    channel, name = stage.channel()
    stage.server.say(
        channel, "see https://a.example/x_y_z?q=1&amp;r=2. And &lt;http://b.example&gt;, `http://c.example`"
    )
    stage.post(channel, [{"type": "markdown", "text": "in (https://d.example/e) and `https://f.example`"}])
    async with stage.page(name) as page:
        links = page.locator("#messages .body a")
        await expect(links).to_have_text(
            ["https://a.example/x_y_z?q=1&r=2", "http://b.example", "https://d.example/e"]
        )
        await expect(links.first).to_have_attribute("href", "https://a.example/x_y_z?q=1&r=2")
        await expect(links.last).to_have_attribute("rel", "noopener noreferrer")
        # Whoever changes the message finds it as it was typed.
        await page.get_by_label(f"Message #{name}").press("ArrowUp")
        box = page.get_by_label(f"Message #{name}")
        await expect(box).to_have_value(
            re.compile(r"^see https://a.example/x_y_z\?q=1&r=2. And <http://b.example>")
        )


async def test_every_script_runs_its_own_way_and_points_have_boxes(stage: Stage) -> None:
    channel, name = stage.channel()
    stage.server.say(channel, "שלום עולם")
    stage.server.say(channel, "👍 :tada:")
    stage.post(channel, [{"type": "markdown", "text": "- [x] done\n- [ ] open\n\nمرحبا\n"}])
    async with stage.page(name) as page:
        assert await page.locator("#messages .text").first.evaluate(RIGHT_TO_LEFT)
        assert await page.locator("#messages .markdown p").evaluate(RIGHT_TO_LEFT)
        await expect(page.locator("#messages .jumbo")).to_have_text("👍 🎉")
        await expect(page.get_by_role("checkbox", name="done")).to_be_checked()
        await expect(page.get_by_role("checkbox", name="open")).not_to_be_checked()
        await clean(page)


async def test_the_arrows_walk_from_message_to_message(stage: Stage) -> None:
    channel, name = stage.channel()
    for number in range(3):
        stage.post(channel, text=f"number {number}")
    ts = stage.server.say(channel, "mine")
    async with stage.page(name) as page:
        shown = page.locator("#messages .message")
        # Once its messages are drawn, a channel takes the focus into its box.
        await expect(shown).to_have_count(4)
        await page.locator("#messages").focus()
        # Nothing stands between the messages and the box where one writes.
        await page.keyboard.press("Tab")
        await expect(page.get_by_label(f"Message #{name}")).to_be_focused()
        await page.keyboard.press("Shift+Tab")
        await page.keyboard.press("ArrowUp")
        await expect(shown.last).to_be_focused()
        await clean(page)
        await page.keyboard.press("Tab")
        await expect(shown.last.get_by_label("Add a reaction")).to_be_focused()
        # A message that is drawn anew keeps whoever stands on it.
        stage.server.call("chat.update", stage.server.user_token, channel=channel, ts=ts, text="still mine")
        await expect(shown.last).to_contain_text("still mine")
        await expect(shown.last.get_by_label("Add a reaction")).to_be_focused()
        await page.keyboard.press("Shift+Tab")
        await page.keyboard.press("e")
        await expect(page.get_by_label(f"Message #{name}")).to_have_value("still mine")
        await page.keyboard.press("Escape")
        await page.keyboard.press("Shift+Tab")
        await page.keyboard.press("Home")
        await expect(shown.first).to_be_focused()
        await page.keyboard.press("ArrowDown")
        await page.keyboard.press("t")
        await expect(page.locator("#replies")).to_contain_text("number 1")
        await expect(page.get_by_label("Reply…")).to_be_focused()


async def test_under_a_finger_one_button_opens_all_there_is_to_do(stage: Stage) -> None:
    channel, name = stage.channel()
    ts = stage.server.say(channel, "look at this")
    async with stage.page(width=390, height=844, has_touch=True, is_mobile=True) as page:
        await enter(page, name)
        opener = page.locator("#messages .message").get_by_role("button", name="Message actions")
        await opener.tap()
        sheet = page.get_by_role("group", name="Message actions")
        await expect(sheet).to_be_visible()
        await clean(page)
        await sheet.get_by_role("button", name="heart").tap()
        await expect(page.locator("[data-reaction=heart]")).to_be_visible()
        await expect(sheet).to_have_count(0)
        await opener.tap()
        await sheet.get_by_role("button", name="Add a reaction").tap()
        await page.get_by_role("group", name="Reactions").get_by_role("button", name="rocket").tap()
        await expect(page.locator("[data-reaction=rocket]")).to_be_visible()
        await opener.tap()
        await sheet.get_by_role("button", name="Reply in thread").tap()
        await expect(page.locator("#thread-place")).to_have_text(f"#{name}")
        await expect(page.locator("#replies")).to_contain_text("look at this")
    assert list(stage.server.workspace.channel(channel).messages[ts].reactions) == ["heart", "rocket"]


async def test_a_deleted_message_with_replies_leaves_a_mark_over_them(stage: Stage) -> None:
    channel, name = stage.channel()
    ts = stage.server.say(channel, "look at this")
    stage.post(channel, text="a reply", thread_ts=ts)
    async with stage.page(name) as page:
        await page.locator("#messages .replies").click()
        await expect(page.locator("#replies .message")).to_have_count(2)
        stage.server.call("chat.delete", stage.server.user_token, channel=channel, ts=ts)
        for _ in range(2):
            mark = page.locator("#messages .message")
            await expect(mark).to_contain_text("This message was deleted.")
            await expect(mark.locator(".byline strong")).to_have_text("Slackbot")
            await expect(mark.locator(".replies")).to_have_text("1 reply")
            await expect(page.locator("#replies .message")).to_have_count(2)
            await page.reload()


async def test_a_search_shows_the_words_without_their_marks(stage: Stage) -> None:
    channel, name = stage.channel()
    stage.post(
        channel,
        [{"type": "markdown", "text": "**Three** `haystacks` in [a field](https://f.example), _big_"}],
    )
    async with stage.page(name) as page:
        await page.keyboard.press("Control+k")
        await page.get_by_role("combobox", name="Jump or search").fill("haystacks")
        found = page.get_by_role("option").filter(has_text="haystacks")
        await expect(found.locator("strong")).to_have_text("Three haystacks in a field, big")
        stage.server.say(channel, f"<@{stage.server.workspace.person.id}> of the needles, see <#{channel}>")
        await page.get_by_role("combobox", name="Jump or search").fill("of the needles")
        found = page.get_by_role("option").filter(has_text="needles")
        await expect(found.locator("strong")).to_have_text(f"@you of the needles, see #{name}")


async def test_a_progress_that_grows_moves_nobody_who_reads_something_else(stage: Stage) -> None:
    channel, name = stage.channel()
    progress = stage.post(channel, text="working")
    for number in range(60):
        stage.post(channel, text=f"number {number}\nin two lines")
    async with stage.page(name) as page:
        messages = page.locator("#messages")
        first = page.locator(f"#messages [data-ts='{progress}']")
        await messages.evaluate("list => { list.scrollTop = list.scrollHeight / 2; }")
        seen = await messages.evaluate(FIRST_SEEN)
        place = f"list => list.querySelector('[data-ts=\"{seen}\"]').getBoundingClientRect().top"
        before = await messages.evaluate(place)
        for lines in range(1, 6):
            text = "\n".join(["working"] * lines * 3)
            stage.server.call("chat.update", stage.server.bot_token, channel=channel, ts=progress, text=text)
            await expect(first.locator(".text")).to_have_text(text)
            stage.post(channel, text=f"news {lines}")
            await expect(messages).to_contain_text(f"news {lines}")
        # A frame more, for what the browser itself may do about it.
        await page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        assert abs(await messages.evaluate(place) - before) < 2
        stage.server.call("chat.update", stage.server.bot_token, channel=channel, ts=seen, text="changed")
        await expect(page.locator(f"#messages [data-ts='{seen}']")).to_contain_text("changed")
        assert abs(await messages.evaluate(place) - before) < 2


async def test_thousands_of_messages_are_taken_in_and_read_back(stage: Stage) -> None:
    channel, name = stage.channel()
    stage.post(channel, text="thimble")
    async with stage.page(name) as page:
        shown = page.locator("#messages .message")
        for burst in range(4):
            for number in range(burst * 500, burst * 500 + 500):
                stage.post(channel, text=f"line {number}.")
            await expect(shown.last).to_contain_text(f"line {burst * 500 + 499}.")
        # Only the newest are in the document; the others come back when somebody looks for them.
        assert await shown.count() < 350
        await expect(shown.last).to_be_in_viewport()
        drawn = await shown.count()
        await page.locator("#messages").evaluate("list => { list.scrollTop = 0; }")
        await expect(shown).to_have_count(drawn + 100)
        await page.keyboard.press("Control+k")
        await page.get_by_role("combobox", name="Jump or search").fill("thimble")
        await page.get_by_role("option", name="thimble").click()
        await expect(page.locator("#messages .message.found")).to_contain_text("thimble")
