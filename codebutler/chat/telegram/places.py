"""Telegram's groups: in ``codebutler add-repo``, the one of a repository; and those without one: who learns how to give
them one, and which ones we leave.

Anybody can add a bot to a group. A user of CodeButler gets instructions with their first message there, once; nothing
else is posted or stored. Others get no answer. If a stranger has added us, we leave: we would otherwise receive all
messages of the group.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Callable

from msgspec import Struct

from codebutler.chat.delivery.sender import Sender
from codebutler.chat.platform import BadOptionError, PlaceWish, Prompter, RepoPlace
from codebutler.chat.telegram.api import BotApi
from codebutler.chat.telegram.chat import TelegramChat
from codebutler.chat.telegram.rules import channel_of, number_of, person_of
from codebutler.chat.telegram.setup import LinkOpened, chat_finding, link_opened
from codebutler.chat.telegram.updates import NOT_PEOPLE, Membership
from codebutler.config.chats import TelegramSection
from codebutler.domain.errors import ChatAuthError, ChatError, CodeButlerError, ConfigError, StoreError
from codebutler.domain.message import said
from codebutler.domain.model import MessagePosted, Post
from codebutler.domain.refs import ConversationRef, PersonRef
from codebutler.platform.tasks import Tasks

_CHAT = re.compile(r"(?:tg:)?(-?[1-9][0-9]{0,15})")
RIGHTS = "manage_topics+pin_messages"
SETTLE_S = 10.0
"""A group that becomes a supergroup adds us to another chat, and only then says which one it was."""
NOT_SERVED = (
    "This group has no repository yet. Run `codebutler add-repo PATH --telegram {chat}` on the machine that runs "
    "CodeButler; until then I do not answer here."
)

log = logging.getLogger("codebutler.chat.telegram")


async def place(wish: PlaceWish) -> RepoPlace:
    """A repository's group. Raises CodeButlerError, BadOptionError."""
    chat = wish.given.get("chat") or wish.present
    if chat:
        group = await look_up(wish.config.telegram, chat)
    elif wish.prompter.is_interactive:
        group = await _ask_for_group(wish.config.telegram, wish.repo, wish.prompter)
    else:
        raise BadOptionError("pass --telegram CHAT, the number of its group (-100…)")
    wish.check(group.id)
    return group


async def _ask_for_group(telegram: TelegramSection, repo: str, terminal: Prompter) -> RepoPlace:
    """The group into which somebody brings the bot by our link, or the chat whose number they enter."""
    async with _bot(telegram) as api:
        me = await api.call("getMe")
        code = secrets.token_urlsafe(12)
        terminal.tell(
            f"Where do you want to talk to {repo}? Open this link in Telegram and choose its group:"
        )
        terminal.tell(f"   https://t.me/{me.get('username')}?startgroup={code}&admin={RIGHTS}")
        terminal.tell("   Or enter a group's number (-100…), or your own for the private chat with the bot.")
        can_listen = True
        while True:
            opened = link_opened(api, code, terminal.tell, in_group=True) if can_listen else None
            answer = await terminal.until(opened, "   Group")
            if isinstance(answer, LinkOpened):
                can_listen = False
                question = f"   Is it {answer.title} ({answer.chat})? (yes/no)"
                if (await terminal.ask(question, "yes")).lower() not in ("y", "yes"):
                    continue
                answer = str(answer.chat)
            try:
                if answer:
                    return await look_up(telegram, answer)
            except ChatAuthError:
                raise
            except CodeButlerError as error:
                terminal.tell(f"   {error}")


def _bot(telegram: TelegramSection) -> BotApi:
    if not telegram.bot_token:
        raise ConfigError("no Telegram bot yet: run `codebutler setup` first")
    return BotApi(telegram.bot_token, telegram.api_base_url)


async def look_up(telegram: TelegramSection, chat_ref: str) -> RepoPlace:
    """The chat of that number, or of that public name (@…), which the bot is in. Raises CodeButlerError."""
    bot = _bot(telegram)
    number = _CHAT.fullmatch(chat_ref)
    if not number and not chat_ref.startswith("@"):
        raise CodeButlerError(
            f"{chat_ref} is not a Telegram chat: pass its number (-100…), or its public name (@…)"
        )
    async with bot as api:
        me = await api.call("getMe")
        try:
            chat = await api.call("getChat", chat_id=int(number[1]) if number else chat_ref)
            member = await api.call("getChatMember", chat_id=chat["id"], user_id=me["id"])
        except ChatAuthError:
            raise
        except ChatError as error:
            raise CodeButlerError(
                f"@{me.get('username')} cannot see the chat {chat_ref}: add it to the group, then try again ({error})"
            ) from None
    if member.get("status") in ("left", "kicked"):
        raise CodeButlerError(f"@{me.get('username')} is not in {chat.get('title')}: add it to the group")
    finding = chat_finding("", chat, me, member)
    name = str(chat.get("title") or chat.get("first_name") or "")
    advice = "" if finding.level == "ok" else finding.text
    return RepoPlace(id=channel_of(chat["id"]), name=name, advice=advice)


class UnknownGroup(Struct, frozen=True):
    """Somebody wrote in a group without a repository."""

    event: MessagePosted


class UnknownGroups:
    """Handles groups without a repository. ``is_registered``: whether a channel belongs to a repository, served or not;
    ``is_allowed``: whether a person may use one. Everything returns at once."""

    def __init__(
        self,
        chat: TelegramChat,
        sender: Sender,
        is_registered: Callable[[ConversationRef], bool],
        is_allowed: Callable[[PersonRef], bool],
        tasks: Tasks,
    ) -> None:
        self._chat = chat
        self._sender = sender
        self._is_registered = is_registered
        self._is_allowed = is_allowed
        self._tasks = tasks

    def on_message(self, event: MessagePosted) -> None:
        """Somebody wrote in such a group."""
        if self._is_allowed(event.user) and not self._is_registered(event.channel):
            self._tasks.start(self._introduce(event), name=f"a word to {event.channel}")

    def on_membership(self, change: Membership) -> None:
        """Somebody added us to a group. An anonymous administrator could be anybody: then we stay, silently."""
        is_stranger = change.by not in (0, *NOT_PEOPLE) and not self._is_allowed(person_of(change.by))
        if change.is_in and change.chat < 0 and is_stranger:
            self._tasks.start(self._leave(change), name=f"leaving {change.chat}")

    async def _introduce(self, event: MessagePosted) -> None:
        try:
            if not await self._chat.records.mark_introduced(event.channel):
                return
            await self._sender.submit(
                event.channel,
                f"unserved {event.channel}",
                Post(message=said(NOT_SERVED.format(chat=number_of(event.channel))), thread=event.thread),
            )
        except (ChatError, StoreError) as error:
            log.info("cannot tell %s how to add it: %s", event.channel, error)

    async def _leave(self, change: Membership) -> None:
        await self._chat.clock.sleep(SETTLE_S)
        if self._is_registered(self._chat.records.channel(change.chat)):
            return
        try:
            await self._chat.api.call("leaveChat", chat_id=change.chat)
            log.info(
                "left the group %s: %s, who is not allowed, had added the bot",
                change.chat,
                person_of(change.by),
            )
        except ChatError as error:
            log.info("cannot leave %s, a stranger's group: %s", change.chat, error)
