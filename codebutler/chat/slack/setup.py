"""Slack in ``codebutler setup``: tokens and people from options, or from questions. Each answer is checked with Slack,
and saved once it is right. A temporary connection shows who somebody is, and that messages arrive."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import webbrowser
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random
from typing import Any

import msgspec

from codebutler.chat.payload import PayloadError
from codebutler.chat.people import named
from codebutler.chat.platform import Given, Prompter, SetUp
from codebutler.chat.port import Identity
from codebutler.chat.slack.api import SlackApi
from codebutler.chat.slack.app import creation_link
from codebutler.chat.slack.link import SocketEnvelope
from codebutler.chat.slack.payloads import parse_envelope
from codebutler.chat.slack.places import described, find_person, slack_api, wanted_in
from codebutler.chat.slack.socket import SocketModeClient
from codebutler.config.chats import SlackSection
from codebutler.config.load import token_fault
from codebutler.domain.clock import SystemClock
from codebutler.domain.errors import ChatAuthError, ChatError, CodeButlerError, ConfigError, ProtocolError
from codebutler.domain.message import Button, said
from codebutler.domain.model import ButtonClicked, MessagePosted, Post, Update
from codebutler.domain.refs import NOWHERE, ConversationRef, MessageRef, PersonRef
from codebutler.platform.system import this_system
from codebutler.platform.tasks import cancel

BOT_TOKEN, APP_TOKEN = "slack.botToken", "slack.appToken"
USERS, API_URL = "slack.allowedUsers", "slack.apiBaseUrl"
WHAT = {BOT_TOKEN: "Bot token (xoxb-…)", APP_TOKEN: "App-level token (xapp-…)"}
CREATE = "https://api.slack.com/apps?new_app=1"
HELLO_ACTION = "codebutler.hello"
HELLO_TEXT = "👋 CodeButler is connected. Press the button to finish the setup."
HEARD_TEXT = "✅ Sending and receiving work. Setup is complete."
SKIPPED_TEXT = "👋 CodeButler is connected."
MAX_WRONG_CODES = 20
CONNECT_S = 15.0


async def set_up(wish: SetUp) -> str:
    """Uses the options if they are complete; else asks for the missing ones; without any option, for
    everything."""
    users: Sequence[str] = wish.given.get(USERS, ())
    given = {key: str(value) for key, value in wish.given.items() if key != USERS}
    wish.check(given)
    slack = _with(wish.config.slack, given)
    is_whole = bool(slack.bot_token and slack.app_token and (users or slack.allowed_users))
    if not wish.prompter.is_interactive or (wish.given and is_whole):
        identity, found = await _verified(slack, users, wish.prompter.warn)
        wish.save({**given, **({USERS: found} if found else {})})
        return f"Connected to {identity.team or identity.team_id} as {identity.user_id}"
    if API_URL in given:
        wish.save({API_URL: given.pop(API_URL)})
    known = msgspec.structs.replace(wish.config.slack, api_base_url=slack.api_base_url)
    await Wizard(wish.prompter, known, wish.save, given).ask(again=not wish.given, wanted=users)
    return ""


def _with(present: SlackSection, given: Mapping[str, str]) -> SlackSection:
    """What the supervisor will use."""
    return msgspec.structs.replace(
        present,
        bot_token=given.get(BOT_TOKEN) or present.bot_token,
        app_token=given.get(APP_TOKEN) or present.app_token,
        api_base_url=given.get(API_URL) or present.api_base_url,
    )


async def _verified(
    slack: SlackSection, users: Sequence[str], warn: Callable[[str], None]
) -> tuple[Identity, list[PersonRef]]:
    """Call auth.test, apps.connections.open and, for each user, users.info; returns our identity and the
    users' IDs.

    Raises ConfigError that names a missing token; ChatAuthError for a refused one.
    """
    if not slack.bot_token:
        raise ConfigError("no bot token: pass --bot-token xoxb-… (Slack: your app, OAuth & Permissions)")
    if not slack.app_token:
        raise ConfigError("no app-level token: pass --app-token xapp-… (Slack: your app, Basic Information)")
    async with slack_api(slack) as api:
        identity = await api.identity()
        await api.open_connection(slack.app_token)
        return identity, [(await find_person(api, user, warn)).id for user in users]


class Wizard:
    """Asks the questions. ``slack``: the answers so far; ``given``: tokens still to be tried; ``save`` stores an
    answer."""

    def __init__(
        self,
        terminal: Prompter,
        slack: SlackSection,
        save: Callable[[Given], None],
        given: Mapping[str, str],
    ) -> None:
        self.slack = slack
        self._terminal = terminal
        self._tell = terminal.tell
        self._save = save
        self._given = dict(given)

    async def ask(self, *, again: bool, wanted: Sequence[str]) -> None:
        """Ask for what is missing; ``again``: for everything. ``wanted`` are people named already."""
        await self._tokens(again=again)
        async with AsyncExitStack() as stack:
            api = await stack.enter_async_context(
                SlackApi(self.slack.bot_token, base_url=self.slack.api_base_url)
            )
            for person in wanted:
                await self._allow(api, person)
            if not again and self.slack.allowed_users:
                return
            # One connection for everything: Slack still counts one for a while after it has ended.
            meeting = await self._met(api, stack)
            await self._people(api, meeting)
            if again:
                await self._test(api, meeting)

    async def _tokens(self, *, again: bool) -> None:
        if again or BOT_TOKEN in self._given or not self.slack.bot_token:
            if not self.slack.bot_token and BOT_TOKEN not in self._given:
                await self._create_app()
            self._tell("2. Copy the Bot User OAuth Token from the app's page OAuth & Permissions.")
            token = await self._token(BOT_TOKEN, self.slack.bot_token)
            self.slack = msgspec.structs.replace(self.slack, bot_token=token)
        if again or APP_TOKEN in self._given or not self.slack.app_token:
            self._tell(
                "3. On Basic Information, App-Level Tokens, generate one with the scope connections:write."
            )
            token = await self._token(APP_TOKEN, self.slack.app_token)
            self.slack = msgspec.structs.replace(self.slack, app_token=token)

    async def _create_app(self) -> None:
        self._tell("1. Create the Slack app. Choose your workspace, then Create, then Install.")
        if _has_browser():
            answer = await self._terminal.ask("   Press Enter to open Slack in your browser (or type `link`)")
            if not answer and webbrowser.open(creation_link()):
                return
            if answer == "link":
                self._tell(creation_link())
                return
        self._tell(f"   Open {CREATE}, choose From a manifest, and paste what `codebutler manifest` prints.")
        self._tell("   (`codebutler manifest --link` prints a link with everything filled in.)")

    async def _token(self, key: str, present: str) -> str:
        """Ask until Slack accepts the token."""
        hint = " or Enter to keep the current one" if present else ""
        last = self._given.pop(key, "")
        while True:
            token = last or await self._terminal.ask_secret(f"   {WHAT[key]}{hint}") or present
            last = ""
            if fault := token_fault(key, token):
                self._mistaken(key, token, fault)
                continue
            try:
                self._tell(f"   ✓ {await self._tried(key, token)}")
            except ChatAuthError as error:
                self._tell(f"   {error.code or 'refused'}: Slack does not accept this token. Copy it again.")
            except ChatError as error:
                self._tell(f"   {error}")
                await self._terminal.ask("   Press Enter to try again")
                last = token
            else:
                if token != present:
                    self._save({key: token})
                return token

    def _mistaken(self, key: str, token: str, fault: str) -> None:
        """A token of the other kind is kept for its own question."""
        other = next((name for name in WHAT if not token_fault(name, token)), "")
        if other:
            self._given[other] = token
            self._tell(f"   That is the {WHAT[other]}: kept for later. Now the {WHAT[key]}.")
        else:
            self._tell(f"   {fault}")

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
        """The connection on which people's messages arrive, None if none is available."""
        try:
            return await stack.enter_async_context(meet(api, self.slack.app_token))
        except OthersConnectedError:
            self._tell(
                "   (The supervisor or another process is connected, so setup cannot receive answers from Slack now.)"
            )
        except ChatError as error:
            self._tell(f"   ({error})")
        return None

    async def _people(self, api: SlackApi, meeting: Meeting | None) -> None:
        """Ask who may use the agents, until an empty answer."""
        self._tell("4. Who may use the agents? Enter Slack names, e-mail addresses or user IDs.")
        if allowed := await described(api, self.slack.allowed_users):
            self._tell(f"   Allowed now: {named(allowed)}. `codebutler deny USER` removes somebody.")
        code = f"{secrets.randbelow(10**6):06}"
        if meeting is not None:
            self._tell(
                f"   Or send CodeButler the code {code} as a direct message in Slack (Apps, CodeButler)."
            )
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
            self._tell("   That is a token, not a person: it was not saved.")
            return
        try:
            person = await find_person(api, wanted, self._terminal.warn)
        except CodeButlerError as error:
            self._tell(f"   {error}")
            return
        self._save({USERS: [person.id]})
        users = tuple(dict.fromkeys([*self.slack.allowed_users, person.id]))
        self.slack = msgspec.structs.replace(self.slack, allowed_users=users)
        self._tell(f"   ✓ {person} may use the agents")

    async def _test(self, api: SlackApi, meeting: Meeting | None) -> None:
        """Send somebody a message with a button to press."""
        if meeting is None or not self.slack.allowed_users:
            return
        user = (await described(api, self.slack.allowed_users[:1]))[0]
        try:
            place = await meeting.say_hello(user.id)
            self._tell(f"5. CodeButler sent {user} a message in Slack.")
            answer = await self._terminal.until(meeting.pressed(), "   Press its button (Enter to skip)")
            await meeting.conclude(place, HEARD_TEXT if answer else SKIPPED_TEXT)
        except ChatError as error:
            self._tell(f"   The test message failed: {error}")
        else:
            self._tell("   ✓ Sending and receiving work" if answer else "   Skipped.")


def _has_browser() -> bool:
    """Whether a page would open beside the terminal, not in it."""
    named = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")
    return this_system().opens_pages or any(os.environ.get(name) for name in named)


class OthersConnectedError(CodeButlerError):
    """Another process is connected with this app's token: it would get some of the events."""


class NotForUsError(Exception):
    """The event is left to the process that serves the app."""


class Meeting:
    """People and the app, while the connection is open. Create it with ``meet``.

    Slack gives each event to only one of an app's connections. Events that are not for us are not acknowledged, so
    that Slack sends them again, to the supervisor that serves the app.
    """

    def __init__(self, api: SlackApi, me: Identity) -> None:
        self._api = api
        self._me = me
        self._code = ""
        self._wrong = 0
        self._button_ts = NOWHERE
        self._came: asyncio.Queue[PersonRef] = asyncio.Queue()
        self._pressed = asyncio.Event()

    async def sender_of(self, code: str) -> PersonRef:
        """The ID of the next user who sends ``code`` to the app in a direct message."""
        self._code = code
        return await self._came.get()

    async def say_hello(self, user: PersonRef) -> tuple[ConversationRef, MessageRef]:
        """Send a user a message with a button; returns its location."""
        channel = await self._api.open_direct(user)
        message = said(HELLO_TEXT, Button("It works", HELLO_ACTION, "hello", "primary"))
        self._button_ts = await self._api.post(channel, Post(message=message), "setup-hello")
        return channel, self._button_ts

    async def pressed(self) -> bool:
        """Wait until the button of ``say_hello`` is pressed."""
        return await self._pressed.wait()

    async def conclude(self, place: tuple[ConversationRef, MessageRef], text: str) -> None:
        """Remove the button."""
        channel, ts = place
        await self._api.update(channel, Update(target=ts, message=said(text)), "setup-hello")

    async def handle(self, envelope: SocketEnvelope) -> dict[str, Any] | None:
        """The socket's handler. Raises NotForUsError."""
        try:
            event = parse_envelope(envelope.type, envelope.payload, self._me)
        except (PayloadError, ProtocolError):
            raise NotForUsError from None
        match event:
            case MessagePosted(is_direct=True) if self._is_code(event.text):
                self._came.put_nowait(event.user)
            case ButtonClicked(message=ts, action_id=action) if (action, ts) == (
                HELLO_ACTION,
                self._button_ts,
            ):
                self._pressed.set()
            case _:
                raise NotForUsError
        return None

    def _is_code(self, text: str) -> bool:
        if not self._code or self._wrong >= MAX_WRONG_CODES:
            return False
        is_it = text.strip() == self._code
        self._wrong += not is_it
        return is_it


@asynccontextmanager
async def meet(api: SlackApi, app_token: str) -> AsyncIterator[Meeting]:
    """Stay connected for the duration of the block. Raises OthersConnectedError if another process is connected as
    this app, ChatError if connecting fails."""
    meeting = Meeting(api, await api.identity())
    rng = Random()  # noqa: S311 - spreads attempts to connect
    client = SocketModeClient(lambda: api.open_connection(app_token), meeting.handle, SystemClock(), rng)
    quiet = logging.getLogger("codebutler.chat.slack")
    before = quiet.level
    quiet.setLevel(logging.CRITICAL + 1)  # events left to the other process are not failures
    serving = asyncio.create_task(client.run(), name="setup-socket")
    try:
        try:
            async with asyncio.timeout(CONNECT_S):
                await client.wait_connected()
        except TimeoutError:
            raise ChatError(client.status.trouble or "no connection to Slack") from None
        if client.status.other_consumers:
            raise OthersConnectedError
        yield meeting
    finally:
        await client.stop()
        await cancel({serving})
        quiet.setLevel(before)
