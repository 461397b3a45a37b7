"""A person at the chat page in a real browser: types, and sees the agent's answer in the thread.

`make screenshot` runs this with CODEBUTLER_SCREENSHOT set: the README's picture is what the test saw.
"""

from __future__ import annotations

import os
from pathlib import Path

from playwright.async_api import expect

from tests.browser import PATIENCE_MS, page_at
from tests.e2e.house import house
from tests.e2e.test_matrix import QUICK, rehearsal
from tests.programs import require


async def test_a_newcomer_gets_an_answer_in_the_thread(tmp_path: Path, git_repo: Path) -> None:
    async with house(tmp_path, "sample") as built:
        require("bwrap")
        # On a slow machine, too, these are short runs: an answer and a check mark each.
        await built.add_repo(git_repo, "sample", agent=QUICK, output={"progressAfterSeconds": 600})
        await built.supervise()
        async with page_at(built.workspace.url) as (page, errors):
            await expect(page.locator("#channel-name")).to_have_text("# sample")
            await page.get_by_label("Message #sample").fill("read README.md")
            await page.keyboard.press("Enter")
            mine = page.locator("#messages .message").first
            await expect(mine.locator("[data-reaction=white_check_mark]")).to_be_visible(timeout=PATIENCE_MS)
            await expect(page.locator("#thread")).to_be_visible()
            await expect(page.locator("#replies")).to_contain_text("A sample repository", timeout=PATIENCE_MS)
            await page.get_by_label("Reply…").fill("what does git status say?")
            await page.keyboard.press("Enter")
            second = page.locator("#replies .message", has_text="what does git status say?")
            await expect(second.locator("[data-reaction=white_check_mark]")).to_be_visible(
                timeout=PATIENCE_MS
            )
            # Two questions and two answers, and nothing else.
            await expect(page.locator("#replies .message")).to_have_count(4)
            await expect(page.locator("#replies .message", has_text="tokens:")).to_have_count(2)
            await expect(page.locator("#replies .actions button")).to_have_count(0)
            await expect(page.locator("#replies [data-reaction=hourglass_flowing_sand]")).to_have_count(0)
            await expect(page.locator("#messages [data-reaction=hourglass_flowing_sand]")).to_have_count(0)
            assert "token" not in page.url
            if picture := os.environ.get("CODEBUTLER_SCREENSHOT"):
                await page.screenshot(path=Path(picture) / "workspace.png")
            assert errors == []


async def test_on_a_phone_the_thread_fills_the_screen_and_closes(tmp_path: Path, git_repo: Path) -> None:
    async with house(tmp_path, "sample") as built:
        channel = await rehearsal(built, git_repo)
        ts = await built.say(channel, "list the files")
        await built.answer(channel, ts, "README.md")
        async with page_at(built.workspace.url, width=390, height=780) as (page, errors):
            await page.locator(".replies").click()
            await expect(page.locator("#replies")).to_contain_text("README.md")
            box = await page.locator("#thread").bounding_box()
            assert box is not None
            assert box["width"] == 390
            await page.get_by_label("Close thread").click()
            await expect(page.locator("#thread")).to_be_hidden()
            overflow = await page.evaluate("document.documentElement.scrollWidth > window.innerWidth")
            assert not overflow
            assert errors == []


async def test_what_a_message_says_never_becomes_markup(tmp_path: Path) -> None:
    hostile = (
        '<img src=x onerror="document.title=1"> <script>document.title=2</script> [x](javascript:alert(1))'
    )
    async with house(tmp_path, "general") as built:
        channel = built.channel_id("general")
        blocks = [{"type": "markdown", "text": hostile}]
        await built.person.chat_postMessage(channel=channel, text=hostile)
        built.workspace.call(
            "chat.postMessage", built.workspace.bot_token, channel=channel, text=hostile, blocks=blocks
        )
        async with page_at(built.workspace.url) as (page, errors):
            await expect(page.locator("#messages .message")).to_have_count(2)
            await expect(page.locator("#messages .markdown p")).to_contain_text("onerror")
            assert await page.title() == "#general · Workspace"
            assert (
                await page.locator("#messages img, #messages script, #messages a[href^=javascript]").count()
                == 0
            )
            assert errors == []
