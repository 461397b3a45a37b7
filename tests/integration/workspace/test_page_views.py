"""A person at the page and an app's modals, home, menus and whispers, with real clicks."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Page, expect

from codebutler.workspace.state import Json
from tests.browser import clean
from tests.integration.workspace.browser import Stage, enter, stage
from tests.integration.workspace.deployer import TARGETS, button
from tests.integration.workspace.deployer import page as view_of

pytestmark = pytest.mark.asyncio(loop_scope="module")
__all__ = ["stage"]


async def open_form(page: Page, name: str) -> None:
    await page.get_by_label(f"Message #{name}").fill("/deploy")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("dialog", name="Deploy")).to_be_visible()


async def test_a_form_is_filled_in_corrected_and_sent(stage: Stage) -> None:
    _, name = stage.channel()
    stage.app.told.clear()
    async with stage.page(name) as page:
        await open_form(page, name)
        form = page.get_by_role("dialog", name="Deploy")
        reason = form.get_by_role("textbox")
        await expect(reason).to_be_focused()
        await reason.fill("no")
        await form.get_by_role("button", name="Deploy").click()
        await expect(form.locator(".field-error")).to_have_count(2)
        await expect(form).to_contain_text("at least 3 characters")
        await expect(reason).to_have_value("no")
        await clean(page)
        await reason.fill("it is time")
        await form.get_by_role("combobox").select_option("production")
        stage.app.answer = {"response_action": "errors", "errors": {"reason": "Not on a Friday."}}
        await form.get_by_role("button", name="Deploy").click()
        await expect(form.locator(".field-error")).to_have_count(1)
        await expect(form.locator(".field-error")).to_have_text("Not on a Friday.")
        stage.app.answer = {}
        await reason.press("Enter")
        await expect(form).to_be_hidden()
    values = stage.app.told[-1]["view"]["state"]["values"]
    assert values["reason"]["text"]["value"] == "it is time"
    assert values["target"]["name"]["selected_option"] == TARGETS[1]


async def test_a_modal_over_a_modal_and_back(stage: Stage) -> None:
    _, name = stage.channel()
    stage.app.told.clear()
    async with stage.page(name) as page:
        await open_form(page, name)
        form = page.get_by_role("dialog", name="Deploy")
        await form.get_by_role("textbox").fill("half a thought")
        await form.get_by_role("combobox").select_option("staging")
        stage.app.answer = {"response_action": "push", "view": view_of("Sure?")}
        await form.get_by_role("button", name="Deploy").click()
        above = page.get_by_role("dialog", name="Sure?")
        await expect(above).to_be_visible()
        await above.get_by_role("button", name="Back").click()
        await expect(form.get_by_role("textbox")).to_have_value("half a thought")
        stage.app.answer = {}
        await page.keyboard.press("Escape")
        await expect(form).to_be_hidden()
        body = await stage.server.until(lambda: told(stage, "view_closed"))
        assert body["view"]["state"]["values"]["reason"]["text"]["value"] == "half a thought"


def told(stage: Stage, kind: str) -> Json | None:
    return next((body for body in stage.app.told if body.get("type") == kind), None)


async def test_an_app_that_does_not_answer_costs_nobody_their_words(stage: Stage) -> None:
    _, name = stage.channel()
    async with stage.page(name) as page:
        await open_form(page, name)
        form = page.get_by_role("dialog", name="Deploy")
        await form.get_by_role("textbox").fill("typed for an hour")
        await form.get_by_role("combobox").select_option("staging")
        stage.app.silent = True
        await form.get_by_role("button", name="Deploy").click()
        await expect(form.get_by_role("alert")).to_contain_text("did not answer within 3 seconds")
        await expect(form.get_by_role("textbox")).to_have_value("typed for an hour")
        stage.app.silent = False
        await form.get_by_role("button", name="Deploy").click()
        await expect(form).to_be_hidden()


async def test_the_apps_home_is_shown_and_pressed(stage: Stage) -> None:
    async with stage.page() as page:
        await page.locator("#apps").get_by_role("button").click()
        home = page.locator("#home")
        await expect(home).to_contain_text(f"refreshed {stage.app.refreshed} times")
        seen = stage.app.refreshed
        await home.get_by_role("button", name="refresh").click()
        await expect(home).to_contain_text(f"refreshed {seen + 1} times")
        await clean(page)
        await page.get_by_role("button", name="Messages", exact=True).click()
        await page.get_by_label("Message CodeButler").fill("just between us")
        await page.keyboard.press("Enter")
        await expect(page.locator("#messages .message")).to_contain_text("just between us")
        await page.get_by_role("button", name="Home", exact=True).click()
        await expect(home).to_be_visible()


async def test_menus_and_boxes_in_a_message_reach_the_app(stage: Stage) -> None:
    channel, name = stage.channel()
    select = {"type": "static_select", "action_id": "pick-one", "options": TARGETS}
    boxes = {"type": "checkboxes", "action_id": "pick-many", "options": TARGETS}
    menu = {"type": "overflow", "action_id": "pick-more", "options": TARGETS}
    date = {"type": "datepicker", "action_id": "pick-day"}
    blocks = [{"type": "actions", "block_id": "row", "elements": [select, boxes, menu, date, button("pick")]}]
    ts = stage.post(channel, blocks)
    stage.app.told.clear()
    async with stage.page(name) as page:
        row = page.locator("#messages .actions")
        await row.get_by_role("combobox").select_option("production")
        await row.get_by_role("checkbox", name="Staging").check()
        await row.locator("[type=date]").fill("2026-02-14")
        await row.get_by_role("button", name="More actions").click()
        await clean(page)
        await page.get_by_role("button", name="Production").click()
        await stage.server.until(lambda: len(stage.app.told) == 4)
        chosen = {body["actions"][0]["action_id"]: body["actions"][0] for body in stage.app.told}
        assert chosen["pick-one"]["selected_option"] == TARGETS[1]
        assert chosen["pick-many"]["selected_options"] == [TARGETS[0]]
        assert chosen["pick-day"]["selected_date"] == "2026-02-14"
        assert chosen["pick-more"]["selected_option"] == TARGETS[1]
        # What was chosen outlives the message's being drawn again.
        stage.server.call("reactions.add", stage.server.bot_token, channel=channel, timestamp=ts, name="eyes")
        await expect(page.locator("[data-reaction=eyes]")).to_be_visible()
        await expect(row.get_by_role("combobox")).to_have_value("production")


async def test_a_whisper_is_for_one_person_and_can_be_dismissed(stage: Stage) -> None:
    channel, name = stage.channel()
    you = stage.server.workspace.person.id
    async with stage.page(name) as page:
        stage.server.call(
            "chat.postEphemeral", stage.server.bot_token, channel=channel, user=you, text="only for you"
        )
        other = stage.server.workspace.users["USTRANGER00"].id
        stage.server.call(
            "chat.postEphemeral", stage.server.bot_token, channel=channel, user=other, text="not for you"
        )
        stage.post(channel, text="for all")
        await expect(page.locator("#messages .message")).to_have_count(2)
        whisper = page.locator(".whisper")
        await expect(whisper).to_contain_text("Only visible to you")
        await clean(page)
        await whisper.get_by_role("button", name="Dismiss").click()
        await expect(page.locator("#messages .message")).to_have_count(1)


async def test_shortcuts_reach_the_app_from_anywhere_and_from_a_message(stage: Stage) -> None:
    channel, name = stage.channel()
    ts = stage.server.say(channel, "this is broken")
    stage.app.told.clear()
    async with stage.page(name) as page:
        await page.keyboard.press("Control+k")
        await page.get_by_role("combobox", name="Jump or search").fill("take a")
        await page.get_by_role("option", name="Take a note").click()
        body = await stage.server.until(lambda: told(stage, "shortcut"))
        assert body["callback_id"] == "pick-note"
        assert body["trigger_id"]
        await page.locator("#messages .message").hover()
        await page.get_by_role("button", name="Shortcuts").click()
        await clean(page)
        await page.get_by_role("button", name="Report it").click()
        body = await stage.server.until(lambda: told(stage, "message_action"))
        assert (body["callback_id"], body["message_ts"]) == ("pick-report", ts)
        assert (body["message"]["text"], body["channel"]["id"]) == ("this is broken", channel)


async def test_a_click_nobody_takes_is_said(stage: Stage) -> None:
    channel, name = stage.channel()
    stage.post(channel, [{"type": "actions", "elements": [button("nobody-knows-this")]}])
    async with stage.page(name) as page:
        await page.get_by_role("button", name="nobody-knows-this").click()
        await expect(page.locator("#notices")).to_contain_text("did not answer within 3 seconds")
        await clean(page)


async def test_rich_text_is_shown_with_its_styles(stage: Stage) -> None:
    channel, name = stage.channel()
    bold = {"type": "text", "text": "bold", "style": {"bold": True, "italic": True}}
    who = {"type": "user", "user_id": stage.server.workspace.person.id}
    line = {"type": "rich_text_section", "elements": [bold, who, {"type": "emoji", "name": "tada"}]}
    parts = [line, {"type": "rich_text_list", "style": "ordered", "elements": [line]}]
    parts += [{"type": kind, "elements": [bold]} for kind in ("rich_text_preformatted", "rich_text_quote")]
    stage.post(channel, [{"type": "rich_text", "elements": parts}], text="")
    async with stage.page(name) as page:
        body = page.locator("#messages .body")
        await expect(body.locator("em strong").first).to_have_text("bold")
        await expect(body.locator("ol li")).to_have_text("bold@you🎉")
        await expect(body.locator("pre, blockquote")).to_have_count(2)


async def test_no_part_of_a_message_becomes_markup_or_a_trap(stage: Stage) -> None:
    channel, name = stage.channel()
    evil, trap = '<img src=x onerror="document.title=1">', "javascript:document.title=2"
    text = {"type": "plain_text", "text": evil}
    link = {"type": "rich_text_section", "elements": [{"type": "link", "url": trap, "text": evil}]}
    blocks: list[Json] = [
        {"type": "header", "text": text},
        {"type": "image", "image_url": trap, "alt_text": evil},
        {"type": "rich_text", "elements": [link]},
        {"type": "section", "text": {"type": "mrkdwn", "text": f"<{trap}|{evil}>"}},
        {"type": "context", "elements": [text]},
        {"type": "table", "rows": [[{"type": "raw_text", "text": evil}]]},
        {"type": "carousel", "text": evil},
        {"type": "actions", "elements": [{**button("go"), "text": {**text, "text": evil}, "url": trap}]},
        {
            "type": "actions",
            "elements": [
                {
                    "type": "static_select",
                    "action_id": "s",
                    "placeholder": text,
                    "options": [{"text": text, "value": evil}],
                }
            ],
        },
        {"type": "actions", "elements": [{"type": "file_input", "action_id": "n"}]},
    ]
    stage.post(channel, blocks)
    async with stage.page(name) as page:
        body = page.locator("#messages .body")
        await expect(body.locator("h3")).to_have_text(evil)
        await expect(body).to_contain_text("cannot be shown here (carousel)")
        await expect(body.locator("img, script, [href^=javascript]")).to_have_count(0)
        await expect(body.get_by_role("option", name=evil)).to_have_count(2)
        await clean(page)
        # Only what is unread elsewhere may stand before it.
        await expect(page).to_have_title(re.compile(rf"^(\(\d+\) )?#{name} · Workspace$"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_a_form_on_a_phone(stage: Stage, scheme: str) -> None:
    _, name = stage.channel()
    async with stage.page(width=375, height=700, color_scheme=scheme) as page:
        await enter(page, name)
        await open_form(page, name)
        form = page.get_by_role("dialog", name="Deploy")
        await form.get_by_role("button", name="Deploy").click()
        await expect(form.locator(".field-error")).to_have_count(2)
        await expect(form.get_by_role("button", name="Deploy")).to_be_in_viewport()
        box = await form.bounding_box()
        assert box is not None
        assert (box["x"], box["width"]) == (0, 375)
        await clean(page)
        await form.get_by_role("button", name="Cancel").click()
        await expect(form).to_be_hidden()


async def test_what_needs_a_second_thought_is_asked_in_the_apps_words(stage: Stage) -> None:
    channel, name = stage.channel()

    def plain(text: str) -> Json:
        return {"type": "plain_text", "text": text}

    words = {"title": plain("Roll back?"), "text": {"type": "mrkdwn", "text": "*Everything* goes."}}
    confirm = {**words, "confirm": plain("Roll back"), "deny": plain("Keep it"), "style": "danger"}
    stage.post(channel, [{"type": "actions", "elements": [{**button("pick-back"), "confirm": confirm}]}])
    stage.app.told.clear()
    async with stage.page(name) as page:
        asked = page.get_by_role("dialog", name="Roll back?")
        for answer in ("Keep it", "Escape", "Roll back"):
            await page.get_by_role("button", name="pick-back").click()
            await expect(asked.locator("strong")).to_have_text("Everything")
            await clean(page)
            if answer == "Escape":
                await page.keyboard.press(answer)
            else:
                await asked.get_by_role("button", name=answer).click()
            await expect(asked).to_have_count(0)
        await stage.server.until(lambda: stage.app.told, 30)
    assert [body["actions"][0]["action_id"] for body in stage.app.told] == ["pick-back"]


async def test_a_moment_reaches_the_app_in_seconds(stage: Stage) -> None:
    channel, name = stage.channel()
    moment = {"type": "datetimepicker", "action_id": "pick-moment", "initial_date_time": 1771081200}
    stage.post(channel, [{"type": "actions", "elements": [moment]}])
    stage.app.told.clear()
    async with stage.page(name, timezone_id="Europe/Berlin") as page:
        control = page.locator("#messages [type=datetime-local]")
        await expect(control).to_have_value("2026-02-14T16:00")
        await control.fill("2026-07-01T09:30")
        await stage.server.until(lambda: stage.app.told, 30)
    assert stage.app.told[0]["actions"][0]["selected_date_time"] == 1782891000
