"""How the page looks: light and dark, on a phone, in every dialog."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import FilePayload, expect

from tests.browser import clean
from tests.integration.workspace.browser import Stage, box_of, enter, fits, stage
from tests.integration.workspace.deployer import button

pytestmark = pytest.mark.asyncio(loop_scope="module")


__all__ = ["stage"]


async def test_a_text_file_is_looked_at(stage: Stage) -> None:
    _, name = stage.channel()
    async with stage.page(name) as page:
        chosen = FilePayload(name="notes.md", mimeType="text/markdown", buffer=b"# Plan\n<b>1</b>")
        await page.locator("#channel-composer input[type=file]").set_input_files(chosen)
        await page.keyboard.press("Enter")
        await page.get_by_role("button", name="Preview notes.md").click()
        viewer = page.get_by_role("dialog", name="notes.md")
        await expect(viewer.locator("pre")).to_have_text("# Plan\n<b>1</b>")
        await clean(page)
        async with page.expect_download() as saved:
            await viewer.get_by_role("button", name="Save").click()
        assert (await (await saved.value).path()).read_bytes() == b"# Plan\n<b>1</b>"


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_on_a_phone_everything_fits(stage: Stage, scheme: str) -> None:
    channel, name = stage.channel()
    root = stage.server.say(channel, "a-very-long-word-" * 12)
    row = {"type": "actions", "elements": [button(f"pick-{number}") for number in range(5)]}
    wide = {
        "type": "markdown",
        "text": "```\n" + "x" * 400 + "\n```\n\n|" + "column|" * 12 + "\n" + "|-" * 12 + "|",
    }
    stage.post(channel, [wide, row], thread_ts=root)
    async with stage.page(width=375, height=700, color_scheme=scheme) as page:
        await page.get_by_role("button", name="Channels").click()
        await clean(page)
        await page.locator("#channels").get_by_role("button", name=f"# {name}").click()
        await expect(page.locator("#channels")).to_be_hidden()
        await fits(page)
        await page.locator("#messages .replies").click()
        code = page.locator("#replies pre")
        await expect(code).to_be_visible()
        assert await code.evaluate("pre => pre.scrollWidth <= pre.clientWidth"), "code wraps, as in Slack"
        await fits(page)
        await clean(page)


DIALOGS = {
    "Fault injection": "Fault injection",
    "Keys": "Keys",
    "About this channel": "About #",
    "New channel": "New channel",
    "Jump or search": "Jump or search",
}


async def test_enter_starts_a_line_on_a_phone_and_the_button_sends(stage: Stage) -> None:
    channel, name = stage.channel()
    async with stage.page(width=375, height=700, has_touch=True, is_mobile=True) as page:
        await enter(page, name)
        await box_of(page, name).press_sequentially("one")
        await page.keyboard.press("Enter")
        await page.keyboard.type("two")
        await page.get_by_role("button", name="Send", exact=True).click()
        await expect(page.locator("#messages .message")).to_have_text(re.compile("one\\s+two"))
    (message,) = stage.server.workspace.channel(channel).messages.values()
    assert message.text == "one\ntwo"


async def test_what_one_writes_fits_its_box_when_the_window_gets_narrower(stage: Stage) -> None:
    _, name = stage.channel()
    async with stage.page(name) as page:
        box = box_of(page, name)
        await box.fill("more than fits on one line of a phone, though it does on that of a desk " * 2)
        await page.set_viewport_size({"width": 390, "height": 844})
        await page.wait_for_function(
            "box => box.scrollHeight <= box.clientHeight", arg=await box.element_handle()
        )


@pytest.mark.parametrize("width", [1280, 375])
async def test_every_dialog_in_the_dark(stage: Stage, width: int) -> None:
    _, name = stage.channel()
    async with stage.page(name, width=width, height=700, color_scheme="dark") as page:
        await clean(page)
        for opener, title in DIALOGS.items():
            if width < 860 and opener != "About this channel":
                await page.get_by_role("button", name="Channels", exact=True).click()
            await page.get_by_role("button", name=opener).click()
            await expect(page.get_by_role("dialog", name=title)).to_be_visible()
            await fits(page)
            await clean(page)
            await page.keyboard.press("Escape")
            await expect(page.get_by_role("dialog")).to_have_count(0)
            await page.keyboard.press("Escape")


async def test_light_and_dark_can_be_chosen(stage: Stage) -> None:
    async with stage.page() as page:
        ground = "getComputedStyle(document.body).backgroundColor"
        seen = []
        for _ in range(3):
            seen.append(await page.evaluate(ground))
            await page.get_by_role("button", name="Toggle theme").click()
            await clean(page)
        assert seen[0] == seen[1] != seen[2]
        await page.reload()
        await expect(page.locator("#connection")).to_have_text("connected")
        assert await page.evaluate(ground) == seen[0]
