"""`codebutler setup` as a person meets it: a terminal on one side, the embedded workspace as Slack on the other."""

from __future__ import annotations

import json
import os
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from codebutler.chat.slack.api import SlackApi
from codebutler.chat.slack.setup import meet
from codebutler.config.resolve import VARIABLES
from codebutler.workspace.server import Options, WorkspaceServer
from tests.e2e.house import command
from tests.screen import CTRL_C, ENTER, Screen, screen

YOU = "UYOU0000000"


class Desk:
    """Somebody at a terminal who sets CodeButler up, and their Slack."""

    def __init__(self, workspace: WorkspaceServer, shown: Screen, home: Path, stack: AsyncExitStack) -> None:
        self.enters = stack.enter_async_context
        self.workspace = workspace
        self.shown = shown
        self.home = home
        self.slack = AsyncWebClient(workspace.user_token, base_url=workspace.api_url)
        self.slack.proxy = None

    async def answers(self, question: str, answer: str) -> None:
        """Wait for a question, and answer it."""
        await self.shown.until(question)
        self.shown.type(answer + ENTER)

    async def enters_tokens(self) -> None:
        """Everything up to the people."""
        await self.answers("Press Enter to open Slack", "")
        await self.answers("Bot token (xoxb-…):", self.workspace.bot_token)
        await self.answers("App-level token (xapp-…):", self.workspace.app_token)

    async def writes(self, text: str) -> str:
        """Send the app a direct message; returns the conversation."""
        channel = str(
            (await self.slack.conversations_open(users=self.workspace.workspace.bot.id))["channel"]["id"]
        )
        await self.slack.chat_postMessage(channel=channel, text=text)
        return channel

    def saved(self) -> dict[str, Any]:
        """The config file as it is now."""
        found: dict[str, Any] = json.loads((self.home / "config.json").read_text())
        return found


@pytest.fixture
def opened(tmp_path: Path) -> Path:
    """Where the browser notes what it was told to open."""
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/opened\n')
    browser.chmod(0o755)
    return tmp_path / "opened"


@asynccontextmanager
async def desk(
    tmp_path: Path, *arguments: str, is_set_up: bool = False, browser: str = "{place}/browser %s"
) -> AsyncIterator[Desk]:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    foreign = {*VARIABLES, "DISPLAY", "WAYLAND_DISPLAY"}
    env = {name: value for name, value in os.environ.items() if name not in foreign}
    env |= {"CODEBUTLER_HOME": str(home), "BROWSER": browser.format(place=tmp_path), "TERM": "xterm"}
    guests = ("Ada Lovelace", "Ada Byron", "stranger")
    async with WorkspaceServer(
        Options(channels=("general",), guests=guests, guest_bots=("otherbot",))
    ) as workspace:
        env["SLACK_API_URL"] = workspace.api_url
        if is_set_up:
            slack = {"botToken": workspace.bot_token, "appToken": workspace.app_token, "allowedUsers": [YOU]}
            (home / "config.json").write_text(json.dumps({"slack": slack}))
        async with screen(command("setup", *arguments), env, columns=140) as shown, AsyncExitStack() as stack:
            at = Desk(workspace, shown, home, stack)
            if not arguments:
                await at.answers("Slack, Telegram or both? [slack]", "")
            yield at


def id_of(workspace: WorkspaceServer, name: str) -> str:
    return next(user.id for user in workspace.workspace.users.values() if user.name == name)


async def test_tokens_are_tried_when_they_are_entered_and_asked_for_again(
    tmp_path: Path, opened: Path
) -> None:
    async with desk(tmp_path) as at:
        shown, workspace = at.shown, at.workspace
        await at.answers("Press Enter to open Slack", "")
        await at.answers("Bot token (xoxb-…):", "xoxb-1-wrong-and-old")
        await shown.until("invalid_auth: Slack does not accept this token")
        shown.type("hello" + ENTER)
        await shown.until("expected a bot token")
        shown.type(workspace.app_token + ENTER)  # the wrong one first: it is not lost
        await shown.until("kept for later")
        shown.type(workspace.bot_token + ENTER)
        await shown.until("Connected to Workspace")
        await shown.until(
            f"received {len(workspace.bot_token)} characters, ends in …{workspace.bot_token[-4:]}"
        )
        await shown.until("Socket Mode works")
        await shown.until("People (Enter when done):")
        assert at.saved()["slack"]["appToken"] == workspace.app_token
        shown.type(CTRL_C)
        await shown.until("Saved in")
        await shown.until("slack.botToken, slack.appToken")
        assert await shown.ended() == 130
        assert opened.read_text().startswith("https://api.slack.com/apps?new_app=1")
        assert at.saved()["slack"]["botToken"] == workspace.bot_token
        assert "manifest_json" not in shown.text
        for secret in (workspace.bot_token, workspace.app_token):
            assert secret.encode() not in shown.raw


async def test_people_are_named_in_every_way_and_wrong_ones_are_refused(tmp_path: Path, opened: Path) -> None:
    async with desk(tmp_path) as at:
        shown, workspace = at.shown, at.workspace
        ada = id_of(workspace, "Ada Lovelace")
        await at.enters_tokens()
        await at.answers("People (Enter when done):", "U0NOBODY")
        await shown.until("there is no user U0NOBODY in Slack")
        shown.type("nobody at all" + ENTER)
        await shown.until("nobody in Slack is called nobody at all")
        shown.type("ada" + ENTER)
        await shown.until("several people are called ada")
        shown.type("otherbot" + ENTER)
        await shown.until("nobody in Slack is called otherbot")
        shown.type(workspace.app_token + ENTER)
        await shown.until("That is a token, not a person")
        shown.type(f"ada lovelace, stranger@workspace.example, {YOU}" + ENTER)
        await shown.until("you (UYOU0000000) may use the agents")
        await at.answers("People (Enter when done, 3 so far):", "")
        assert at.saved()["slack"]["allowedUsers"] == [ada, id_of(workspace, "stranger"), YOU]
        assert workspace.app_token.encode() not in shown.raw
        await at.answers("Press its button (Enter to skip):", "")
        await shown.until("Skipped.")
        await at.answers("OpenAI API key", "sk-a-key-of-some-length")
        await at.answers("Kimi API key", "")
        assert await shown.ended() == 0
        assert at.saved()["openai"] == {"apiKey": "sk-a-key-of-some-length"}


async def test_a_person_sends_a_code_and_presses_the_button(tmp_path: Path, opened: Path) -> None:
    async with desk(tmp_path) as at:
        shown, workspace = at.shown, at.workspace
        await at.enters_tokens()
        await shown.until("People (Enter when done):")
        found = re.search(r"the code (\d{6})", shown.text)
        assert found
        await at.writes("000")
        direct = await at.writes(found[1])
        await shown.until("you (UYOU0000000) may use the agents")
        await at.answers("People (Enter when done, 1 so far):", "")
        await shown.until("Press its button (Enter to skip):")
        history = await at.slack.conversations_history(channel=direct)
        last = history["messages"][0]
        press = {
            "channel": direct,
            "message_ts": last["ts"],
            "action_id": "codebutler.hello",
            "value": "hello",
        }
        await workspace.interactions.click(workspace.workspace.person, press)
        await shown.until("Sending and receiving work")
        await at.answers("OpenAI API key", "")
        await at.answers("Kimi API key", "")
        assert await shown.ended() == 0
        history = await at.slack.conversations_history(channel=direct)
        assert "Setup is complete" in history["messages"][0]["text"]
        assert "actions" not in [block["type"] for block in history["messages"][0].get("blocks", [])]
        assert at.saved()["slack"]["allowedUsers"] == [YOU]


async def test_options_that_say_everything_ask_nothing(tmp_path: Path) -> None:
    async with desk(
        tmp_path, "--bot-token", "xoxb-1-no", "--app-token", "xapp-1-no", "--allow-user", "you"
    ) as at:
        await at.shown.until("Slack refuses slack.botToken (invalid_auth)")
        assert await at.shown.ended() == 78
        assert not (at.home / "config.json").exists()


async def test_while_another_process_is_connected_nobody_is_asked_to_answer_in_slack(
    tmp_path: Path, opened: Path
) -> None:
    async with desk(tmp_path) as at:
        workspace = at.workspace
        api = await at.enters(SlackApi(workspace.bot_token, base_url=workspace.api_url))
        await at.enters(meet(api, workspace.app_token))
        await at.enters_tokens()
        await at.shown.until("another process is connected")
        assert "Or send CodeButler the code" not in at.shown.text
        await at.answers("People (Enter when done):", "you")
        await at.answers("People (Enter when done, 1 so far):", "")
        await at.answers("OpenAI API key", "")
        await at.answers("Kimi API key", "")
        assert await at.shown.ended() == 0
        assert at.saved()["slack"]["allowedUsers"] == [YOU]


async def test_without_a_browser_it_says_where_to_go_in_a_line(tmp_path: Path) -> None:
    async with desk(tmp_path, browser="") as at:
        await at.shown.until("choose From a manifest, and paste what `codebutler manifest` prints")
        await at.shown.until("Bot token (xoxb-…):")
        assert b"manifest_json" not in at.shown.raw
        assert "Press Enter to open" not in at.shown.text


async def test_asked_again_it_keeps_what_there_is(tmp_path: Path, opened: Path) -> None:
    async with desk(tmp_path, is_set_up=True) as at:
        before = at.saved()
        await at.answers("Bot token (xoxb-…) or Enter to keep the current one:", "")
        await at.answers("App-level token (xapp-…) or Enter to keep the current one:", "")
        await at.shown.until("Allowed now: you (UYOU0000000)")
        await at.answers("People (Enter when done, 1 so far):", "")
        await at.answers("Press its button (Enter to skip):", "")
        await at.shown.until("OpenAI API key")
        at.shown.type(CTRL_C)
        await at.shown.until("Nothing was saved")
        assert at.saved() == before


async def test_a_token_given_as_an_option_is_tried_and_asked_for_again(tmp_path: Path, opened: Path) -> None:
    async with desk(tmp_path, "--bot-token", "xoxb-1-old", "--allow-user", "you") as at:
        await at.shown.until("invalid_auth: Slack does not accept this token")
        await at.answers("Bot token (xoxb-…):", at.workspace.bot_token)
        await at.answers("App-level token (xapp-…):", at.workspace.app_token)
        assert await at.shown.ended() == 0
        assert at.saved()["slack"]["botToken"] == at.workspace.bot_token
        assert at.saved()["slack"]["allowedUsers"] == [YOU]
