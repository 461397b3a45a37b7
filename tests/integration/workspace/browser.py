"""A browser at the workspace's page, with a Bolt app on the other side: one of each for a whole module."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import pytest_asyncio
from playwright.async_api import Browser, Locator, Page, ViewportSize, expect
from slack_bolt.adapter.socket_mode.aiohttp import AsyncSocketModeHandler

from codebutler.workspace.manifest import AppCommand, Offers, Shortcut
from codebutler.workspace.server import Options, WorkspaceServer
from codebutler.workspace.socket import Timing
from codebutler.workspace.state import Json
from tests.browser import PATIENCE_MS, chromium
from tests.integration.workspace.conftest import client_for
from tests.integration.workspace.deployer import Deployer

OFFERS = Offers(
    commands=(
        AppCommand(command="/deploy", description="Opens the form"),
        AppCommand(command="/butler", words={"status": "what runs", "stop": "ends it"}),
    ),
    words={"help": "what there is", "stop": "ends it"},
    shortcuts=(
        Shortcut(callback_id="pick-note", name="Take a note"),
        Shortcut(callback_id="pick-report", name="Report it", on_message=True),
    ),
)


class Stage:
    """The workspace, the app, the browser. Each test writes in a channel of its own."""

    def __init__(self, server: WorkspaceServer, app: Deployer, browser: Browser) -> None:
        self.server = server
        self.app = app
        self.browser = browser
        self._numbers = count(1)

    def channel(self) -> tuple[str, str]:
        """A new channel's ID and name; everybody is in it."""
        name = f"room-{next(self._numbers)}"
        made = self.server.call("conversations.create", self.server.user_token, name=name)["channel"]
        for user in self.server.workspace.users.values():
            self.server.workspace.channel(made["id"]).members.add(user.id)
        return str(made["id"]), name

    def post(self, channel: str, blocks: list[Json] | None = None, **more: Any) -> str:
        """A message of the bot; its ts."""
        given = {"channel": channel, "text": "text", "blocks": blocks, **more}
        return str(self.server.call("chat.postMessage", self.server.bot_token, **given)["ts"])

    @asynccontextmanager
    async def page(
        self, name: str = "", width: int = 1280, height: int = 800, script: str = "", **look: Any
    ) -> AsyncIterator[Page]:
        """A page in the named channel, ``script`` run before its own; none may fail while it is open.

        ``look`` goes to Playwright: ``color_scheme``, ``has_touch``.
        """
        you = self.server.workspace.person.id
        for left_open in self.server.context.views.stack(you)[:1]:
            self.server.context.views.close(left_open)
        errors: list[str] = []
        size: ViewportSize = {"width": width, "height": height}
        context = await self.browser.new_context(viewport=size, reduced_motion="reduce", **look)
        try:
            page = await context.new_page()
            page.set_default_timeout(PATIENCE_MS)
            if script:
                await page.add_init_script(script)
            page.on("pageerror", lambda error: errors.append(str(error)))
            await page.goto(self.server.url)
            await expect(page.locator("#connection")).to_have_text("connected")
            if name:
                await enter(page, name)
            yield page
        finally:
            await context.close()
        assert not errors, errors


async def enter(page: Page, name: str) -> None:
    """Go to a channel as the keys do, once the page listens to them."""
    await expect(page.locator("#connection")).to_have_text("connected")
    await page.keyboard.press("Control+k")
    await page.get_by_label("Jump or search").get_by_role("combobox").fill(f"#{name}")
    await page.keyboard.press("Enter")
    await expect(page.locator("#channel-name")).to_have_text(f"# {name}")
    if not await page.evaluate("matchMedia('(pointer: coarse)').matches"):
        await expect(page.get_by_label(f"Message #{name}")).to_be_focused()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage() -> AsyncIterator[Stage]:
    options = Options(
        channels=("general",),
        timing=Timing(ack_s=1.0),
        offers=OFFERS,
        guests=("stranger",),
        guest_bots=("robo",),
    )
    async with WorkspaceServer(options) as server, chromium() as browser:
        app = Deployer(client_for(server, server.bot_token))
        handler: Any = AsyncSocketModeHandler(app.app, server.app_token, ping_interval=0.5)
        handler.client.proxy = None
        await handler.connect_async()
        await server.until(lambda: len(server.hub.connections) == 1)
        expect.set_options(timeout=PATIENCE_MS)
        yield Stage(server, app, browser)
        await handler.close_async()


def box_of(page: Page, name: str) -> Locator:
    """Where one writes in the channel."""
    return page.get_by_label(f"Message #{name}")


async def write(page: Page, name: str, text: str) -> None:
    """Say it in the channel, and see it there."""
    await box_of(page, name).fill(text)
    await page.keyboard.press("Enter")
    await expect(page.locator("#messages .message", has_text=text)).to_be_visible()
    await expect(box_of(page, name)).to_have_value("")


async def fits(page: Page) -> None:
    """Nothing stands beyond the page's right edge."""
    assert not await page.evaluate("document.documentElement.scrollWidth > innerWidth")
