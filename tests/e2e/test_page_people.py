"""Somebody at the chat page acts as a stranger and as another bot, and cuts the line in the middle of it all."""

from __future__ import annotations

from pathlib import Path

from playwright.async_api import Page, expect

from tests.browser import PATIENCE_MS, page_at
from tests.e2e.house import house
from tests.e2e.test_matrix import rehearsal


async def act_as_somebody_new(page: Page, name: str, button: str) -> None:
    await page.locator("#me").click()
    await page.get_by_label("Name").fill(name)
    await page.get_by_role("button", name=button).click()
    await until_written_as(page, name)


async def act_as(page: Page, name: str) -> None:
    await page.locator("#me").click()
    await page.get_by_role("dialog").get_by_role("button", name=name).click()
    await until_written_as(page, name)


async def until_written_as(page: Page, name: str) -> None:
    """Once the channel is drawn for somebody else, the focus is in a box again."""
    await expect(page.locator("#me")).to_contain_text(name, timeout=PATIENCE_MS)
    await expect(page.locator("textarea:focus")).to_have_count(1, timeout=PATIENCE_MS)


async def say(page: Page, text: str) -> None:
    await page.get_by_label("Message #sample").fill(text)
    await page.keyboard.press("Enter")
    await expect(page.locator("#messages .message", has_text=text)).to_be_visible(timeout=PATIENCE_MS)


async def test_strangers_are_refused_bots_ignored_and_a_cut_line_mends(
    tmp_path: Path, git_repo: Path
) -> None:
    async with house(tmp_path, "sample") as built:
        await rehearsal(built, git_repo)
        async with page_at(built.workspace.url) as (page, errors):
            await act_as_somebody_new(page, "mallory", "Add a person")
            await say(page, "read README.md")
            await expect(page.locator("#replies")).to_contain_text("not authorized", timeout=PATIENCE_MS)
            await act_as(page, "you")
            await act_as_somebody_new(page, "ci-bot", "Add a bot")
            await say(page, "build 12 is green")
            await act_as(page, "you")
            await page.get_by_role("button", name="Fault injection").click()
            await page.get_by_role("button", name="Cut", exact=True).click()
            await page.keyboard.press("Escape")
            await say(page, "list the files")
            mine = page.locator("#messages .message", has_text="list the files")
            await expect(mine.locator("[data-reaction=white_check_mark]")).to_be_visible(timeout=PATIENCE_MS)
            robot = page.locator("#messages .message", has_text="build 12 is green")
            await expect(robot.locator(".reactions, .replies")).to_have_count(0)
            assert errors == []
