"""Finding, making and entering the channel of a repository."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from codebutler.cli.output import ask, notice
from codebutler.config.schema import SlackSection
from codebutler.errors import ChatError, CodeButlerError
from codebutler.text.letters import unaccented

if TYPE_CHECKING:
    from codebutler.slack.answers import ChannelInfo

_ID = re.compile(r"[CG][A-Z0-9]{6,}")
_NEW = "new"
# Slack: conversations.create
_MAX_NAME_CHARS = 80
_CREATE_FAULTS = {
    "name_taken": "a channel of that name exists already: pass it with --channel, or choose another name",
    "restricted_action": "this workspace lets no app create channels: create it by hand and pass --channel",
    "missing_scope": "the app may not create channels: install it again from `codebutler manifest`",
}


async def all_channels(slack: SlackSection) -> list[ChannelInfo]:
    """Every channel the bot can see. Raises ChatError."""
    from codebutler.slack.api import SlackApi

    async with SlackApi(slack.bot_token, base_url=slack.api_base_url) as api:
        return await api.list_channels()


async def look_up(slack: SlackSection, wanted: str) -> ChannelInfo:
    """The channel of that ID or name, which can be joined; nothing is changed. Raises CodeButlerError saying what to
    do."""
    from codebutler.slack.api import SlackApi

    async with SlackApi(slack.bot_token, base_url=slack.api_base_url) as api:
        channel_id = wanted if _ID.fullmatch(wanted) else by_name(await api.list_channels(), wanted).id
        try:
            channel = await api.channel_info(channel_id)
        except ChatError as error:
            if error.code == "channel_not_found":
                raise _unknown(wanted) from None
            raise
        if channel.is_archived:
            raise CodeButlerError(f"channel {channel.name} is archived: unarchive it or choose another")
        if channel.is_private and not channel.is_member:
            raise CodeButlerError(f"channel {channel.name} is private: invite the app there, then try again")
        return channel


async def enter(slack: SlackSection, channel: ChannelInfo) -> ChannelInfo:
    """Join it, unless the app is there. Raises ChatError."""
    from codebutler.slack.api import SlackApi

    if not channel.is_member:
        async with SlackApi(slack.bot_token, base_url=slack.api_base_url) as api:
            await api.join_channel(channel.id)
    return channel


async def create(slack: SlackSection, name: str) -> ChannelInfo:
    """Make a public channel, the bot in it. Raises CodeButlerError saying what to do."""
    from codebutler.slack.api import SlackApi

    async with SlackApi(slack.bot_token, base_url=slack.api_base_url) as api:
        try:
            return await api.create_channel(channel_name(name))
        except ChatError as error:
            if fault := _CREATE_FAULTS.get(error.code):
                raise CodeButlerError(f"cannot create the channel {name}: {fault}") from None
            raise


def channel_name(text: str) -> str:
    """The nearest name Slack allows: lower case, digits, ``-`` and ``_``, at most 80 characters."""
    plain = unaccented(text).lower().removeprefix("#")
    return re.sub(r"[^a-z0-9_-]+", "-", plain).strip("-")[:_MAX_NAME_CHARS] or "repo"


def by_name(channels: Sequence[ChannelInfo], wanted: str) -> ChannelInfo:
    """The channel called ``wanted``, with or without ``#``. Raises CodeButlerError if the bot sees none."""
    name = wanted.removeprefix("#")
    for channel in channels:
        if name in (channel.name, channel.id):
            return channel
    raise _unknown(wanted)


def choose(channels: Sequence[ChannelInfo], proposal: str) -> tuple[str, bool]:
    """Ask for a channel: (its ID, False) or (the name of a new one, True)."""
    ordered = sorted(channels, key=lambda channel: channel.name)
    for number, channel in enumerate(ordered, 1):
        notice(f"{number:4}  #{channel.name}{'  (private)' if channel.is_private else ''}")
    while True:
        answer = ask(f"Number or name of the channel, or `{_NEW} NAME` for a new one", f"{_NEW} {proposal}")
        if answer == _NEW or answer.startswith(f"{_NEW} "):
            return answer.removeprefix(_NEW).strip() or proposal, True
        if answer.isdigit() and 1 <= int(answer) <= len(ordered):
            return ordered[int(answer) - 1].id, False
        try:
            return by_name(ordered, answer).id, False
        except CodeButlerError as error:
            notice(str(error))


def _unknown(wanted: str) -> CodeButlerError:
    return CodeButlerError(
        f"the app sees no channel {wanted}: check the name, or invite the app if it is private"
    )
