"""The page as a place to work in: keys, search, people, unread marks, channels, faults."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import FilePayload, Route, expect
from slack_sdk.errors import SlackApiError

from codebutler.workspace.api import Fault
from tests.browser import clean
from tests.integration.workspace.browser import Stage, box_of, enter, stage, write
from tests.integration.workspace.conftest import client_for

pytestmark = pytest.mark.asyncio(loop_scope="module")


__all__ = ["stage"]


KEEP_SOURCE = """const Original = EventSource;
window.EventSource = class extends Original { constructor(url) { super(url); window.source = this; } };"""


async def test_the_keys(stage: Stage) -> None:
    channel, name = stage.channel()
    async with stage.page(name) as page:
        box = box_of(page, name)
        await write(page, name, "frist")
        await page.keyboard.press("ArrowUp")
        await expect(box).to_have_value("frist")
        await box.fill("first")
        await page.keyboard.press("Enter")
        await expect(page.locator("#messages")).to_contain_text("(edited)")
        await page.locator("#messages .message").first.hover()
        await page.get_by_label("Reply in thread").first.click()
        await expect(page.get_by_label("Reply…")).to_be_focused()
        await page.keyboard.press("Escape")
        await expect(page.locator("#thread")).to_be_hidden()
        await page.locator("#channel-name").click()
        await page.keyboard.press("/")
        await expect(box).to_have_value("/")
        await box.fill("")
        await page.keyboard.press("Alt+ArrowUp")
        await expect(page.locator("#channel-name")).not_to_have_text(f"# {name}")
        await page.keyboard.press("Alt+ArrowDown")
        await expect(page.locator("#channel-name")).to_have_text(f"# {name}")
        await expect(box).to_be_focused()
        await page.locator("#channel-name").click()
        await page.keyboard.press("?")
        keys = page.get_by_role("dialog", name="Keys")
        await expect(keys).to_contain_text("Jump to a channel")
        await clean(page)
        await page.keyboard.press("Escape")
        await expect(keys).to_have_count(0)
        assert stage.server.workspace.channel(channel).messages


async def test_a_mention_stays_one_when_its_message_is_changed(stage: Stage) -> None:
    channel, name = stage.channel()
    async with stage.page(name) as page:
        box = box_of(page, name)
        await box.fill("@stranger look")
        await page.keyboard.press("Enter")
        await expect(page.locator("#messages .mention")).to_have_text("@stranger")
        await expect(box).to_have_value("")
        await page.keyboard.press("ArrowUp")
        await expect(box).to_have_value("@stranger look")
        await box.fill("@stranger look <here>")
        await page.keyboard.press("Enter")
        await expect(page.locator("#messages .message", has_text="look <here>")).to_be_visible()
    (message,) = stage.server.workspace.channel(channel).messages.values()
    assert message.text == "<@USTRANGER00> look &lt;here&gt;"


async def test_what_may_follow_is_offered_and_taken(stage: Stage) -> None:
    _, name = stage.channel()
    async with stage.page(name) as page:
        box, offered = box_of(page, name), page.get_by_role("option")
        await box.press_sequentially("/bu")
        await expect(offered).to_have_count(1)
        await page.keyboard.press("Tab")
        await expect(box).to_have_value("/butler ")
        await expect(offered).to_have_count(2)
        await clean(page)
        await page.keyboard.press("ArrowDown")
        await page.keyboard.press("ArrowDown")
        await page.keyboard.press("Enter")
        await expect(box).to_have_value("/butler stop ")
        await box.fill("ask @str")
        await page.keyboard.press("Tab")
        await expect(box).to_have_value("ask @stranger ")
        await page.keyboard.press("Enter")
        await expect(page.locator("#messages .mention", has_text="@stranger")).to_be_visible()
        await box.fill(":rock")
        await page.keyboard.press("Escape")
        await expect(offered).to_have_count(0)
        await expect(box).to_have_value(":rock")


async def test_a_message_is_found_by_its_words_and_shown_in_its_thread(stage: Stage) -> None:
    channel, name = stage.channel()
    root = stage.server.say(channel, "a question")
    stage.server.say(channel, "the lighthouse keeper", thread_ts=root)
    async with stage.page() as page:
        await page.get_by_role("button", name="Jump or search").click()
        await page.get_by_role("combobox", name="Jump or search").fill("lighthouse")
        found = page.get_by_role("option", name="the lighthouse keeper")
        await expect(found).to_be_visible()
        await clean(page)
        await found.click()
        await expect(page.locator("#channel-name")).to_have_text(f"# {name}")
        await expect(page.locator("#replies .message.found")).to_contain_text("the lighthouse keeper")
        await page.keyboard.press("Control+k")
        await page.get_by_role("combobox", name="Jump or search").fill("no such words")
        await expect(page.get_by_role("dialog")).to_contain_text("No message contains")


async def test_one_acts_as_a_stranger_as_a_bot_and_as_oneself_again(stage: Stage) -> None:
    channel, name = stage.channel()
    async with stage.page(name) as page:
        await page.locator("#me").click()
        await clean(page)
        await page.get_by_role("dialog").get_by_role("button", name="stranger").click()
        await expect(page.locator("#me")).to_contain_text("stranger")
        await enter(page, name)
        await write(page, name, "let me in")
        await page.locator("#me").click()
        await expect(page.get_by_role("button", name="Add a bot")).to_have_count(0)
        await page.get_by_role("dialog").get_by_role("button", name="robo").click()
        await expect(page.locator("#me")).to_contain_text("robo")
        await enter(page, name)
        await write(page, name, "beep")
        await expect(page.locator("#messages .message", has_text="beep").locator(".tag")).to_have_text("APP")
        await page.locator("#me").click()
        await page.get_by_role("dialog").get_by_role("button", name="you").click()
        await expect(page.locator("#me")).to_contain_text("you")
        await page.locator("#me").click()
        await page.get_by_label("Name").fill("robo")
        await page.get_by_role("button", name="Add a bot").click()
        await expect(page.get_by_role("alert").filter(has_text="taken")).to_be_visible()
        await page.get_by_label("Name").fill("ci")
        await page.get_by_role("button", name="Add a bot").click()
        await expect(page.locator("#me")).to_contain_text("ci")
    users = stage.server.workspace.users
    said = [
        (users[message.user].name, message.by_app)
        for message in stage.server.workspace.channel(channel).messages.values()
    ]
    assert said == [("stranger", False), ("robo", True)]


async def test_what_was_not_seen_is_marked_until_it_is(stage: Stage) -> None:
    _, here = stage.channel()
    there, other = stage.channel()
    stage.server.say(there, "seen before")
    async with stage.page(here) as page:
        stage.post(there, text="news")
        stage.post(there, text="more news")
        entry = page.locator("#channels").get_by_role("button", name=f"# {other}")
        await expect(entry.locator(".unread")).to_have_text("2")
        await expect(page).to_have_title(re.compile(rf"^\(\d+\) #{here} · Workspace$"))
        await clean(page)
        # Neither another tab nor a reload forgets it, and what is read in one tab is read in both.
        second = await page.context.new_page()
        await second.goto(stage.server.url)
        await enter(second, here)
        same = second.locator("#channels").get_by_role("button", name=f"# {other}")
        await expect(same.locator(".unread")).to_have_text("2")
        await entry.click()
        await expect(page.locator(".divider.new + .message")).to_contain_text("news")
        await expect(entry.locator(".unread")).to_have_count(0)
        await expect(same.locator(".unread")).to_have_count(0)
        await second.reload()
        await expect(second.locator("#channel-name")).to_have_text(f"# {here}")
        await expect(same).to_be_visible()
        await expect(same.locator(".unread")).to_have_count(0)


async def test_a_channel_is_made_named_and_archived(stage: Stage) -> None:
    async with stage.page() as page:
        await page.get_by_role("button", name="New channel").click()
        await page.get_by_label("Name").fill("Has Spaces")
        await page.get_by_role("button", name="Create").click()
        await expect(page.get_by_role("alert").filter(has_text="lower-case letters")).to_be_visible()
        await page.get_by_label("Name").fill("harbour")
        await page.get_by_role("button", name="Create").click()
        await expect(page.locator("#channel-name")).to_have_text("# harbour")
        await page.get_by_role("button", name="About this channel").click()
        about = page.get_by_role("dialog")
        await about.get_by_label("Topic", exact=True).fill("ships & piers")
        await about.get_by_label("Name", exact=True).fill("port")
        await about.get_by_role("button", name="Save the topic").click()
        await expect(page.locator("#channel-topic")).to_have_text("ships & piers")
        await expect(about.get_by_label("Name", exact=True)).to_have_value("port")
        await about.get_by_role("button", name="Save the name").click()
        await expect(about).to_contain_text("About #port")
        await clean(page)
        await about.get_by_role("button", name="Remove CodeButler").click()
        await expect(about.get_by_role("button", name="Invite CodeButler")).to_be_visible()
        await about.get_by_role("button", name="Archive").click()
        await expect(page.locator("#channel-composer .hint")).to_have_text("This channel is archived.")
        await expect(page.locator("#channel-name")).to_have_text("# port")


async def test_faults_are_ordered_and_what_they_do_is_told(stage: Stage) -> None:
    channel, name = stage.channel()
    async with stage.page(name) as page:
        await page.get_by_role("button", name="Fault injection").click()
        panel = page.get_by_role("dialog", name="Fault injection")
        await expect(panel.locator(".figures")).to_contain_text("Connections1")
        await panel.get_by_label("Method").select_option("chat.postMessage")
        await panel.get_by_label("Fault", exact=True).select_option("error")
        await panel.get_by_role("button", name="Inject", exact=True).click()
        await expect(panel.locator(".pending li")).to_have_count(1)
        await expect(panel.get_by_label("Seconds")).to_be_hidden()
        await clean(page)
        await page.keyboard.press("Escape")
        # What people write is spared, the app's next post is not.
        await box_of(page, name).fill("spare me")
        await page.keyboard.press("Enter")
        await expect(page.locator("#messages .message", has_text="spare me")).to_have_count(1)
        with pytest.raises(SlackApiError, match="internal_error"):
            await client_for(stage.server, stage.server.bot_token).chat_postMessage(channel=channel, text="x")
        stage.server.faults.add(Fault(method="chat.postMessage", kind="error"))
        await box_of(page, name).fill("do not lose me")
        await page.keyboard.press("Enter")
        await expect(page.locator("#channel-composer .hint")).to_contain_text("Not sent (internal_error)")
        await expect(box_of(page, name)).to_have_value("do not lose me")
        await page.keyboard.press("Enter")
        await expect(page.locator("#messages .message", has_text="do not lose me")).to_have_count(1)
        await page.get_by_role("button", name="Fault injection").click()
        for enforced in (True, False):
            async with page.expect_response("**/workspace/limits"):
                await panel.get_by_label("Refuse calls above").set_checked(enforced)
            assert stage.server.limits.enforced is enforced
        first = stage.server.hub.counts.sent
        await panel.get_by_role("button", name="Cut").click()
        await stage.server.until(lambda: len(stage.server.hub.connections) == 0)
        await stage.server.until(lambda: len(stage.server.hub.connections) == 1, 30)
        stage.server.say(channel, "are you back?")
        await stage.server.until(lambda: stage.server.hub.counts.sent > first)


async def test_an_answer_that_is_faster_than_the_sending_opens_its_thread(stage: Stage) -> None:
    channel, name = stage.channel()
    async with stage.page(name) as page:

        async def answer_first(route: Route) -> None:
            sent = await route.fetch()
            stage.post(channel, text="at once", thread_ts=(await sent.json())["ts"])
            await expect(page.locator("#replies")).to_contain_text("at once")
            await route.fulfill(response=sent)

        await page.route("**/api/chat.postMessage", answer_first)
        await box_of(page, name).fill("quick?")
        await page.keyboard.press("Enter")
        await expect(box_of(page, name)).to_have_value("")
        await expect(page.locator("#replies")).to_contain_text("at once")


async def test_the_first_answer_to_a_message_with_a_file_opens_its_thread_too(stage: Stage) -> None:
    channel, name = stage.channel()
    stage.post(channel, text="earlier", thread_ts=stage.server.say(channel, "another thread"))
    async with stage.page(name) as page:
        await page.locator("#messages .replies").click()
        await expect(page.locator("#replies")).to_contain_text("earlier")
        file: FilePayload = {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"bread"}
        await page.locator("#channel-composer input[type=file]").set_input_files(file)
        await box_of(page, name).fill("look into it")
        await page.keyboard.press("Enter")
        await expect(page.locator("#messages .message", has_text="look into it")).to_be_visible()
        newest = stage.server.workspace.channel(channel).timeline[-1]
        stage.post(channel, text="bread, then", thread_ts=newest)
        await expect(page.locator("#replies")).to_contain_text("bread, then")


async def test_what_the_app_is_doing_stands_under_the_thread(stage: Stage) -> None:
    channel, name = stage.channel()
    root = stage.server.say(channel, "look into it")
    status = {"channel_id": channel, "thread_ts": root, "status": "is reading main.py…"}
    async with stage.page(name) as page:
        stage.server.call("assistant.threads.setStatus", stage.server.bot_token, **status)
        link = page.locator("#messages .replies")
        await expect(link).to_contain_text("CodeButler is reading main.py…")
        await link.click()
        await expect(page.locator("#thread-status")).to_have_text("CodeButler is reading main.py…")
        await clean(page)
        stage.post(channel, thread_ts=root, text="found it")
        await expect(page.locator("#thread-status")).to_be_empty()
        await expect(link).to_have_text("1 reply")


async def test_what_was_said_long_ago_is_there_when_one_scrolls_up_or_searches(stage: Stage) -> None:
    channel, name = stage.channel()
    root = stage.server.say(channel, "the very first")
    for number in range(250):
        stage.server.say(channel, f"line {number}")
    for number in range(3):
        stage.server.say(channel, f"answer {number}", thread_ts=root)
    async with stage.page(name) as page:
        shown = page.locator("#messages .message")
        await expect(shown).to_have_count(100)
        await expect(shown.last).to_be_in_viewport()
        await page.locator("#messages").evaluate("list => { list.scrollTop = 0; }")
        await expect(shown).to_have_count(200)
        await expect(page.locator("#messages .message", has_text="line 150")).to_be_in_viewport()
        await page.keyboard.press("Control+k")
        await page.get_by_role("combobox", name="Jump or search").fill("very first")
        await page.get_by_role("option", name="the very first").click()
        await expect(page.locator("#messages .message.found")).to_contain_text("the very first")
        await expect(shown.first).to_be_in_viewport()
        await expect(shown).to_have_count(251)
        await page.locator("#messages .replies").click()
        await expect(page.locator("#replies .message")).to_have_count(4)


async def test_a_page_that_was_away_too_long_begins_anew_and_keeps_the_draft(stage: Stage) -> None:
    channel, name = stage.channel()
    async with stage.page(name, script=KEEP_SOURCE) as page:
        await box_of(page, name).fill("half a thought")
        await page.evaluate("source.close()")
        stage.server.say(channel, "while you were away")
        _, newer = stage.channel()
        # What the workspace says first to whoever has missed more than it remembers.
        await page.evaluate("source.dispatchEvent(new Event('reset'))")
        await expect(page.locator("#messages .message", has_text="while you were away")).to_be_visible()
        await expect(page.locator("#channels")).to_contain_text(newer)
        await expect(box_of(page, name)).to_have_value("half a thought")


async def test_a_reaction_is_added_and_taken_back(stage: Stage) -> None:
    channel, name = stage.channel()
    ts = stage.post(channel, text="done")
    async with stage.page(name) as page:
        await page.locator("#messages .message").hover()
        await page.get_by_label("Add a reaction").click()
        await clean(page)
        await page.get_by_role("button", name="tada").click()
        chip = page.locator("[data-reaction=tada]")
        await expect(chip).to_have_attribute("aria-pressed", "true")
        await chip.click()
        await expect(chip).to_have_count(0)
    assert stage.server.workspace.channel(channel).messages[ts].reactions == {}
