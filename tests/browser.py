"""A real browser at a page."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Page, async_playwright

from tests.programs import require

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
PATIENCE_MS = 45_000
"""How long a page may take to show something."""


@asynccontextmanager
async def chromium(flags: tuple[str, ...] = ()) -> AsyncIterator[Browser]:
    """A browser, which ends with the block."""
    program = str(require("chromium"))
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=[*FLAGS, *flags])
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def page_at(
    url: str, width: int = 1280, height: int = 800, flags: tuple[str, ...] = ()
) -> AsyncIterator[tuple[Page, list[str]]]:
    """A browser page, and every error its scripts reported."""
    errors: list[str] = []
    async with chromium(flags) as browser:
        page = await browser.new_page(viewport={"width": width, "height": height})
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        await page.goto(url)
        yield page, errors


async def clean(page: Page) -> None:
    """axe finds nothing to blame in what is shown now."""
    results = await Axe().run(page, options={"resultTypes": ["violations"]})
    found = [
        f"{violation['id']}: {node['html'][:160]}"
        for violation in results.response["violations"]
        for node in violation["nodes"]
    ]
    assert not found, "\n".join(found)
