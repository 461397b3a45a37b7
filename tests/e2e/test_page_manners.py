"""What a person expects of a chat page: to change one's mind, to see what one asked for, to find the way out."""

from __future__ import annotations

import re
from contextlib import AsyncExitStack
from pathlib import Path

from playwright.async_api import Page, expect

from codebutler.workspace.server import Options, WorkspaceServer
from tests.browser import PATIENCE_MS, page_at
from tests.e2e.house import house
from tests.e2e.test_matrix import rehearsal


async def test_a_queued_message_can_be_edited_and_another_deleted(tmp_path: Path, git_repo: Path) -> None:
    async with house(tmp_path, "sample") as built:
        channel = await rehearsal(built, git_repo)
        root = await built.say(channel, "wait 300 seconds")
        await built.answer(channel, root, "Wait")
        async with page_at(built.workspace.url) as (page, errors):
            await page.locator(".replies").click()
            for text in ("read README.md", "create no.txt with no"):
                await page.get_by_label("Reply…").fill(text)
                await page.keyboard.press("Enter")
                queued = page.locator("#replies .message", has_text=text)
                await expect(queued.locator("[data-reaction=hourglass_flowing_sand]")).to_be_visible(
                    timeout=PATIENCE_MS
                )
            await delete(page, "create no.txt")
            await page.get_by_label("Reply…").fill("a draft")
            await (
                page.locator("#replies .message", has_text="read README.md")
                .get_by_label("Edit message")
                .click()
            )
            await expect(page.get_by_label("Reply…")).to_have_value("read README.md")
            await page.get_by_label("Reply…").fill("search for <files>")
            await page.keyboard.press("Enter")
            edited = page.locator("#replies .message", has_text="search for <files>")
            await expect(edited).to_contain_text("(edited)")
            await expect(page.get_by_label("Reply…")).to_have_value("a draft")
            await edited.get_by_label("Edit message").click()
            await expect(page.get_by_label("Reply…")).to_have_value("search for <files>")
            await page.keyboard.press("Escape")
            await expect(page.get_by_label("Reply…")).to_have_value("a draft")
            await expect(page.locator("#thread")).to_be_visible()
            working = page.locator("#replies .message", has=page.get_by_role("button", name="Stop"))
            await expect(working).to_contain_text("Wait:", timeout=PATIENCE_MS)
            await page.get_by_role("button", name="Stop").click()
            stopped = page.locator("#replies .message", has_text=re.compile(r"🛑 [\dms]+ · 1 tool"))
            await expect(stopped).to_have_count(1, timeout=PATIENCE_MS)
            await expect(working).to_have_count(0)
            await expect(edited.locator("[data-reaction=white_check_mark]")).to_be_visible(
                timeout=PATIENCE_MS
            )
            assert not (git_repo / "no.txt").exists()
            assert errors == []


async def delete(page: Page, text: str) -> None:
    """Delete the reply that says ``text``, and see it gone."""
    reply = page.locator("#replies .message", has_text=text)
    await reply.get_by_label("Delete message").click()
    question = page.get_by_role("dialog", name="Delete this message?")
    await question.get_by_role("button", name="Delete").click()
    await expect(reply).to_have_count(0)


async def test_the_newest_question_is_followed_to_its_end(tmp_path: Path, git_repo: Path) -> None:
    """A long message leaves its list at the end, and a new question's thread takes the old one's place."""
    async with house(tmp_path, "sample") as built:
        await rehearsal(built, git_repo)
        async with page_at(built.workspace.url) as (page, errors):
            lines = "\n".join(f"line {number}" for number in range(300))
            await page.get_by_label("Message #sample").fill(f"create big.txt with {lines}")
            await page.keyboard.press("Enter")
            last = page.locator("#replies .message").last
            await expect(last).to_contain_text("tokens:", timeout=PATIENCE_MS)
            await expect(last).to_be_in_viewport()
            await expect(page.locator("#messages .replies")).to_be_in_viewport()
            await page.get_by_label("Message #sample").fill("read big.txt")
            await page.keyboard.press("Enter")
            await expect(page.locator("#replies .message").first).to_contain_text(
                "read big.txt", timeout=PATIENCE_MS
            )
            await expect(page.locator("#replies .message").last).to_contain_text(
                "tokens:", timeout=PATIENCE_MS
            )
            await expect(page.locator("#replies .message").last.locator("p").last).to_be_in_viewport()
            assert errors == []


async def test_who_is_just_writing_keeps_the_focus(tmp_path: Path, git_repo: Path) -> None:
    async with house(tmp_path, "sample") as built:
        await rehearsal(built, git_repo)
        async with page_at(built.workspace.url) as (page, errors):
            box = page.get_by_label("Message #sample")
            await box.fill("list the files")
            await page.keyboard.press("Enter")
            await expect(box).to_have_value("")
            await box.fill("and then")
            await expect(page.locator("#messages .replies")).to_be_visible(timeout=PATIENCE_MS)
            await expect(box).to_be_focused()
            assert errors == []


async def test_the_phone_menu_closes_by_escape_and_by_a_touch_beside_it() -> None:
    async with (
        WorkspaceServer(Options(channels=("general",))) as workspace,
        page_at(workspace.url, width=390, height=780) as (page, errors),
    ):
        menu = page.get_by_role("button", name="Channels")
        channel = page.get_by_role("button", name="# general")
        await expect(channel).to_be_hidden()
        await menu.click()
        await expect(channel).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(channel).to_be_hidden()
        await menu.click()
        await page.mouse.click(380, 400)
        await expect(channel).to_be_hidden()
        assert errors == []


async def test_without_a_key_or_with_an_old_one_the_page_says_what_to_open() -> None:
    async with WorkspaceServer(Options(channels=("general",))) as workspace:
        address = workspace.url.split("#", 1)[0]
        async with page_at(address) as (page, _):
            await expect(page.locator(".problem")).to_contain_text("Open the address that CodeButler printed")
        async with page_at(f"{address}#token=xoxp-old") as (page, _):
            await expect(page.locator(".problem")).to_contain_text("the one that CodeButler printed last")
            await expect(page.locator("#sidebar")).to_be_hidden()


async def test_a_page_left_open_over_a_restart_says_what_to_open() -> None:
    async with AsyncExitStack() as closing:
        first = WorkspaceServer(Options(channels=("general",)))
        async with first:
            page, _ = await closing.enter_async_context(page_at(first.url))
            connection = page.locator("#connection")
            await expect(connection).to_have_text("connected")
            port = int(first.url.split(":")[2].split("/")[0])
        await expect(connection).to_contain_text("trying again")
        async with WorkspaceServer(Options(channels=("general",), port=port)):
            await expect(connection).to_contain_text("printed last", timeout=PATIENCE_MS)
