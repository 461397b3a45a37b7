"""Slack in ``codebutler setup``: tokens and people (by name, e-mail address or user ID) from options, or from
questions. Each answer is checked with Slack, and saved once it is right."""

from __future__ import annotations

import os
import re
import secrets
import webbrowser
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack

import msgspec

from codebutler.chat.people import Person, named
from codebutler.chat.platform import Given, Prompter, SetUp
from codebutler.chat.port import Identity
from codebutler.chat.slack.api import SlackApi
from codebutler.chat.slack.app import (
    HEARD_TEXT,
    SKIPPED_TEXT,
    Meeting,
    OthersConnectedError,
    creation_link,
    meet,
)
from codebutler.config.chats import USER_ID, SlackSection
from codebutler.config.load import token_fault
from codebutler.domain.errors import ChatAuthError, ChatError, CodeButlerError, ConfigError
from codebutler.domain.refs import PersonRef
from codebutler.platform.system import this_system

BOT_TOKEN, APP_TOKEN = "slack.botToken", "slack.appToken"
USERS, API_URL = "slack.allowedUsers", "slack.apiBaseUrl"
WHAT = {BOT_TOKEN: "Bot token (xoxb-…)", APP_TOKEN: "App-level token (xapp-…)"}
CREATE = "https://api.slack.com/apps?new_app=1"
NOBODY = {"user_not_found", "users_not_found", "user_not_visible"}
INSTALL_AGAIN = "update the app from `codebutler manifest` and install it again"
Warn = Callable[[str], None]


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


def slack_api(slack: SlackSection) -> SlackApi:
    """Slack's API with the bot's token; enter it to use it. Raises ConfigError if there is no token yet."""
    if not slack.bot_token:
        raise ConfigError("no bot token yet: run `codebutler setup` first")
    return SlackApi(slack.bot_token, base_url=slack.api_base_url)


async def find_people(slack: SlackSection, wanted: Iterable[str], warn: Warn) -> list[Person]:
    """The people meant. Raises CodeButlerError that says why none was found, ChatError."""
    async with slack_api(slack) as api:
        return [await find_person(api, each, warn) for each in wanted]


def wanted_in(text: str) -> list[str]:
    """The people named in a line: separated by commas or semicolons, or by blanks if no name has two words."""
    separator = r"[,;]" if re.search(r"[,;]", text) else r"\s+(?=[@<]|[UW][A-Z0-9]{6,}|\S+@\S)"
    return [word for part in re.split(separator, text) if (word := part.strip())]


async def find_person(api: SlackApi, wanted: str, warn: Warn) -> Person:
    """The one person meant; ``warn`` is called if they could not be looked up.

    Raises CodeButlerError that says why none was found, ChatError.
    """
    name = wanted.strip().removeprefix("<@").removesuffix(">").removeprefix("@")
    try:
        person = await _find(api, name)
    except ChatError as error:
        if error.code in NOBODY:
            raise CodeButlerError(
                f"there is no user {wanted} in Slack: check the spelling, or try a name or an e-mail address"
            ) from None
        if error.code == "missing_scope":
            return _unchecked(name, warn)
        raise
    if person.is_bot:
        raise CodeButlerError(f"{person} is a bot: bots cannot use the agents")
    if person.is_deleted:
        raise CodeButlerError(f"{person} is deactivated in Slack")
    return person


async def _find(api: SlackApi, name: str) -> Person:
    if re.fullmatch(USER_ID, name):
        return await api.person(PersonRef(name))
    if re.fullmatch(r"\S+@\S+\.\S+", name):
        return await api.person_by_email(name)
    return one_called(name, await api.list_people())


def one_called(name: str, people: Iterable[Person]) -> Person:
    """The person with that name or first name, else the only one whose name starts so.

    People choose their own names: one that fits several people names nobody. Raises CodeButlerError if nobody
    or several are meant.
    """
    here = [person for person in people if not person.is_bot and not person.is_deleted]
    key = name.casefold()
    found = [p for p in here if any(f"{known.casefold()} ".startswith(f"{key} ") for known in p.names)]
    found = found or [p for p in here if any(known.casefold().startswith(key) for known in p.names)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise CodeButlerError(f"nobody in Slack is called {name}: try an e-mail address or a user ID")
    raise CodeButlerError(f"several people are called {name}: choose one by ID: {named(found)}")


async def described(api: SlackApi, users: Iterable[PersonRef]) -> list[Person]:
    """What Slack knows about these IDs; the ID alone if it knows nothing."""
    found = []
    for user in users:
        try:
            found.append(await api.person(user))
        except ChatError:
            found.append(Person(id=user, names=()))
    return found


def _unchecked(name: str, warn: Warn) -> Person:
    """An app installed without permission to read names can still be given an ID."""
    if not re.fullmatch(USER_ID, name):
        raise CodeButlerError(f"the app is not allowed to look up people: pass a user ID, or {INSTALL_AGAIN}")
    warn(f"{name} was not checked, because the app is not allowed to look up people: {INSTALL_AGAIN}")
    return Person(id=PersonRef(name), names=())
