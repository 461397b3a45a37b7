"""The tour that the demo's page offers: an edit, a permission, a question and a plan, on a real page of a real demo.

CODEBUTLER_TOUR names a directory for pictures of what the test saw.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from playwright.async_api import Locator, Page, expect

from tests.browser import PATIENCE_MS, clean, page_at
from tests.e2e.test_tutorial import Reader, demo

WIDTHS = {"desktop": (1280, 800), "phone": (390, 780)}


class Visitor:
    """Somebody at the page, who presses what is offered."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.offers = page.locator("#suggestions li button")

    async def presses(self, offer: str) -> Locator:
        """Press an offer and open the thread of its message, which is returned."""
        await self.offers.filter(has_text=offer).click()
        mine = self.page.locator("#messages .message").last
        await expect(mine).to_contain_text(offer)
        await mine.locator(".replies").click(timeout=PATIENCE_MS)
        return mine

    async def button(self, name: str) -> None:
        """Press a button in the thread."""
        await (
            self.page.locator("#replies")
            .get_by_role("button", name=name, exact=True)
            .click(timeout=PATIENCE_MS)
        )

    async def sees(self, *texts: str) -> None:
        """Wait until the thread shows these."""
        for text in texts:
            await expect(self.page.locator("#replies")).to_contain_text(text, timeout=PATIENCE_MS)

    async def ends(self, mine: Locator, mark: str = "white_check_mark") -> None:
        """Wait for the outcome, and close the thread."""
        await expect(mine.locator(f"[data-reaction={mark}]")).to_be_visible(timeout=PATIENCE_MS)
        await self.page.get_by_label("Close thread").click()

    async def pictured(self, name: str) -> None:
        """Keep a picture where they are wanted."""
        if place := os.environ.get("CODEBUTLER_TOUR"):
            width = (self.page.viewport_size or {"width": 0})["width"]
            await self.page.screenshot(path=Path(place) / f"{name}-{width}.png")


@asynccontextmanager
async def visit(size: str) -> AsyncIterator[tuple[Reader, Visitor]]:
    async with demo() as reader:
        width, height = WIDTHS[size]
        async with page_at(str(reader.told["url"]), width, height) as (page, errors):
            await expect(page.locator("#suggestions li")).to_have_count(4)
            await clean(page)
            yield reader, Visitor(page)
            assert errors == []


async def test_the_tour_shows_an_edit_a_permission_a_question_and_a_plan() -> None:
    async with visit("desktop") as (reader, visitor):
        repo = Path(reader.told["path"])
        await visitor.pictured("1-offers")
        mine = await visitor.presses("replace Hello with Good morning in greet.py")
        await visitor.sees('+    return f"Good morning, {name}!"')
        await visitor.pictured("2-edit")
        await visitor.button("Commit")
        await visitor.sees("Committed")
        await visitor.ends(mine)
        assert "Good morning" in (repo / "greet.py").read_text()
        mine = await visitor.presses("delete notes/todo.txt")
        await visitor.sees("rm notes/todo.txt")
        assert (repo / "notes" / "todo.txt").exists()
        await visitor.pictured("3-permission")
        await visitor.button("Allow")
        await visitor.ends(mine)
        assert not (repo / "notes" / "todo.txt").exists()
        mine = await visitor.presses("add a .gitignore")
        await visitor.pictured("4-question")
        await visitor.button("Python")
        await visitor.sees("+__pycache__/")
        await visitor.ends(mine)
        mine = await visitor.presses("review this repository")
        await visitor.sees("Search for TODO")
        await visitor.pictured("5-plan")
        await visitor.sees("3 files")
        await visitor.ends(mine)
        await expect(visitor.offers).to_have_count(0)
        await visitor.pictured("6-end")


async def test_on_a_phone_the_offers_stay_within_the_screen_and_can_be_hidden() -> None:
    async with visit("phone") as (_, visitor):
        await visitor.pictured("1-offers")
        mine = await visitor.presses("add a .gitignore")
        await visitor.pictured("4-question")
        await visitor.button("Rust")
        await visitor.sees("+target/")
        await visitor.ends(mine)
        await visitor.pictured("6-end")
        page = visitor.page
        assert not await page.evaluate("document.documentElement.scrollWidth > window.innerWidth")
        await page.get_by_label("Message #sample").fill("please make it nicer")
        await page.keyboard.press("Enter")
        mine = page.locator("#messages .message", has_text="please make it nicer")
        await mine.locator(".replies").click(timeout=PATIENCE_MS)
        await visitor.sees("I did not understand “please make it nicer”", "codebutler demo --agent claude")
        await visitor.pictured("7-unknown")
        await visitor.ends(mine, "x")
        await expect(visitor.offers).to_have_count(3)
        await page.get_by_label("Hide the suggestions").click()
        await expect(visitor.offers).to_have_count(0)
        await page.reload()
        await expect(page.get_by_label("Message #sample")).to_be_visible()
        await expect(visitor.offers).to_have_count(0)
