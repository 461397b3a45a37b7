"""Telegram in ``codebutler setup``: its bot, who may use it, and the links by which people identify themselves; it does
not consume any message. And its checks for ``codebutler doctor``: the token, other receivers, repositories' chats."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from codebutler.chat.people import readable
from codebutler.chat.platform import BadOptionError, Given, Prompter, SetUp
from codebutler.chat.telegram.api import BotApi
from codebutler.chat.telegram.rules import number_of
from codebutler.chat.telegram.updates import menu
from codebutler.config.chats import TelegramSection, section_of
from codebutler.config.load import token_fault
from codebutler.domain.errors import ChatAuthError, ChatError, ConfigError
from codebutler.domain.refs import PersonRef
from codebutler.intake.repos import RepoTable, Served
from codebutler.protocol.messages import Finding, fail, ok, warn

TOKEN, USERS, API_URL = "telegram.botToken", "telegram.allowedUsers", "telegram.apiBaseUrl"
NOT_A_NUMBER = " is not a Telegram number such as 123456789 (a name can pass to somebody else)"
BOTFATHER = "https://t.me/BotFather"
# Longer than Telegram delays a repeated request.
POLL_PAUSE_S = 3.1
WAIT_S = 20
LINK_LIFETIME_S = 600.0
_START = re.compile(r"/start(?:@\w+)?")


async def set_up(wish: SetUp) -> str:
    """Uses the options if all of them are right, otherwise writes nothing; without options, asks."""
    present = wish.config.telegram
    if not wish.given and wish.prompter.is_interactive:
        await TelegramWizard(wish.prompter, present, wish.save).ask()
        return ""
    options = dict(wish.given)
    if USERS in options:
        options[USERS] = _people_in(options[USERS])
    wish.check(options)
    section = msgspec.structs.replace(
        present,
        bot_token=options.get(TOKEN) or present.bot_token,
        api_base_url=options.get(API_URL) or present.api_base_url,
    )
    if not section.bot_token:
        raise ConfigError("no Telegram bot token: pass --telegram-token (Telegram: @BotFather, /newbot)")
    me = await identify(section)
    wish.save(options)
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
    """Asks the questions. ``telegram``: the answers so far; ``save`` stores an answer."""

    def __init__(self, terminal: Prompter, telegram: TelegramSection, save: Callable[[Given], None]) -> None:
        self.telegram = telegram
        self._terminal = terminal
        self._save = save

    async def ask(self) -> None:
        """The token, then who may use the agents."""
        me = await self._ask_token()
        async with BotApi(self.telegram.bot_token, self.telegram.api_base_url) as api:
            can_listen = await self._remove_webhook(api)
            await self._ask_people(api, str(me.get("username")), can_listen=can_listen)

    async def _ask_token(self) -> Mapping[str, Any]:
        self._terminal.tell("1. In Telegram, send /newbot to @BotFather, and copy the token it answers with.")
        present = self.telegram.bot_token
        hint = " or Enter to keep the current one" if present else ""
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

    async def _remove_webhook(self, api: BotApi) -> bool:
        """Whether we may fetch messages: removes another program's webhook after asking."""
        if not (await api.call("getWebhookInfo")).get("url"):
            return True
        answer = await self._terminal.ask(
            "   Another program receives this bot's messages through a webhook. Remove it? (yes/no)", "no"
        )
        if answer.lower() not in ("y", "yes"):
            self._terminal.tell("   Kept: CodeButler receives no messages until it is removed.")
            return False
        await api.call("deleteWebhook")
        return True

    async def _ask_people(self, api: BotApi, username: str, *, can_listen: bool) -> None:
        self._terminal.tell("2. Who may use the agents? Enter their numbers in Telegram.")
        if self.telegram.allowed_users:
            known = ", ".join(map(str, self.telegram.allowed_users))
            self._terminal.tell(f"   Allowed now: {known}. `codebutler deny NUMBER` removes somebody.")
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
                for text in re.split(r"[,;\s]+", answer):
                    self._allow(text)

    async def _confirm(self, opened: LinkOpened) -> None:
        """Anybody may call themselves as they like, and somebody else may have the link."""
        question = f"   Is that you: {opened.who} ({opened.user})? (yes/no)"
        if (await self._terminal.ask(question, "yes")).lower() in ("y", "yes"):
            self._allow(str(opened.user))

    def _allow(self, text: str) -> None:
        person = TelegramSection.person_in(text)
        if not person:
            self._terminal.tell(f"   {text}{NOT_A_NUMBER}.")
            return
        number = number_of(person)
        self._save({USERS: [person]})
        users = tuple(dict.fromkeys([*self.telegram.allowed_users, number]))
        self.telegram = msgspec.structs.replace(self.telegram, allowed_users=users)
        self._terminal.tell(f"   ✓ {number} may use the agents")


def manifest() -> str:
    """The dialogue, and our commands in BotFather's own form."""
    commands = "\n".join(f"{each['command']} - {each['description']}" for each in menu())
    return f"""\
In Telegram, send these to @BotFather ({BOTFATHER}):

  /newbot          Answer with a name, then with a username that ends in "bot".
                   Paste the token into `codebutler setup`.
  /setprivacy      Only if the bot will not be an administrator of its groups: choose Disable, then add
                   the bot to them again. An administrator reads every message anyway.
  /setjoingroups   Must stay on Enable, unless you use the private chat only.

Then `codebutler setup` finds out your number, and `codebutler add-repo` adds the bot to a group.

Do not send /setcommands: CodeButler sets this list whenever it connects.

{commands}"""


class LinkOpened(Struct, frozen=True):
    """``user`` opened the link in ``chat``, both by ID; ``who`` and ``title`` are their names."""

    user: int
    who: str
    chat: int
    title: str


async def link_opened(
    api: BotApi, code: str, tell: Callable[[str], None], *, in_group: bool = False
) -> LinkOpened:
    """Whoever sends ``/start CODE`` within ten minutes, in private or in a group; after that, or if another process
    receives the messages, waits forever. Messages are not confirmed, so the supervisor still gets them all."""
    try:
        async with asyncio.timeout(LINK_LIFETIME_S):
            while True:
                for update in await api.call("getUpdates", timeout_s=WAIT_S + 15, timeout=WAIT_S):
                    if (opened := _parse_start(update, code, in_group=in_group)) is not None:
                        return opened
                await asyncio.sleep(POLL_PAUSE_S)
    except TimeoutError:
        tell("   (The link is no longer valid: enter a number, or run this again.)")
    except ChatError as error:
        tell(f"   (The link cannot be followed now: {error})")
        if in_group:
            tell("   While a supervisor runs, write in the group: the bot answers with the command to run.")
    never: asyncio.Future[LinkOpened] = asyncio.get_running_loop().create_future()
    return await never


def _parse_start(update: Mapping[str, Any], code: str, *, in_group: bool) -> LinkOpened | None:
    message = update.get("message") or {}
    sender, chat = message.get("from") or {}, message.get("chat") or {}
    start, *rest = str(message.get("text", "")).split() or [""]
    if not _START.fullmatch(start) or not secrets.compare_digest(" ".join(rest).encode(), code.encode()):
        return None
    if not isinstance(sender.get("id"), int) or not isinstance(chat.get("id"), int) or sender.get("is_bot"):
        return None
    if (chat.get("type") == "private") is in_group:
        return None
    return LinkOpened(
        user=sender["id"],
        who=readable(str(sender.get("first_name", ""))) or "somebody",
        chat=chat["id"],
        title=readable(str(chat.get("title", ""))) or "a group",
    )


async def check_telegram(telegram: TelegramSection, table: RepoTable) -> AsyncIterator[Finding]:
    """All Telegram checks; stops after a refused token. Does not consume messages."""
    try:
        async with BotApi(telegram.bot_token, telegram.api_base_url) as api:
            me = await api.call("getMe")
            yield ok("telegram", "bot token", f"@{me.get('username')}")
            yield webhook_finding(await api.call("getWebhookInfo"))
            yield people_finding(telegram)
            for served in table.served:
                if section_of(served.channel_id) is TelegramSection:
                    yield await _check_chat(api, me, served)
    except ChatError as error:
        yield fail("telegram", "bot token", str(error))


def webhook_finding(info: Mapping[str, Any]) -> Finding:
    """Does another program receive the messages?"""
    if info.get("url"):
        text = "another program receives its messages through a webhook: `codebutler setup` can remove it"
        return fail("telegram", "messages", text)
    waiting = info.get("pending_update_count", 0)
    return ok("telegram", "messages", f"no webhook, {waiting} waiting to be fetched")


def people_finding(telegram: TelegramSection) -> Finding:
    """May anybody use it?"""
    if not telegram.allowed_users:
        return fail("telegram", "allowed users", "nobody may use it: run `codebutler setup`")
    return ok("telegram", "allowed users", f"{len(telegram.allowed_users)} in the global configuration")


def chat_finding(
    name: str, chat: Mapping[str, Any], me: Mapping[str, Any], member: Mapping[str, Any]
) -> Finding:
    """Does the bot read every message there, and may it create topics?"""
    title = str(chat.get("title") or chat.get("first_name") or chat.get("id"))
    if chat.get("type") == "private":
        return ok("channels", name, f"{title}, a private chat")
    is_admin = member.get("status") in ("administrator", "creator")
    if not is_admin and not me.get("can_read_all_group_messages"):
        text = "the bot reads only commands and replies there: make it an administrator of the group"
        return warn("channels", name, f"{title}: {text}")
    if chat.get("is_forum") and not member.get("can_manage_topics"):
        text = "the bot cannot create topics there: allow it to manage topics"
        return warn("channels", name, f"{title}: {text}")
    return ok("channels", name, f"{title} ({chat.get('id')})")


async def _check_chat(api: BotApi, me: Mapping[str, Any], served: Served) -> Finding:
    number = served.config.telegram.chat_id
    try:
        chat = await api.call("getChat", chat_id=number)
        member = await api.call("getChatMember", chat_id=number, user_id=me.get("id"))
    except ChatError as error:
        text = f"the bot cannot see the chat {number}: add it there, or run `codebutler add-repo` again ({error})"
        return fail("channels", served.entry.name, text)
    return chat_finding(served.entry.name, chat, me, member)
