"""`codebutler allow` and `deny`: who may use the agents."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from codebutler.chat.people import Person, named
from codebutler.chat.platform import Platform, platform, platforms
from codebutler.cli.config import Layer, change, warn_of_overrides
from codebutler.cli.context import effective_config, home, reload_supervisor
from codebutler.cli.output import notice, print_json, print_line, warn
from codebutler.config.channels import served_chats
from codebutler.config.chats import PEOPLE, SECTIONS, ChatSection, section_of
from codebutler.config.load import put, value_at
from codebutler.config.paths import RepoPaths
from codebutler.config.registry import Registry
from codebutler.config.schema import Config
from codebutler.domain.errors import ChatError, CodeButlerError, ConfigError
from codebutler.domain.refs import PersonRef

WHO = ", or ".join(each.person_words for each in SECTIONS)


def nobody_allowed(config: Config) -> str:
    """What to do if nobody may use the agents."""
    words = ", or ".join(platform(name).section.person_words for name in served_chats(config))
    return f"Nobody is allowed yet: run `codebutler allow USER` with {words}."


def allow(
    users: Annotated[
        list[str] | None,
        typer.Argument(metavar="[USER]", help=f"{WHO[0].upper()}{WHO[1:]}; without it, list them."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print who is allowed as JSON.")] = False,
) -> None:
    """Allow people to use the agents, or list who may."""
    home().ensure()
    config = effective_config().config
    for chat, names in _by_chat(users or []).items():
        added = asyncio.run(chat.find_people(config, names, warn))
        ids = [one.id for one in added]
        change(partial(allow_in, chat=chat.section, ids=ids), "allow")
        _report_change("Allowed", added)
    if as_json or not users:
        _list_allowed(effective_config().config, as_json=as_json)


def deny(
    users: Annotated[list[str], typer.Argument(metavar="USER", help=f"{WHO[0].upper()}{WHO[1:]}.")],
) -> None:
    """Remove people from the list of allowed users."""
    home().ensure()
    config = effective_config().config
    removed = {
        chat: [_find_allowed(chat, config, user) for user in names] for chat, names in _by_chat(users).items()
    }
    for chat, people in removed.items():
        ids = [one.id for one in people]
        change(partial(deny_in, chat=chat.section, ids=ids), "deny")
    resolved = effective_config()
    remaining = {each for chat in resolved.config.chats for each in chat.allowed_ids}
    everybody = [one for people in removed.values() for one in people]
    if still := [one for one in everybody if one.id in remaining]:
        key = section_of(still[0].id).people_key()
        source = resolved.provenance[key]
        raise CodeButlerError(f"{named(still)} is still allowed: {source} overrides {key}, change it there")
    _report_change("Denied", everybody)
    _warn_of_own_lists()
    if not remaining:
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


def _find_allowed(chat: Platform, config: Config, user: str) -> Person:
    """One of the allowed people; an ID needs no look-up. Raises CodeButlerError."""
    people, person_id = chat.section_in(config).allowed_ids, chat.section.person_in(user)
    if person_id in people:
        return Person(id=person_id, names=())
    if not person_id:
        person = asyncio.run(chat.find_people(config, [user], warn))[0]
        if person.id in people:
            return person
        user = str(person)
    raise CodeButlerError(f"{user} is not on the list: run `codebutler allow` to see it")


def _allowed_people(chat: Platform, config: Config) -> list[Person]:
    try:
        return asyncio.run(chat.allowed(config))
    except ChatError as error:
        warn(f"cannot look up names: {error}")
        return [Person(id=user, names=()) for user in chat.section_in(config).allowed_ids]


def _list_allowed(config: Config, *, as_json: bool) -> None:
    known = [
        one
        for chat in platforms()
        if chat.section_in(config).allowed_ids
        for one in _allowed_people(chat, config)
    ]
    if as_json:
        print_json({"users": [{"id": one.id, "name": one.names[0] if one.names else ""} for one in known]})
        return
    for one in known:
        print_line(str(one))
    if not known:
        notice(nobody_allowed(config))


def _report_change(done: str, who: list[Person]) -> None:
    for one in who:
        print_line(f"{done}: {one}")
    warn_of_overrides(effective_config(), (each.people_key() for each in SECTIONS))
    reload_supervisor()


def _warn_of_own_lists() -> None:
    """A trusted repository's own list replaces the one that was changed."""
    for entry in Registry(home()).load():
        key = section_of(entry.channel_id).people_key()
        try:
            source = effective_config(entry).provenance[key]
        except ConfigError:
            continue
        if source == str(RepoPaths(Path(entry.path)).config):
            warn(f"{entry.name} has its own list: see {key} in {source}")


def allow_in(layer: Layer, chat: type[ChatSection], ids: Iterable[PersonRef]) -> Layer:
    """Add to the people who may use the agents in a chat."""
    users = [*value_at(layer, chat.path(PEOPLE)), *map(chat.file_value, ids)]
    put(layer, chat.path(PEOPLE), list(dict.fromkeys(users)))
    return layer


def deny_in(layer: Layer, chat: type[ChatSection], ids: Iterable[PersonRef]) -> Layer:
    """Remove from the people who may use the agents in a chat."""
    removed = set(map(chat.file_value, ids))
    put(
        layer, chat.path(PEOPLE), [user for user in value_at(layer, chat.path(PEOPLE)) if user not in removed]
    )
    return layer
