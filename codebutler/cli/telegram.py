"""Telegram from the command line: its bot, whoever owns it, and the chat of a repository. No message is taken away."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from codebutler.cli.output import notice
from codebutler.config.load import token_fault
from codebutler.config.schema import TelegramSection, telegram_id
from codebutler.domain.errors import ChatAuthError, ChatError, CodeButlerError, ConfigError

if TYPE_CHECKING:
    from codebutler.chat.telegram.api import BotApi
    from codebutler.cli.prompts import PromptTerminal

TOKEN, USERS, API_URL = "telegram.botToken", "telegram.allowedUsers", "telegram.apiBaseUrl"
Save = Callable[[str, str | list[int]], None]
# Longer than Telegram holds back one who asks the same again.
LOOK_S = 3.1
WAIT_S = 20
PATIENCE_S = 600.0
NOT_A_NUMBER = " is not a Telegram number such as 123456789, and names change hands"
_PERSON = re.compile(r"(?:tg:)?([1-9][0-9]{0,15})")
_CHAT = re.compile(r"(?:tg:)?(-?[1-9][0-9]{0,15})")


@dataclass(frozen=True)
class RepoPlace:
    """Where a repository is spoken to: as the registry and as people name it; ``advice``: what does not work there yet,
    "" if all does."""

    id: str
    name: str
    advice: str = ""


def user_in(text: str) -> int | None:
    """The person of that number; None if it is none."""
    found = _PERSON.fullmatch(text.strip())
    return int(found[1]) if found else None


def people_in(users: Iterable[str]) -> list[int]:
    """The people of these numbers. Raises BadParameter for what is not a number."""
    numbers = []
    for user in users:
        if (number := user_in(user)) is None:
            raise typer.BadParameter(
                f"{user}{NOT_A_NUMBER}: run `codebutler setup` at a terminal, which finds out the number",
                param_hint="'--telegram-user'",
            )
        numbers.append(number)
    return numbers


async def identify(telegram: TelegramSection) -> Mapping[str, Any]:
    """The bot. Raises ChatAuthError for a token that is refused, ChatError."""
    from codebutler.chat.telegram.api import BotApi

    async with BotApi(telegram.bot_token, telegram.api_base_url) as api:
        me: Mapping[str, Any] = await api.call("getMe")
        return me


async def look_up(telegram: TelegramSection, wanted: str) -> RepoPlace:
    """The chat of that number, or of that public name (@…), which the bot is in. Raises CodeButlerError."""
    from codebutler.chat.telegram.api import BotApi
    from codebutler.operations.chat_checks import chat_finding

    if not telegram.bot_token:
        raise ConfigError("no Telegram bot yet: run `codebutler setup` first")
    number = _CHAT.fullmatch(wanted)
    if not number and not wanted.startswith("@"):
        raise CodeButlerError(
            f"{wanted} is not a Telegram chat: pass its number (-100…), or its public name (@…)"
        )
    async with BotApi(telegram.bot_token, telegram.api_base_url) as api:
        me = await api.call("getMe")
        try:
            chat = await api.call("getChat", chat_id=int(number[1]) if number else wanted)
            member = await api.call("getChatMember", chat_id=chat["id"], user_id=me["id"])
        except ChatAuthError:
            raise
        except ChatError as error:
            raise CodeButlerError(
                f"@{me.get('username')} cannot see the chat {wanted}: add it to the group, then try again ({error})"
            ) from None
    if member.get("status") in ("left", "kicked"):
        raise CodeButlerError(f"@{me.get('username')} is not in {chat.get('title')}: add it to the group")
    finding = chat_finding("", chat, me, member)
    name = str(chat.get("title") or chat.get("first_name") or "")
    return RepoPlace(telegram_id(chat["id"]), name, "" if finding.level == "ok" else finding.text)


class TelegramWizard:
    """``telegram`` is what is known by now; ``save`` keeps an answer."""

    def __init__(self, terminal: PromptTerminal, telegram: TelegramSection, save: Save) -> None:
        self.telegram = telegram
        self._terminal = terminal
        self._save = save

    async def ask(self) -> None:
        """The token, then who may use the agents."""
        from codebutler.chat.telegram.api import BotApi

        me = await self._token()
        async with BotApi(self.telegram.bot_token, self.telegram.api_base_url) as api:
            can_listen = await self._webhook(api)
            await self._people(api, str(me.get("username")), can_listen=can_listen)

    async def _token(self) -> Mapping[str, Any]:
        notice("1. In Telegram, send /newbot to @BotFather, and copy the token it answers with.")
        present = self.telegram.bot_token
        hint = " or Enter to keep the present one" if present else ""
        while True:
            token = await self._terminal.ask_secret(f"   Telegram bot token{hint}") or present
            if fault := token_fault(TOKEN, token):
                notice(f"   {fault}")
                continue
            telegram = msgspec.structs.replace(self.telegram, bot_token=token)
            try:
                me = await identify(telegram)
            except ChatAuthError:
                notice("   Telegram does not accept this token. Copy it again.")
            except ChatError as error:
                notice(f"   {error}")
            else:
                notice(f"   ✓ Connected as @{me.get('username')}")
                if token != present:
                    self._save(TOKEN, token)
                self.telegram = telegram
                return me

    async def _webhook(self, api: BotApi) -> bool:
        """Whether we may fetch messages: a webhook of another program is removed after asking."""
        if not (await api.call("getWebhookInfo")).get("url"):
            return True
        answer = await self._terminal.ask(
            "   Another program takes this bot's messages by a webhook. Remove it? (yes/no)", "no"
        )
        if answer.lower() not in ("y", "yes"):
            notice("   Kept: CodeButler hears nothing until it is removed.")
            return False
        await api.call("deleteWebhook")
        return True

    async def _people(self, api: BotApi, username: str, *, can_listen: bool) -> None:
        notice("2. Who may use the agents? Enter their numbers in Telegram.")
        if self.telegram.allowed_users:
            known = ", ".join(map(str, self.telegram.allowed_users))
            notice(f"   Allowed now: {known}. `codebutler deny NUMBER` takes somebody off the list.")
        code = secrets.token_urlsafe(12)
        if can_listen:
            notice(f"   Or open https://t.me/{username}?start={code} in Telegram and press Start.")
        while True:
            count = len(self.telegram.allowed_users)
            question = f"   People (Enter when done{f', {count} so far' if count else ''})"
            answer = await self._terminal.until(who_sent(api, code) if can_listen else None, question)
            if isinstance(answer, Someone):
                await self._confirm(answer)
                can_listen = False
            elif not answer:
                return
            else:
                for wanted in re.split(r"[,;\s]+", answer):
                    self._allow(wanted)

    async def _confirm(self, person: Someone) -> None:
        """Anybody may call themselves as they like, and somebody else may have the link."""
        answer = await self._terminal.ask(f"   Is that you: {person}? (yes/no)", "yes")
        if answer.lower() in ("y", "yes"):
            self._allow(str(person.id))

    def _allow(self, wanted: str) -> None:
        number = user_in(wanted)
        if number is None:
            notice(f"   {wanted}{NOT_A_NUMBER}.")
            return
        self._save(USERS, [number])
        users = tuple(dict.fromkeys([*self.telegram.allowed_users, number]))
        self.telegram = msgspec.structs.replace(self.telegram, allowed_users=users)
        notice(f"   ✓ {number} may use the agents")


@dataclass(frozen=True)
class Someone:
    """Who has sent a code."""

    id: int
    name: str

    def __str__(self) -> str:
        return f"{self.name} ({self.id})"


async def who_sent(api: BotApi, code: str) -> Someone:
    """Whoever sends ``/start CODE`` to the bot in private within ten minutes; waits for ever after that, or where
    another process fetches the messages. None of them is confirmed, so the supervisor gets all of them."""
    from codebutler.chat.people import readable

    try:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for update in await api.call("getUpdates", timeout_s=WAIT_S + 15, timeout=WAIT_S):
                    if (sender := _sender(update, code)) is not None:
                        return Someone(
                            sender["id"], readable(str(sender.get("first_name", ""))) or "somebody"
                        )
                await asyncio.sleep(LOOK_S)
    except TimeoutError:
        notice("   (The link is no longer valid: enter a number, or run `codebutler setup` again.)")
    except ChatError as error:
        notice(f"   (Nobody can answer in Telegram now: {error})")
    return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]


def _sender(update: Mapping[str, Any], code: str) -> Mapping[str, Any] | None:
    message = update.get("message") or {}
    sender, chat = message.get("from") or {}, message.get("chat") or {}
    said = str(message.get("text", "")).split()
    is_it = (
        said[:1] == ["/start"] and len(said) == 2 and secrets.compare_digest(said[1].encode(), code.encode())
    )
    is_person = isinstance(sender.get("id"), int) and not sender.get("is_bot")
    return sender if is_it and is_person and chat.get("type") == "private" else None
