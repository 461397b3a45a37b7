"""Nothing that a person has typed is lost: over a reload, a silent workspace, a lost answer, another tab."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, Route, expect

from codebutler.workspace.api import Fault
from codebutler.workspace.server import Options, WorkspaceServer
from tests.browser import clean
from tests.integration.workspace.browser import Stage, enter, stage

pytestmark = pytest.mark.asyncio(loop_scope="module")
__all__ = ["stage"]


async def again(page: Page) -> None:
    await page.reload()
    await expect(page.locator("#connection")).to_have_text("connected")


async def silent(route: Route) -> None:
    await route.abort("connectionrefused")


async def test_a_reload_keeps_the_place_the_drafts_and_a_change_begun(stage: Stage) -> None:
    channel, name = stage.channel()
    root = stage.server.say(channel, "the question")
    stage.post(channel, thread_ts=root, text="the answer")
    async with stage.page(name) as page:
        box, reply = page.get_by_label(f"Message #{name}"), page.get_by_label("Reply…")
        await box.fill("half a thought")
        await page.locator("#messages .replies").click()
        await reply.fill("and half an answer")
        await again(page)
        await expect(page.locator("#channel-name")).to_have_text(f"# {name}")
        await expect(page.locator("#replies")).to_contain_text("the answer")
        await expect(box).to_have_value("half a thought")
        await expect(reply).to_have_value("and half an answer")
        await reply.fill("")
        await reply.press("ArrowUp")
        await expect(reply).to_have_value("the question")
        await reply.fill("the better question")
        await again(page)
        await expect(page.locator("#replies")).to_contain_text("the answer")
        await expect(reply).to_have_value("")
        await reply.press("ArrowUp")
        await expect(reply).to_have_value("the better question")
        await page.keyboard.press("Enter")
        await expect(page.locator("#replies")).to_contain_text("the better question")
        await box.press("Enter")
        await expect(page.locator("#messages .message")).to_have_count(2)
        await again(page)
        await expect(page.locator("#messages .message")).to_have_count(2)
        await expect(box).to_have_value("")


async def test_what_nobody_takes_waits_in_order_and_goes_out_once(stage: Stage) -> None:
    channel, name = stage.channel()
    async with stage.page(name) as page:
        box, unsent = page.get_by_label(f"Message #{name}"), page.locator("#channel-composer .unsent li")
        await page.route("**/api/chat.postMessage", silent)
        for text in ("one", "two", "three"):
            await box.fill(text)
            await page.keyboard.press("Enter")
            await expect(unsent.last).to_contain_text(text)
            await expect(box).to_have_value("")
        await clean(page)
        await unsent.filter(has_text="two").get_by_role("button", name="Cancel").click()
        await expect(box).to_have_value("two")
        await again(page)
        await expect(unsent).to_have_count(2)
        await page.unroute("**/api/chat.postMessage", silent)
        await expect(unsent).to_have_count(0)
        await expect(page.locator("#messages .body")).to_have_text(["one", "three"])
        await expect(box).to_have_value("two")
    said = [message.text for message in stage.server.workspace.channel(channel).messages.values()]
    assert said == ["one", "three"]


async def test_an_answer_that_is_lost_posts_nothing_twice(stage: Stage) -> None:
    channel, name = stage.channel()
    async with stage.page(name) as page:
        stage.server.faults.add(Fault(method="chat.postMessage", kind="lost"))
        box = page.get_by_label(f"Message #{name}")
        await box.fill("only once")
        await page.keyboard.press("Enter")
        await expect(page.locator("#messages .body")).to_have_text("only once")
        await expect(page.locator("#channel-composer .unsent li")).to_have_count(0)
        await box.fill("next")
        await page.keyboard.press("Enter")
        await expect(page.locator("#messages .body")).to_have_text(["only once", "next"])
    said = [message.text for message in stage.server.workspace.channel(channel).messages.values()]
    assert said == ["only once", "next"]


async def test_what_is_refused_later_says_so_and_can_be_taken_back(stage: Stage) -> None:
    channel, name = stage.channel()
    async with stage.page(name) as page:
        await page.route("**/api/chat.postMessage", silent)
        box, unsent = page.get_by_label(f"Message #{name}"), page.locator("#channel-composer .unsent li")
        await box.fill("too late")
        await page.keyboard.press("Enter")
        await expect(unsent).to_contain_text("Not sent yet")
        stage.server.call("conversations.archive", stage.server.user_token, channel=channel)
        await page.unroute("**/api/chat.postMessage", silent)
        await expect(unsent).to_contain_text("This channel is archived")
        await unsent.get_by_role("button", name="Cancel").click()
        await expect(box).to_have_value("too late")


async def test_a_draft_follows_into_another_tab_and_goes_with_its_message(stage: Stage) -> None:
    _, name = stage.channel()
    async with stage.page(name) as page:
        other = await page.context.new_page()
        await other.goto(stage.server.url)
        await enter(other, name)
        here, there = page.get_by_label(f"Message #{name}"), other.get_by_label(f"Message #{name}")
        await here.fill("shared")
        await expect(there).to_have_value("shared")
        await here.press("Enter")
        await expect(other.locator("#messages .body")).to_have_text("shared")
        await expect(there).to_have_value("")


async def test_a_form_that_is_half_filled_in_outlives_a_reload(stage: Stage) -> None:
    _, name = stage.channel()
    async with stage.page(name) as page:
        await page.get_by_label(f"Message #{name}").fill("/deploy")
        await page.keyboard.press("Enter")
        form = page.get_by_role("dialog", name="Deploy")
        await form.locator("input").fill("a long reason")
        await form.locator("select").select_option("production")
        await again(page)
        await expect(form.locator("input")).to_have_value("a long reason")
        await expect(form.locator("select")).to_have_value("production")
        await form.get_by_role("button", name="Deploy").click()
        await expect(form).to_be_hidden()
    assert stage.app.told


async def test_what_was_meant_for_an_earlier_start_is_a_draft_in_the_next(stage: Stage) -> None:
    context = await stage.browser.new_context()
    page = await context.new_page()
    async with WorkspaceServer(Options()) as first:
        port = int(first.context.url.rsplit(":", 1)[1])
        await page.goto(first.url)
        await expect(page.locator("#connection")).to_have_text("connected")
    box = page.get_by_label("Message #general")
    await box.fill("written in between")
    await page.keyboard.press("Enter")
    await expect(page.locator("#channel-composer .unsent li")).to_contain_text("written in between")
    await box.fill("and begun")
    async with WorkspaceServer(Options(port=port)) as second:
        # The same tab, as a person goes to the address that was printed last.
        await page.goto("about:blank")
        await page.goto(second.url)
        await expect(page.locator("#connection")).to_have_text("connected")
        await expect(box).to_have_value("written in between\nand begun")
        await expect(page.locator("#channel-composer .unsent li")).to_have_count(0)
        assert second.workspace.channel(second.channel_id("general")).messages == {}
    await context.close()
