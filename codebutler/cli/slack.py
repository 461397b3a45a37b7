"""Slack from the command line: finding, creating and joining a repository's channel, and finding people.

People are found by a name, an e-mail address or a user ID.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import typer

from codebutler.chat.people import Person
from codebutler.cli.output import is_interactive, notice, warn
from codebutler.cli.prompts import ask_async
from codebutler.config.registry import unaccented
from codebutler.config.schema import USER_ID, SlackSection
from codebutler.domain.errors import ChatError, CodeButlerError, ConfigError

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
    "restricted_action": "this workspace does not let apps create channels: create it by hand and pass --channel",
    "missing_scope": "the app is not allowed to create channels: install it again from `codebutler manifest`",
}
MAX_NAMED = 5
NOBODY = {"user_not_found", "users_not_found", "user_not_visible"}
NOBODY_ALLOWED = (
    "Nobody is allowed yet: run `codebutler allow USER` with a Slack name, e-mail address or user ID."
)
INSTALL_AGAIN = "update the app from `codebutler manifest` and install it again"


@dataclass(frozen=True)
class ChannelOptions:
    """The channel of a repository: ``wanted`` is the ID or name of one that exists, ``new`` the name of one to make;
    neither: it is asked for. ``invite``: whom to invite to a new one (None = those who are allowed)."""

    wanted: str
    new: str
    repo: str
    invite: Sequence[str] | None = None


def slack_api(slack: SlackSection) -> SlackApi:
    """Slack's API with the bot's token; enter it to use it. Raises ConfigError if there is no token yet."""
    from codebutler.chat.slack.api import SlackApi

    if not slack.bot_token:
        raise ConfigError("no bot token yet: run `codebutler setup` first")
    return SlackApi(slack.bot_token, base_url=slack.api_base_url)


async def channel_for(
    slack: SlackSection, options: ChannelOptions, check: Callable[[str], object]
) -> ChannelInfo:
    """The channel, with the app in it. ``check`` is given the ID of one that exists before it is joined, and may raise.

    Raises CodeButlerError saying what to do.
    """
    async with slack_api(slack) as api:
        if not options.wanted and not options.new:
            options = await _asked(api, options)
        if options.new:
            return await _make(api, slack.allowed_users, options)
        channel = await _look_up(api, options.wanted)
        check(channel.id)
        if not channel.is_member:
            await api.join_channel(channel.id)
        return channel


async def _look_up(api: SlackApi, wanted: str) -> ChannelInfo:
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


async def _make(api: SlackApi, allowed: Sequence[str], options: ChannelOptions) -> ChannelInfo:
    who = await _invited(api, allowed, options.invite)
    try:
        channel = await api.create_channel(channel_name(options.new))
    except ChatError as error:
        if fault := _CREATE_FAULTS.get(error.code):
            raise CodeButlerError(f"cannot create the channel {options.new}: {fault}") from None
        raise
    await _describe_and_invite(api, channel, options.repo, who)
    return channel


async def _invited(api: SlackApi, allowed: Sequence[str], invite: Sequence[str] | None) -> list[Person]:
    """Who was named; else who is allowed, of whom somebody at a terminal chooses. Raises CodeButlerError."""
    if invite is not None:
        return [await find_person(api, name) for name in invite if name != _NOBODY]
    # One who is gone would have Slack refuse all of them.
    known = [person for person in await described(api, allowed) if not person.is_deleted]
    if len(known) < 2 or not is_interactive():
        return known
    notice(f"Who may use the agents: {', '.join(map(str, known))}")
    while True:
        answer = await ask_async("Invite whom to the channel? Names, `all` or `none`", _ALL)
        if answer == _ALL:
            return known
        try:
            return [await find_person(api, name) for name in wanted_in(answer) if name != _NOBODY]
        except CodeButlerError as error:
            notice(str(error))


async def _describe_and_invite(api: SlackApi, channel: ChannelInfo, repo: str, who: Sequence[Person]) -> None:
    """Say what the channel is for, and bring people in. What Slack refuses is told: the channel is there."""
    try:
        await api.describe_channel(channel.id, _TOPIC.format(repo=repo), _PURPOSE.format(repo=repo))
    except ChatError as error:
        warn(f"the channel has no topic and purpose: {error}")
    for start in range(0, len(who), _MAX_INVITED):
        some = who[start : start + _MAX_INVITED]
        try:
            await api.invite(channel.id, [person.id for person in some])
        except ChatError as error:
            warn(f"nobody was invited: {error}; join #{channel.name} in Slack")
        else:
            notice(f"Invited to #{channel.name}: {named(some)}")


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


async def _asked(api: SlackApi, options: ChannelOptions) -> ChannelOptions:
    """As somebody at the terminal chooses: a channel that exists, or a new one."""
    if not is_interactive():
        raise typer.BadParameter("pass --channel C… or --create-channel NAME")
    proposal = channel_name(f"codebutler-{options.repo}")
    ordered = sorted(await api.list_channels(), key=lambda channel: channel.name)
    for number, channel in enumerate(ordered, 1):
        notice(f"{number:4}  #{channel.name}{'  (private)' if channel.is_private else ''}")
    while True:
        answer = await ask_async(
            f"Number or name of the channel, or `{_NEW} NAME` for a new one", f"{_NEW} {proposal}"
        )
        if answer == _NEW or answer.startswith(f"{_NEW} "):
            return replace(options, new=answer.removeprefix(_NEW).strip() or proposal)
        try:
            is_listed = answer.isdigit() and 1 <= int(answer) <= len(ordered)
            return replace(
                options, wanted=(ordered[int(answer) - 1] if is_listed else by_name(ordered, answer)).id
            )
        except CodeButlerError as error:
            notice(str(error))


def _unknown(wanted: str) -> CodeButlerError:
    return CodeButlerError(
        f"the app cannot see a channel {wanted}: check the name, or invite the app if it is private"
    )


def wanted_in(text: str) -> list[str]:
    """The people named in a line: separated by commas or semicolons, or only by blanks where no name has two words."""
    separator = r"[,;]" if re.search(r"[,;]", text) else r"\s+(?=[@<]|[UW][A-Z0-9]{6,}|\S+@\S)"
    return [word for part in re.split(separator, text) if (word := part.strip())]


async def find_person(api: SlackApi, wanted: str) -> Person:
    """The one person who is meant. Raises CodeButlerError saying why there is none, ChatError."""
    name = wanted.strip().removeprefix("<@").removesuffix(">").removeprefix("@")
    try:
        person = await _find(api, name)
    except ChatError as error:
        if error.code in NOBODY:
            raise CodeButlerError(
                f"there is no user {wanted} in Slack: check the spelling, or try a name or an e-mail address"
            ) from None
        if error.code == "missing_scope":
            return _unchecked(name)
        raise
    if person.is_bot:
        raise CodeButlerError(f"{person} is a bot: bots cannot use the agents")
    if person.is_deleted:
        raise CodeButlerError(f"{person} is deactivated in Slack")
    return person


async def _find(api: SlackApi, name: str) -> Person:
    if re.fullmatch(USER_ID, name):
        return await api.person(name)
    if re.fullmatch(r"\S+@\S+\.\S+", name):
        return await api.person_by_email(name)
    return one_called(name, await api.list_people())


def one_called(name: str, people: Iterable[Person]) -> Person:
    """The one of that name or first name, else the only one whose name begins so.

    Anybody may call themselves as they like: a name that fits somebody else, too, is nobody's. Raises CodeButlerError
    if nobody or several are meant.
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


def named(people: Sequence[Person]) -> str:
    """Some people in one line."""
    more = len(people) - MAX_NAMED
    return ", ".join(map(str, people[:MAX_NAMED])) + (f" and {more} more" if more > 0 else "")


async def described(api: SlackApi, users: Iterable[str]) -> list[Person]:
    """What Slack knows of these IDs; where it says nothing, the ID alone."""
    found = []
    for user in users:
        try:
            found.append(await api.person(user))
        except ChatError:
            found.append(Person(id=user, names=()))
    return found


def _unchecked(name: str) -> Person:
    """An app that was installed before it asked to read names can still be given an ID."""
    if not re.fullmatch(USER_ID, name):
        raise CodeButlerError(f"the app is not allowed to look up people: pass a user ID, or {INSTALL_AGAIN}")
    warn(f"{name} was not checked, because the app is not allowed to look up people: {INSTALL_AGAIN}")
    return Person(id=name, names=())
