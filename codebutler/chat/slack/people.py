"""Finds people by name, e-mail address or user ID."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from codebutler.chat.people import Person, named
from codebutler.chat.slack.api import SlackApi
from codebutler.config.chats import USER_ID, SlackSection
from codebutler.domain.errors import ChatError, CodeButlerError, ConfigError
from codebutler.domain.refs import PersonRef

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
