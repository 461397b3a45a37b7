"""What the command line looks for in Slack: a repository's channel, found, created and joined as the person there asks;
and people, by name, e-mail address or user ID."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from codebutler.chat.people import Person, named
from codebutler.chat.platform import BadOptionError, PlaceWish, RepoPlace
from codebutler.chat.slack.answers import ChannelInfo
from codebutler.chat.slack.api import SlackApi
from codebutler.config.chats import USER_ID, SlackSection
from codebutler.config.registry import strip_accents
from codebutler.domain.errors import ChatError, CodeButlerError, ConfigError
from codebutler.domain.refs import ConversationRef, PersonRef

_ID = re.compile(r"[CG][A-Z0-9]{6,}")
_NEW, _ALL, NOBODY = "new", "all", "none"
_TOPIC = "Coding agents for {repo}: write what to do, or !help"
_PURPOSE = (
    "CodeButler works in the repository {repo}. Every message starts a task; the answer comes in its thread."
)
# Slack: conversations.invite
_MAX_INVITED = 100
# Slack: conversations.create
_MAX_NAME_CHARS = 80
_CREATE_FAULTS = {
    "name_taken": "a channel with that name already exists: pass it with --channel, or choose another name",
    "restricted_action": "this workspace does not let apps create channels: create it yourself and pass --channel",
    "missing_scope": "the app is not allowed to create channels: install it again from `codebutler manifest`",
}
NOT_FOUND = {"user_not_found", "users_not_found", "user_not_visible"}
INSTALL_AGAIN = "update the app from `codebutler manifest` and install it again"
Warn = Callable[[str], None]


class ChannelFinder:
    """Finds, creates and joins a repository's channel as requested; ``run`` is the whole process."""

    def __init__(self, api: SlackApi, wish: PlaceWish) -> None:
        self._api = api
        self._wish = wish
        self._prompter = wish.prompter
        self._given = {"channel": wish.present, **wish.given} if not wish.given.get("create") else wish.given

    async def run(self) -> ChannelInfo:
        """The channel, with the app in it. Raises CodeButlerError saying what to do."""
        wanted, new = self._given.get("channel", ""), self._given.get("create", "")
        if not wanted and not new:
            wanted, new = await self._asked()
        if new:
            return await self._make(new)
        channel = await _look_up(self._api, wanted)
        self._wish.check(channel.id)
        if not channel.is_member:
            await self._api.join_channel(channel.id)
        return channel

    async def _make(self, name: str) -> ChannelInfo:
        who = await self._invited()
        try:
            channel = await self._api.create_channel(channel_name(name))
        except ChatError as error:
            made = await self._made_before(channel_name(name)) if error.code == "name_taken" else None
            if made is None and (fault := _CREATE_FAULTS.get(error.code)):
                raise CodeButlerError(f"cannot create the channel {name}: {fault}") from None
            if made is None:
                raise
            channel = made
        await self._describe_and_invite(channel, who)
        return channel

    async def _made_before(self, name: str) -> ChannelInfo | None:
        """The channel that an interrupted attempt created; None if it is not certain that this is the one."""
        if not self._wish.made_since:
            return None
        us = (await self._api.identity()).user_id
        for channel in await self._api.list_channels():
            if channel.name == name and channel.creator == us and channel.created_s >= self._wish.made_since:
                self._wish.check(channel.id)
                return channel
        return None

    async def _people(self, wanted: Sequence[str]) -> list[Person]:
        return [await find_person(self._api, name, self._prompter.warn) for name in wanted if name != NOBODY]

    async def _invited(self) -> list[Person]:
        """The people named; otherwise those allowed, among whom somebody at a terminal chooses. Raises
        CodeButlerError."""
        if invite := self._given.get("invite"):
            return await self._people(invite)
        allowed = await described(self._api, self._wish.config.slack.allowed_users)
        # Slack refuses the whole list if one of them is deactivated.
        known = [person for person in allowed if not person.is_deleted]
        if len(known) < 2 or not self._prompter.is_interactive:
            return known
        self._prompter.tell(f"Who may use the agents: {', '.join(map(str, known))}")
        while True:
            answer = await self._prompter.ask("Invite whom to the channel? Names, `all` or `none`", _ALL)
            if answer == _ALL:
                return known
            try:
                return await self._people(wanted_in(answer))
            except CodeButlerError as error:
                self._prompter.tell(str(error))

    async def _describe_and_invite(self, channel: ChannelInfo, who: Sequence[Person]) -> None:
        """Set the channel's purpose, and invite people. If Slack refuses, that is reported: the channel exists."""
        repo = self._wish.repo
        try:
            await self._api.describe_channel(channel.id, _TOPIC.format(repo=repo), _PURPOSE.format(repo=repo))
        except ChatError as error:
            self._prompter.warn(f"could not set the channel's topic and purpose: {error}")
        for start in range(0, len(who), _MAX_INVITED):
            some = who[start : start + _MAX_INVITED]
            try:
                await self._api.invite(channel.id, [person.id for person in some])
            except ChatError as error:
                self._prompter.warn(f"could not invite anybody: {error}; join #{channel.name} in Slack")
            else:
                self._prompter.tell(f"Invited to #{channel.name}: {named(some)}")

    async def _asked(self) -> tuple[str, str]:
        """Ask at the terminal for an existing channel, or the name of a new one."""
        prompter = self._prompter
        if not prompter.is_interactive:
            raise BadOptionError("pass --channel C… or --create-channel NAME")
        proposal = channel_name(f"codebutler-{self._wish.repo}")
        ordered = sorted(await self._api.list_channels(), key=lambda channel: channel.name)
        for number, channel in enumerate(ordered, 1):
            prompter.tell(f"{number:4}  #{channel.name}{'  (private)' if channel.is_private else ''}")
        while True:
            answer = await prompter.ask(
                f"Number or name of the channel, or `{_NEW} NAME` for a new one", f"{_NEW} {proposal}"
            )
            if answer == _NEW or answer.startswith(f"{_NEW} "):
                return "", answer.removeprefix(_NEW).strip() or proposal
            try:
                is_listed = answer.isdigit() and 1 <= int(answer) <= len(ordered)
                return (ordered[int(answer) - 1] if is_listed else by_name(ordered, answer)).id, ""
            except CodeButlerError as error:
                prompter.tell(str(error))


async def place(wish: PlaceWish) -> RepoPlace:
    """A repository's channel. Raises CodeButlerError, BadOptionError."""
    if wish.given.get("channel") and wish.given.get("create"):
        raise BadOptionError("--channel and --create-channel cannot be used together")
    if wish.given.get("invite") and wish.given.get("channel"):
        raise BadOptionError("--invite needs --create-channel")
    async with slack_api(wish.config.slack) as api:
        found = await ChannelFinder(api, wish).run()
    return RepoPlace(id=found.id, name=f"#{found.name}")


async def _look_up(api: SlackApi, wanted: str) -> ChannelInfo:
    channel_id = (
        ConversationRef(wanted) if _ID.fullmatch(wanted) else by_name(await api.list_channels(), wanted).id
    )
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


def channel_name(text: str) -> str:
    """The nearest name Slack allows: lower case, digits, ``-`` and ``_``, at most 80 characters."""
    plain = strip_accents(text).lower().removeprefix("#")
    return re.sub(r"[^a-z0-9_-]+", "-", plain).strip("-")[:_MAX_NAME_CHARS] or "repo"


def by_name(channels: Sequence[ChannelInfo], wanted: str) -> ChannelInfo:
    """The channel called ``wanted``, with or without ``#``. Raises CodeButlerError if the bot sees none."""
    name = wanted.removeprefix("#")
    for channel in channels:
        if name in (channel.name, channel.id):
            return channel
    raise _unknown(wanted)


def _unknown(wanted: str) -> CodeButlerError:
    return CodeButlerError(
        f"the app cannot see a channel {wanted}: check the name, or invite the app if it is private"
    )


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
        if error.code in NOT_FOUND:
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
