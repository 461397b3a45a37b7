"""The questions of ``codebutler setup``. Each answer is checked with Slack, and saved as soon as it is right."""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
import webbrowser
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import msgspec

from codebutler.cli import people
from codebutler.cli.output import notice
from codebutler.cli.prompts import Terminal
from codebutler.config.load import app_token_fault, bot_token_fault
from codebutler.config.schema import SlackSection
from codebutler.errors import ChatAuthError, ChatError, CodeButlerError

if TYPE_CHECKING:
    from codebutler.slack.api import SlackApi
    from codebutler.slack.meeting import Meeting

BOT_TOKEN, APP_TOKEN, ALLOWED_USERS = "slack.botToken", "slack.appToken", "slack.allowedUsers"
FAULTS = {BOT_TOKEN: bot_token_fault, APP_TOKEN: app_token_fault}
WHAT = {BOT_TOKEN: "Bot token (xoxb-…)", APP_TOKEN: "App-level token (xapp-…)"}
KEYS = {"openai.apiKey": "OpenAI API key, for voice messages and images", "kimi.apiKey": "Kimi API key"}
CREATE = "https://api.slack.com/apps?new_app=1"


class Wizard:
    """``slack`` is what is known by now, ``given`` are tokens that are still to be tried; ``save`` keeps an answer: its
    key, and a text or a list of users."""

    def __init__(
        self,
        terminal: Terminal,
        slack: SlackSection,
        save: Callable[[str, str | list[str]], None],
        given: Mapping[str, str],
    ) -> None:
        self.slack = slack
        self._terminal = terminal
        self._save = save
        self._given = dict(given)

    def tokens(self, *, again: bool) -> None:
        """Ask for the tokens that are missing; ``again``: for those that are there, too."""
        if again or BOT_TOKEN in self._given or not self.slack.bot_token:
            if not self.slack.bot_token:
                self._create_app()
            notice("2. Copy the Bot User OAuth Token from the app's page OAuth & Permissions.")
            token = self._token(BOT_TOKEN, self.slack.bot_token)
            self.slack = msgspec.structs.replace(self.slack, bot_token=token)
        if again or APP_TOKEN in self._given or not self.slack.app_token:
            notice(
                "3. On Basic Information, App-Level Tokens, generate one with the scope connections:write."
            )
            token = self._token(APP_TOKEN, self.slack.app_token)
            self.slack = msgspec.structs.replace(self.slack, app_token=token)

    def people(self) -> None:
        """Ask who may use the agents, until nothing is entered."""
        notice("4. Who may use the agents? Enter Slack names, e-mail addresses or user IDs.")
        asyncio.run(self._meet(self._ask_people))

    def keys(self) -> None:
        """Ask for optional keys."""
        notice("5. Optional keys; press Enter to skip.")
        for key, what in KEYS.items():
            if value := self._terminal.ask_secret(f"   {what}"):
                self._save(key, value)

    def test(self) -> None:
        """Send somebody a message whose button they press."""
        if self.slack.allowed_users:
            asyncio.run(self._meet(self._greet))

    def _create_app(self) -> None:
        from codebutler.slack.manifest import creation_link

        notice("1. Create the Slack app. Choose your workspace, then Create, then Install.")
        if _has_browser():
            answer = self._terminal.ask("   Press Enter to open Slack in your browser (or type `link`)")
            if not answer and webbrowser.open(creation_link()):
                return
            if answer == "link":
                notice(creation_link())
                return
        notice(f"   Open {CREATE}, choose From a manifest, and paste what `codebutler manifest` prints.")
        notice("   (`codebutler manifest --link` prints a link with everything filled in.)")

    def _token(self, key: str, present: str) -> str:
        """A token that Slack takes; one of the other kind is kept for its own question."""
        hint = " or Enter to keep the present one" if present else ""
        last = self._given.pop(key, "")
        while True:
            token = last or self._terminal.ask_secret(f"   {WHAT[key]}{hint}") or present
            last = ""
            if fault := FAULTS[key](token):
                other = next((name for name, fault_of in FAULTS.items() if not fault_of(token)), "")
                if other:
                    self._given[other] = token
                    notice(f"   That is the {WHAT[other]}: kept for later. Now the {WHAT[key]}.")
                else:
                    notice(f"   {fault}")
                continue
            try:
                notice(f"   ✓ {asyncio.run(self._tried(key, token))}")
            except ChatAuthError as error:
                notice(f"   {error.code or 'refused'}: Slack does not accept this token. Copy it again.")
            except ChatError as error:
                notice(f"   {error}")
                self._terminal.ask("   Press Enter to try again")
                last = token
            else:
                if token != present:
                    self._save(key, token)
                return token

    async def _tried(self, key: str, token: str) -> str:
        """Raises ChatAuthError for a token that is refused, ChatError if Slack does not answer."""
        from codebutler.slack.api import SlackApi

        bot_token = token if key == BOT_TOKEN else self.slack.bot_token
        async with SlackApi(bot_token, base_url=self.slack.api_base_url) as api:
            if key == BOT_TOKEN:
                identity = await api.identity()
                return f"Connected to {identity.team or identity.team_id}"
            await api.open_connection(token)
            return "Socket Mode works"

    async def _meet(self, do: Callable[[SlackApi, Meeting | None], Awaitable[None]]) -> None:
        """Do it with the connection on which people are heard; without, where there is none to be had."""
        from codebutler.slack.api import SlackApi
        from codebutler.slack.meeting import OthersConnectedError, meet

        async with AsyncExitStack() as stack:
            api = await stack.enter_async_context(
                SlackApi(self.slack.bot_token, base_url=self.slack.api_base_url)
            )
            meeting = None
            try:
                meeting = await stack.enter_async_context(meet(api, self.slack.app_token))
            except OthersConnectedError:
                notice(
                    "   (The supervisor or another process is connected, so nobody can answer in Slack now.)"
                )
            except ChatError as error:
                notice(f"   ({error})")
            await do(api, meeting)

    async def _ask_people(self, api: SlackApi, meeting: Meeting | None) -> None:
        code = f"{secrets.randbelow(10**6):06}"
        if meeting is not None:
            notice(f"   Or send CodeButler the code {code} as a direct message in Slack (Apps, CodeButler).")
        while True:
            known = len(self.slack.allowed_users)
            question = f"   People (Enter when done{f', {known} so far' if known else ''})"
            if meeting is None:
                answer = await self._terminal.until(None, question)
            else:
                answer = await self._terminal.until(_sent(meeting, code), question)
            if not answer:
                return
            for wanted in people.wanted_in(answer):
                await self._allow(api, wanted)

    async def _allow(self, api: SlackApi, wanted: str) -> None:
        if wanted.startswith(("xoxb-", "xapp-", "xoxp-")):
            notice("   That is a token, not a person: it was not saved.")
            return
        try:
            person = await people.find(api, wanted)
        except CodeButlerError as error:
            notice(f"   {error}")
            return
        self._save(ALLOWED_USERS, [person.id])
        users = tuple(dict.fromkeys([*self.slack.allowed_users, person.id]))
        self.slack = msgspec.structs.replace(self.slack, allowed_users=users)
        notice(f"   ✓ {person} may use the agents")

    async def _greet(self, api: SlackApi, meeting: Meeting | None) -> None:
        from codebutler.slack.meeting import HEARD_TEXT, SKIPPED_TEXT

        if meeting is None:
            return
        user = (await people.described(api, self.slack.allowed_users[:1]))[0]
        place = await meeting.say_hello(user.id)
        notice(f"6. CodeButler sent {user} a message in Slack.")
        answer = await self._terminal.until(_pressed(meeting), "   Press its button (Enter to skip)")
        await meeting.conclude(place, HEARD_TEXT if answer else SKIPPED_TEXT)
        notice("   ✓ It works both ways" if answer else "   Skipped.")


async def _sent(meeting: Meeting, code: str) -> str:
    return await meeting.sender_of(code)


async def _pressed(meeting: Meeting) -> str:
    await meeting.pressed()
    return "pressed"


def _has_browser() -> bool:
    """Whether a page would open beside the terminal, not in it."""
    named = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")
    return sys.platform == "darwin" or any(os.environ.get(name) for name in named)
