"""Finding people in Slack by what somebody types: a name, an e-mail address or a user ID."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from codebutler.chat.people import Person
from codebutler.cli.output import notice
from codebutler.config.schema import USER_ID
from codebutler.domain.errors import ChatError, CodeButlerError

if TYPE_CHECKING:
    from codebutler.chat.slack.api import SlackApi

MAX_NAMED = 5
NOBODY = {"user_not_found", "users_not_found", "user_not_visible"}
NOBODY_ALLOWED = (
    "Nobody is allowed yet: run `codebutler allow USER` with a Slack name, e-mail address or user ID."
)
INSTALL_AGAIN = "update the app from `codebutler manifest` and install it again"


def wanted_in(text: str) -> list[str]:
    """The people named in a line: separated by commas or semicolons, or only by blanks where no name has two words."""
    separator = r"[,;]" if re.search(r"[,;]", text) else r"\s+(?=[@<]|[UW][A-Z0-9]{6,}|\S+@\S)"
    return [word for part in re.split(separator, text) if (word := part.strip())]


async def find(api: SlackApi, wanted: str) -> Person:
    """The one person who is meant. Raises CodeButlerError saying why there is none, ChatError."""
    name = wanted.strip().removeprefix("<@").removesuffix(">").removeprefix("@")
    try:
        person = await _find(api, name)
    except ChatError as error:
        if error.code in NOBODY:
            raise CodeButlerError(
                f"Slack knows no user {wanted}: check it, or try a name or an e-mail address"
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
        raise CodeButlerError(f"the app may not look up people: pass a user ID, or {INSTALL_AGAIN}")
    notice(f"warning: {name} was not checked, the app may not look up people: {INSTALL_AGAIN}")
    return Person(id=name, names=())
