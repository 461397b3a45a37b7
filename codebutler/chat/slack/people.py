"""What the command line asks Slack: who a person is, by name, e-mail address or user ID; and the checks of `codebutler
doctor` (tokens, scopes, the clock, the repositories' channels)."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterable

from codebutler.chat.people import Person, named
from codebutler.chat.slack.api import SlackApi
from codebutler.chat.slack.app import BOT_SCOPES, NAMES_SCOPE, TokenFacts, inspect_token
from codebutler.config.chats import USER_ID, SlackSection, section_of
from codebutler.domain.clock import Clock
from codebutler.domain.errors import ChatError, CodeButlerError, ConfigError
from codebutler.domain.refs import ConversationRef, PersonRef
from codebutler.intake.repos import RepoTable
from codebutler.protocol.messages import Finding, fail, ok, warn

NOBODY = {"user_not_found", "users_not_found", "user_not_visible"}
INSTALL_AGAIN = "update the app from `codebutler manifest` and install it again"


def slack_api(slack: SlackSection) -> SlackApi:
    """Slack's API with the bot's token; enter it to use it. Raises ConfigError if there is no token yet."""
    if not slack.bot_token:
        raise ConfigError("no bot token yet: run `codebutler setup` first")
    return SlackApi(slack.bot_token, base_url=slack.api_base_url)


Warn = Callable[[str], None]


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


# Slack's timestamps are compared with our clock only to find late messages; a minute does not matter.
SKEW_S = 60.0
RENEW = "create the app again from `codebutler manifest --link`, or add them under OAuth & Permissions and reinstall"


async def check_slack(slack: SlackSection, table: RepoTable, clock: Clock) -> AsyncIterator[Finding]:
    """All Slack checks; stops after a refused token."""
    try:
        facts = await inspect_token(slack.bot_token, slack.api_base_url, clock)
    except ChatError as error:
        yield fail("slack", "bot token", str(error))
        return
    yield ok("slack", "bot token", f"{facts.team} as {facts.user_id}")
    async with SlackApi(slack.bot_token, slack.api_base_url) as api:
        yield await _app_token(api, slack.app_token)
        yield scopes_finding(facts)
        yield clock_finding(facts.ahead_s)
        yield _people(slack)
        for served in table.served:
            if section_of(served.channel_id) is not SlackSection:
                continue
            yield await _channel(api, served.entry.name, served.channel_id)
            if served.unheard:
                yield warn("channels", served.entry.name, served.unheard)


def scopes_finding(facts: TokenFacts) -> Finding:
    """Are all scopes of the manifest granted?"""
    if facts.scopes is None:
        return warn("slack", "scopes", "Slack does not report which are granted")
    missing = sorted(set(BOT_SCOPES) - facts.scopes)
    if missing == [NAMES_SCOPE]:
        return warn("slack", "scopes", f"missing {NAMES_SCOPE}, so people are shown by their IDs: {RENEW}")
    if missing:
        return fail("slack", "scopes", f"missing {', '.join(missing)}: {RENEW}")
    return ok("slack", "scopes", f"all {len(BOT_SCOPES)} granted")


def clock_finding(ahead_s: float | None) -> Finding:
    """Is this machine's clock right?"""
    if ahead_s is None:
        return ok("slack", "clock", "Slack's answer has no date to compare with")
    if abs(ahead_s) < SKEW_S:
        return ok("slack", "clock", f"within {max(1.0, abs(ahead_s)):.0f} s of Slack's")
    way = "ahead of" if ahead_s > 0 else "behind"
    return warn(
        "slack",
        "clock",
        f"{abs(ahead_s):.0f} s {way} Slack's: messages may be marked late by mistake; turn on time "
        "synchronisation (`timedatectl set-ntp true`)",
    )


async def _app_token(api: SlackApi, token: str) -> Finding:
    try:
        await api.open_connection(token)
    except ChatError as error:
        return fail("slack", "app token", str(error))
    return ok("slack", "app token", "Socket Mode connections are granted")


def _people(slack: SlackSection) -> Finding:
    if not slack.allowed_users:
        advice = "nobody may use it: run `codebutler setup --allow-user U…` with your Slack user ID"
        return fail("slack", "allowed users", advice)
    return ok("slack", "allowed users", f"{len(slack.allowed_users)} in the global configuration")


async def _channel(api: SlackApi, name: str, channel_id: ConversationRef) -> Finding:
    try:
        channel = await api.channel_info(channel_id)
    except ChatError as error:
        told = f"the app cannot see {channel_id} ({error.code}): invite it there, or run `codebutler add-repo` again"
        return fail(
            "channels", name, told if error.code in ("channel_not_found", "missing_scope") else str(error)
        )
    if channel.is_archived:
        return fail(
            "channels", name, f"#{channel.name} is archived: unarchive it, or run `codebutler add-repo` again"
        )
    if not channel.is_member:
        return fail("channels", name, f"the app is not in #{channel.name}: write `/invite @CodeButler` there")
    return ok("channels", name, f"#{channel.name} ({channel_id})")
