"""Telegram in ``codebutler setup``: its bot, and whoever may use it. No message is taken away."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from codebutler.chat.platform import BadOptionError, Given, Prompter, SetUp
from codebutler.chat.telegram.api import BotApi
from codebutler.chat.telegram.links import LinkOpened, link_opened
from codebutler.chat.telegram.rules import number_of
from codebutler.config.chats import TelegramSection
from codebutler.config.load import token_fault
from codebutler.domain.errors import ChatAuthError, ChatError, ConfigError
from codebutler.domain.refs import PersonRef

TOKEN, USERS, API_URL = "telegram.botToken", "telegram.allowedUsers", "telegram.apiBaseUrl"
NOT_A_NUMBER = " is not a Telegram number such as 123456789, and names change hands"


async def set_up(wish: SetUp) -> str:
    """Uses the options: all of them are right, or nothing is written; without options, asks."""
    present = wish.config.telegram
    if not wish.given and wish.prompter.is_interactive:
        await TelegramWizard(wish.prompter, present, wish.save).ask()
        return ""
    given = dict(wish.given)
    if USERS in given:
        given[USERS] = _people_in(given[USERS])
    wish.check(given)
    wanted = msgspec.structs.replace(
        present,
        bot_token=given.get(TOKEN) or present.bot_token,
        api_base_url=given.get(API_URL) or present.api_base_url,
    )
    if not wanted.bot_token:
        raise ConfigError("no Telegram bot token: pass --telegram-token (Telegram: @BotFather, /newbot)")
    me = await identify(wanted)
    wish.save(given)
    return f"Connected to Telegram as @{me.get('username')}"


def _people_in(users: Iterable[str]) -> list[PersonRef]:
    """The IDs of people with these numbers. Raises BadOptionError for anything else."""
    found = []
    for user in users:
        if not (person := TelegramSection.person_in(user)):
            raise BadOptionError(
                f"{user}{NOT_A_NUMBER}: run `codebutler setup` at a terminal, which finds out the number",
                "--telegram-user",
            )
        found.append(person)
    return found


async def identify(telegram: TelegramSection) -> Mapping[str, Any]:
    """The bot. Raises ChatAuthError for a token that is refused, ChatError."""
    async with BotApi(telegram.bot_token, telegram.api_base_url) as api:
        me: Mapping[str, Any] = await api.call("getMe")
        return me


class TelegramWizard:
    """``telegram`` is what is known so far; ``save`` stores an answer."""

    def __init__(self, terminal: Prompter, telegram: TelegramSection, save: Callable[[Given], None]) -> None:
        self.telegram = telegram
        self._terminal = terminal
        self._save = save

    async def ask(self) -> None:
        """The token, then who may use the agents."""
        me = await self._token()
        async with BotApi(self.telegram.bot_token, self.telegram.api_base_url) as api:
            can_listen = await self._webhook(api)
            await self._people(api, str(me.get("username")), can_listen=can_listen)

    async def _token(self) -> Mapping[str, Any]:
        self._terminal.tell("1. In Telegram, send /newbot to @BotFather, and copy the token it answers with.")
        present = self.telegram.bot_token
        hint = " or Enter to keep the present one" if present else ""
        while True:
            token = await self._terminal.ask_secret(f"   Telegram bot token{hint}") or present
            if fault := token_fault(TOKEN, token):
                self._terminal.tell(f"   {fault}")
                continue
            telegram = msgspec.structs.replace(self.telegram, bot_token=token)
            try:
                me = await identify(telegram)
            except ChatAuthError:
                self._terminal.tell("   Telegram does not accept this token. Copy it again.")
            except ChatError as error:
                self._terminal.tell(f"   {error}")
            else:
                self._terminal.tell(f"   ✓ Connected as @{me.get('username')}")
                if token != present:
                    self._save({TOKEN: token})
                self.telegram = telegram
                return me

    async def _webhook(self, api: BotApi) -> bool:
        """Whether we may fetch messages: removes another program's webhook after asking."""
        if not (await api.call("getWebhookInfo")).get("url"):
            return True
        answer = await self._terminal.ask(
            "   Another program takes this bot's messages by a webhook. Remove it? (yes/no)", "no"
        )
        if answer.lower() not in ("y", "yes"):
            self._terminal.tell("   Kept: CodeButler hears nothing until it is removed.")
            return False
        await api.call("deleteWebhook")
        return True

    async def _people(self, api: BotApi, username: str, *, can_listen: bool) -> None:
        self._terminal.tell("2. Who may use the agents? Enter their numbers in Telegram.")
        if self.telegram.allowed_users:
            known = ", ".join(map(str, self.telegram.allowed_users))
            self._terminal.tell(
                f"   Allowed now: {known}. `codebutler deny NUMBER` takes somebody off the list."
            )
        code = secrets.token_urlsafe(12)
        if can_listen:
            self._terminal.tell(
                f"   Or open https://t.me/{username}?start={code} in Telegram and press Start."
            )
        while True:
            count = len(self.telegram.allowed_users)
            question = f"   People (Enter when done{f', {count} so far' if count else ''})"
            opened = link_opened(api, code, self._terminal.tell) if can_listen else None
            answer = await self._terminal.until(opened, question)
            if isinstance(answer, LinkOpened):
                await self._confirm(answer)
                can_listen = False
            elif not answer:
                return
            else:
                for wanted in re.split(r"[,;\s]+", answer):
                    self._allow(wanted)

    async def _confirm(self, opened: LinkOpened) -> None:
        """Anybody may call themselves as they like, and somebody else may have the link."""
        question = f"   Is that you: {opened.who} ({opened.user})? (yes/no)"
        if (await self._terminal.ask(question, "yes")).lower() in ("y", "yes"):
            self._allow(str(opened.user))

    def _allow(self, wanted: str) -> None:
        person = TelegramSection.person_in(wanted)
        if not person:
            self._terminal.tell(f"   {wanted}{NOT_A_NUMBER}.")
            return
        number = number_of(person)
        self._save({USERS: [person]})
        users = tuple(dict.fromkeys([*self.telegram.allowed_users, number]))
        self.telegram = msgspec.structs.replace(self.telegram, allowed_users=users)
        self._terminal.tell(f"   ✓ {number} may use the agents")
