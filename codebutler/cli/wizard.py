"""The questions of ``codebutler setup``. Each answer is checked with Slack, and saved as soon as it is right."""

from __future__ import annotations

import os
import secrets
import sys
import webbrowser
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack

import msgspec

from codebutler.chat.slack.api import SlackApi
from codebutler.chat.slack.app import (
    HEARD_TEXT,
    SKIPPED_TEXT,
    Meeting,
    OthersConnectedError,
    creation_link,
    meet,
)
from codebutler.cli.config_files import ALLOWED_USERS, APP_TOKEN, BOT_TOKEN
from codebutler.cli.output import notice
from codebutler.cli.prompts import PromptTerminal
from codebutler.cli.slack import described, find_person, named, wanted_in
from codebutler.config.load import token_fault
from codebutler.config.schema import SlackSection
from codebutler.domain.errors import ChatAuthError, ChatError, CodeButlerError

WHAT = {BOT_TOKEN: "Bot token (xoxb-…)", APP_TOKEN: "App-level token (xapp-…)"}
KEYS = {"openai.apiKey": "OpenAI API key, for voice messages and images", "kimi.apiKey": "Kimi API key"}
CREATE = "https://api.slack.com/apps?new_app=1"


class Wizard:
    """``slack`` is what is known by now, ``given`` are tokens that are still to be tried; ``save`` keeps an answer: its
    key, and a text or a list of users."""

    def __init__(
        self,
        terminal: PromptTerminal,
        slack: SlackSection,
        save: Callable[[str, str | list[str]], None],
        given: Mapping[str, str],
    ) -> None:
        self.slack = slack
        self._terminal = terminal
        self._save = save
        self._given = dict(given)

    async def ask(self, *, again: bool, wanted: Sequence[str]) -> None:
        """Ask for what is missing; ``again``: for everything. ``wanted`` are people who were named already."""
        await self._tokens(again=again)
        async with AsyncExitStack() as stack:
            api = await stack.enter_async_context(
                SlackApi(self.slack.bot_token, base_url=self.slack.api_base_url)
            )
            for person in wanted:
                await self._allow(api, person)
            if not again and self.slack.allowed_users:
                return
            # One connection for all of it: Slack goes on counting one for a while after it has ended.
            meeting = await self._met(api, stack)
            await self._people(api, meeting)
            if again:
                await self._keys()
                await self._test(api, meeting)

    async def _tokens(self, *, again: bool) -> None:
        if again or BOT_TOKEN in self._given or not self.slack.bot_token:
            if not self.slack.bot_token and BOT_TOKEN not in self._given:
                await self._create_app()
            notice("2. Copy the Bot User OAuth Token from the app's page OAuth & Permissions.")
            token = await self._token(BOT_TOKEN, self.slack.bot_token)
            self.slack = msgspec.structs.replace(self.slack, bot_token=token)
        if again or APP_TOKEN in self._given or not self.slack.app_token:
            notice(
                "3. On Basic Information, App-Level Tokens, generate one with the scope connections:write."
            )
            token = await self._token(APP_TOKEN, self.slack.app_token)
            self.slack = msgspec.structs.replace(self.slack, app_token=token)

    async def _create_app(self) -> None:
        notice("1. Create the Slack app. Choose your workspace, then Create, then Install.")
        if _has_browser():
            answer = await self._terminal.ask("   Press Enter to open Slack in your browser (or type `link`)")
            if not answer and webbrowser.open(creation_link()):
                return
            if answer == "link":
                notice(creation_link())
                return
        notice(f"   Open {CREATE}, choose From a manifest, and paste what `codebutler manifest` prints.")
        notice("   (`codebutler manifest --link` prints a link with everything filled in.)")

    async def _token(self, key: str, present: str) -> str:
        """A token that Slack accepts, asked for until it is one."""
        hint = " or Enter to keep the present one" if present else ""
        last = self._given.pop(key, "")
        while True:
            token = last or await self._terminal.ask_secret(f"   {WHAT[key]}{hint}") or present
            last = ""
            if fault := token_fault(key, token):
                self._mistaken(key, token, fault)
                continue
            try:
                notice(f"   ✓ {await self._tried(key, token)}")
            except ChatAuthError as error:
                notice(f"   {error.code or 'refused'}: Slack does not accept this token. Copy it again.")
            except ChatError as error:
                notice(f"   {error}")
                await self._terminal.ask("   Press Enter to try again")
                last = token
            else:
                if token != present:
                    self._save(key, token)
                return token

    def _mistaken(self, key: str, token: str, fault: str) -> None:
        """A token of the other kind is kept for its own question."""
        other = next((name for name in WHAT if not token_fault(name, token)), "")
        if other:
            self._given[other] = token
            notice(f"   That is the {WHAT[other]}: kept for later. Now the {WHAT[key]}.")
        else:
            notice(f"   {fault}")

    async def _tried(self, key: str, token: str) -> str:
        """Raises ChatAuthError for a token that is refused, ChatError if Slack does not answer."""
        bot_token = token if key == BOT_TOKEN else self.slack.bot_token
        async with SlackApi(bot_token, base_url=self.slack.api_base_url) as api:
            if key == BOT_TOKEN:
                identity = await api.identity()
                return f"Connected to {identity.team or identity.team_id}"
            await api.open_connection(token)
            return "Socket Mode works"

    async def _met(self, api: SlackApi, stack: AsyncExitStack) -> Meeting | None:
        """The connection on which people are heard, None where there is none to be had."""
        try:
            return await stack.enter_async_context(meet(api, self.slack.app_token))
        except OthersConnectedError:
            notice("   (The supervisor or another process is connected, so nobody can answer in Slack now.)")
        except ChatError as error:
            notice(f"   ({error})")
        return None

    async def _people(self, api: SlackApi, meeting: Meeting | None) -> None:
        """Ask who may use the agents, until nothing is entered."""
        notice("4. Who may use the agents? Enter Slack names, e-mail addresses or user IDs.")
        if allowed := await described(api, self.slack.allowed_users):
            notice(f"   Allowed now: {named(allowed)}. `codebutler deny USER` takes somebody off the list.")
        code = f"{secrets.randbelow(10**6):06}"
        if meeting is not None:
            notice(f"   Or send CodeButler the code {code} as a direct message in Slack (Apps, CodeButler).")
        while True:
            known = len(self.slack.allowed_users)
            question = f"   People (Enter when done{f', {known} so far' if known else ''})"
            sender = meeting.sender_of(code) if meeting else None
            answer = await self._terminal.until(sender, question)
            if not answer:
                return
            for wanted in wanted_in(answer):
                await self._allow(api, wanted)

    async def _allow(self, api: SlackApi, wanted: str) -> None:
        if wanted.startswith(("xoxb-", "xapp-", "xoxp-")):
            notice("   That is a token, not a person: it was not saved.")
            return
        try:
            person = await find_person(api, wanted)
        except CodeButlerError as error:
            notice(f"   {error}")
            return
        self._save(ALLOWED_USERS, [person.id])
        users = tuple(dict.fromkeys([*self.slack.allowed_users, person.id]))
        self.slack = msgspec.structs.replace(self.slack, allowed_users=users)
        notice(f"   ✓ {person} may use the agents")

    async def _keys(self) -> None:
        notice("5. Optional keys; press Enter to skip.")
        for key, what in KEYS.items():
            if value := await self._terminal.ask_secret(f"   {what}"):
                self._save(key, value)

    async def _test(self, api: SlackApi, meeting: Meeting | None) -> None:
        """Send somebody a message whose button they press."""
        if meeting is None or not self.slack.allowed_users:
            return
        user = (await described(api, self.slack.allowed_users[:1]))[0]
        try:
            place = await meeting.say_hello(user.id)
            notice(f"6. CodeButler sent {user} a message in Slack.")
            answer = await self._terminal.until(meeting.pressed(), "   Press its button (Enter to skip)")
            await meeting.conclude(place, HEARD_TEXT if answer else SKIPPED_TEXT)
        except ChatError as error:
            notice(f"   The test message failed: {error}")
        else:
            notice("   ✓ It works both ways" if answer else "   Skipped.")


def _has_browser() -> bool:
    """Whether a page would open beside the terminal, not in it."""
    named = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")
    return sys.platform == "darwin" or any(os.environ.get(name) for name in named)
