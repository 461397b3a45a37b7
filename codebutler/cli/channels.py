"""Finding, making and entering the channel of a repository."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from codebutler.cli import people
from codebutler.cli.output import is_interactive, notice
from codebutler.cli.prompts import ask, ask_async
from codebutler.config.schema import SlackSection
from codebutler.domain.errors import ChatError, CodeButlerError
from codebutler.text.letters import unaccented

if TYPE_CHECKING:
    from codebutler.chat.people import Person
    from codebutler.chat.slack.answers import ChannelInfo
    from codebutler.chat.slack.api import SlackApi

_ID = re.compile(r"[CG][A-Z0-9]{6,}")
_NEW, _ALL, _NOBODY = "new", "all", "none"
_TOPIC = "Coding agents for {repo}: write what to do, or !help"
_PURPOSE = (
    "CodeButler works in the repository {repo}. Every message starts a task; the answer comes in its thread."
)
# Slack: conversations.invite
_MAX_INVITED = 100
# Slack: conversations.create
_MAX_NAME_CHARS = 80
_CREATE_FAULTS = {
    "name_taken": "a channel of that name exists already: pass it with --channel, or choose another name",
    "restricted_action": "this workspace lets no app create channels: create it by hand and pass --channel",
    "missing_scope": "the app may not create channels: install it again from `codebutler manifest`",
}


@dataclass(frozen=True)
class Wish:
    """A channel to be made: its name ("" = none), the repository it is for, and whom to invite (None = the allowed)."""

    name: str
    repo: str
    invite: Sequence[str] | None = None


async def all_channels(slack: SlackSection) -> list[ChannelInfo]:
    """Every channel the bot can see. Raises ChatError."""
    from codebutler.chat.slack.api import SlackApi

    async with SlackApi(slack.bot_token, base_url=slack.api_base_url) as api:
        return await api.list_channels()


async def look_up(slack: SlackSection, wanted: str) -> ChannelInfo:
    """The channel of that ID or name, which can be joined; nothing is changed. Raises CodeButlerError saying what to
    do."""
    from codebutler.chat.slack.api import SlackApi

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
    from codebutler.chat.slack.api import SlackApi

    if not channel.is_member:
        async with SlackApi(slack.bot_token, base_url=slack.api_base_url) as api:
            await api.join_channel(channel.id)
    return channel


async def create(slack: SlackSection, wish: Wish) -> ChannelInfo:
    """Make a public channel, the bot and the people in it. Raises CodeButlerError saying what to do."""
    from codebutler.chat.slack.api import SlackApi

    async with SlackApi(slack.bot_token, base_url=slack.api_base_url) as api:
        who = await _invited(api, slack.allowed_users, wish)
        try:
            channel = await api.create_channel(channel_name(wish.name))
        except ChatError as error:
            if fault := _CREATE_FAULTS.get(error.code):
                raise CodeButlerError(f"cannot create the channel {wish.name}: {fault}") from None
            raise
        await _furnish(api, channel, wish.repo, who)
        return channel


async def _invited(api: SlackApi, allowed: Sequence[str], wish: Wish) -> list[Person]:
    """Who was named; else who is allowed, of whom somebody at a terminal chooses. Raises CodeButlerError."""
    if wish.invite is not None:
        return [await people.find(api, name) for name in wish.invite if name != _NOBODY]
    # One who is gone would have Slack refuse all of them.
    known = [person for person in await people.described(api, allowed) if not person.is_deleted]
    if len(known) < 2 or not is_interactive():
        return known
    notice(f"Who may use the agents: {', '.join(map(str, known))}")
    while True:
        answer = await ask_async("Invite whom to the channel? Names, `all` or `none`", _ALL)
        if answer == _ALL:
            return known
        try:
            return [await people.find(api, name) for name in people.wanted_in(answer) if name != _NOBODY]
        except CodeButlerError as error:
            notice(str(error))


async def _furnish(api: SlackApi, channel: ChannelInfo, repo: str, who: Sequence[Person]) -> None:
    """Say what the channel is for, and bring people in. What Slack refuses is told: the channel is there."""
    try:
        await api.describe_channel(channel.id, _TOPIC.format(repo=repo), _PURPOSE.format(repo=repo))
    except ChatError as error:
        notice(f"warning: the channel has no topic and purpose: {error}")
    for start in range(0, len(who), _MAX_INVITED):
        some = who[start : start + _MAX_INVITED]
        try:
            await api.invite(channel.id, [person.id for person in some])
        except ChatError as error:
            notice(f"warning: nobody was invited: {error}; join #{channel.name} in Slack")
        else:
            notice(f"Invited to #{channel.name}: {people.named(some)}")


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
