"""Telegram in ``codebutler add-repo``: the chat of a repository."""

from __future__ import annotations

import re
import secrets

from codebutler.chat.platform import BadOptionError, PlaceWish, Prompter, RepoPlace
from codebutler.chat.telegram.api import BotApi
from codebutler.chat.telegram.checks import chat_finding
from codebutler.chat.telegram.rules import channel_of
from codebutler.chat.telegram.setup import LinkOpened, link_opened
from codebutler.config.chats import TelegramSection
from codebutler.domain.errors import ChatAuthError, ChatError, CodeButlerError, ConfigError

_CHAT = re.compile(r"(?:tg:)?(-?[1-9][0-9]{0,15})")
RIGHTS = "manage_topics+pin_messages"


async def place(wish: PlaceWish) -> RepoPlace:
    """A repository's group. Raises CodeButlerError, BadOptionError."""
    wanted = wish.given.get("chat") or wish.present
    if wanted:
        found = await look_up(wish.config.telegram, wanted)
    elif wish.prompter.is_interactive:
        found = await _asked(wish.config.telegram, wish.repo, wish.prompter)
    else:
        raise BadOptionError("pass --telegram CHAT, the number of its group (-100…)")
    wish.check(found.id)
    return found


async def _asked(telegram: TelegramSection, repo: str, terminal: Prompter) -> RepoPlace:
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


async def look_up(telegram: TelegramSection, wanted: str) -> RepoPlace:
    """The chat of that number, or of that public name (@…), which the bot is in. Raises CodeButlerError."""
    bot = _bot(telegram)
    number = _CHAT.fullmatch(wanted)
    if not number and not wanted.startswith("@"):
        raise CodeButlerError(
            f"{wanted} is not a Telegram chat: pass its number (-100…), or its public name (@…)"
        )
    async with bot as api:
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
    advice = "" if finding.level == "ok" else finding.text
    return RepoPlace(id=channel_of(chat["id"]), name=name, advice=advice)
