"""``codebutler allow`` and ``codebutler deny``: who may use the agents."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from codebutler.chat.people import Person, named
from codebutler.chat.platform import Platform
from codebutler.chat.platforms import platforms
from codebutler.cli import config_files
from codebutler.cli.context import home, in_force, reload_supervisor
from codebutler.cli.output import notice, print_json, say, warn
from codebutler.cli.setup import nobody_allowed
from codebutler.config.chats import PEOPLE, SECTIONS, ChatSection, section_of
from codebutler.config.paths import RepoPaths
from codebutler.config.registry import Registry
from codebutler.config.schema import Config
from codebutler.domain.errors import ChatError, CodeButlerError, ConfigError

WHO = ", or ".join(each.person_words for each in SECTIONS)


def allow(
    users: Annotated[
        list[str] | None,
        typer.Argument(metavar="[USER]", help=f"{WHO[0].upper()}{WHO[1:]}; without it, list them."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print who is allowed as JSON.")] = False,
) -> None:
    """Allow people to use the agents, or list who may."""
    home().ensure()
    config = in_force().config
    for chat, wanted in _by_chat(users or []).items():
        added = asyncio.run(chat.find_people(config, wanted, warn))
        ids = [one.id for one in added]
        config_files.change(partial(config_files.allow, chat=chat.section, ids=ids), "allow")
        _tell("Allowed", added)
    if as_json or not users:
        _list(in_force().config, as_json=as_json)


def deny(
    users: Annotated[list[str], typer.Argument(metavar="USER", help=f"{WHO[0].upper()}{WHO[1:]}.")],
) -> None:
    """Remove people from the list of allowed users."""
    home().ensure()
    config = in_force().config
    gone = {
        chat: [_allowed_one(chat, config, user) for user in wanted]
        for chat, wanted in _by_chat(users).items()
    }
    for chat, people in gone.items():
        ids = [one.id for one in people]
        config_files.change(partial(config_files.deny, chat=chat.section, ids=ids), "deny")
    resolved = in_force()
    left = {each for chat in resolved.config.chats for each in chat.allowed_ids}
    everybody = [one for people in gone.values() for one in people]
    if still := [one for one in everybody if one.id in left]:
        key = _key(section_of(still[0].id))
        source = resolved.provenance[key]
        raise CodeButlerError(f"{named(still)} is still allowed: {source} overrides {key}, change it there")
    _tell("Denied", everybody)
    _warn_of_own_lists()
    if not left:
        notice("The list is now empty: nobody can use the agents.")


def _by_chat(users: list[str]) -> dict[Platform, list[str]]:
    """Which people to look for in which chat; names belong to the first chat that has names."""
    known = platforms()
    by_name = next(each for each in known if each.finds_people)
    found: dict[Platform, list[str]] = {}
    for user in users:
        chat = next((each for each in known if each.section.person_in(user)), by_name)
        found.setdefault(chat, []).append(user)
    return found


def _allowed_one(chat: Platform, config: Config, wanted: str) -> Person:
    """One of the allowed people; an ID needs no look-up. Raises CodeButlerError."""
    people, person_id = chat.section_in(config).allowed_ids, chat.section.person_in(wanted)
    if person_id in people:
        return Person(id=person_id, names=())
    if not person_id:
        person = asyncio.run(chat.find_people(config, [wanted], warn))[0]
        if person.id in people:
            return person
        wanted = str(person)
    raise CodeButlerError(f"{wanted} is not on the list: run `codebutler allow` to see it")


def _key(section: type[ChatSection]) -> str:
    return ".".join(section.path(PEOPLE))


def _known(chat: Platform, config: Config) -> list[Person]:
    try:
        return asyncio.run(chat.allowed(config))
    except ChatError as error:
        warn(f"cannot look up names: {error}")
        return [Person(id=user, names=()) for user in chat.section_in(config).allowed_ids]


def _list(config: Config, *, as_json: bool) -> None:
    known = [
        one for chat in platforms() if chat.section_in(config).allowed_ids for one in _known(chat, config)
    ]
    if as_json:
        print_json({"users": [{"id": one.id, "name": one.names[0] if one.names else ""} for one in known]})
        return
    for one in known:
        say(str(one))
    if not known:
        notice(nobody_allowed(config))


def _tell(done: str, who: list[Person]) -> None:
    for one in who:
        say(f"{done}: {one}")
    config_files.warn_of_overrides(in_force(), map(_key, SECTIONS))
    reload_supervisor()


def _warn_of_own_lists() -> None:
    """A trusted repository's own list replaces the one that was changed."""
    for entry in Registry(home()).load():
        key = _key(section_of(entry.channel_id))
        try:
            source = in_force(entry).provenance[key]
        except ConfigError:
            continue
        if source == str(RepoPaths(Path(entry.path)).config):
            warn(f"{entry.name} has its own list: see {key} in {source}")
