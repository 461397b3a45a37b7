"""``codebutler allow`` and ``codebutler deny``: who may use the agents."""

from __future__ import annotations

import asyncio
import re
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from codebutler.chat.slack.answers import Person
from codebutler.cli import config_files, people
from codebutler.cli.config_files import ALLOWED_USERS as KEY
from codebutler.cli.output import notice, print_json, say
from codebutler.cli.reload import reload_supervisor
from codebutler.cli.surroundings import environment, home
from codebutler.config.paths import Home, RepoPaths
from codebutler.config.registry import Registry
from codebutler.config.resolve import resolve_global, resolve_repo
from codebutler.config.schema import USER_ID, SlackSection
from codebutler.errors import ChatError, CodeButlerError, ConfigError


def run(
    users: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[USER]", help="A Slack name, e-mail address or user ID; without it, list them."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print who is allowed as JSON.")] = False,
) -> None:
    """Allow people to use the agents, or list who may."""
    where = home().ensure()
    slack = resolve_global(where, environment()).config.slack
    if users:
        _require_token(slack)
        added = asyncio.run(_found(slack, users))
        config_files.change(where, partial(config_files.allow, users=[one.id for one in added]), "allow")
        _tell("Allowed", added, where)
        slack = resolve_global(where, environment()).config.slack
    if as_json or not users:
        _list(slack, as_json=as_json)


def deny(
    users: Annotated[
        list[str], typer.Argument(metavar="USER", help="A Slack name, e-mail address or user ID.")
    ],
) -> None:
    """Take people off the list of those who may use the agents."""
    where = home().ensure()
    slack = resolve_global(where, environment()).config.slack
    gone = [_allowed_one(slack, user) for user in users]
    config_files.change(where, partial(config_files.deny, users=[one.id for one in gone]), "deny")
    resolved = resolve_global(where, environment())
    left = resolved.config.slack.allowed_users
    if still := [one for one in gone if one.id in left]:
        source = resolved.provenance[KEY]
        raise CodeButlerError(
            f"{people.named(still)} is still allowed: {source} overrides {KEY}, change it there"
        )
    _tell("Denied", gone, where)
    _warn_of_own_lists(where)
    if not left:
        notice("Nobody is allowed now: nobody can use the agents.")


def _allowed_one(slack: SlackSection, wanted: str) -> Person:
    """One of those who are allowed; an ID needs no Slack. Raises CodeButlerError."""
    if wanted in slack.allowed_users:
        return Person(id=wanted, names=())
    if not re.fullmatch(USER_ID, wanted):
        _require_token(slack)
        person = asyncio.run(_found(slack, [wanted]))[0]
        if person.id in slack.allowed_users:
            return person
        wanted = str(person)
    raise CodeButlerError(f"{wanted} is not on the list: `codebutler allow` shows it")


async def _found(slack: SlackSection, users: list[str]) -> list[Person]:
    from codebutler.chat.slack.api import SlackApi

    async with SlackApi(slack.bot_token, base_url=slack.api_base_url) as api:
        return [await people.find(api, user) for user in users]


async def _described(slack: SlackSection) -> list[Person]:
    from codebutler.chat.slack.api import SlackApi

    async with SlackApi(slack.bot_token, base_url=slack.api_base_url) as api:
        return await people.described(api, slack.allowed_users)


def _list(slack: SlackSection, *, as_json: bool) -> None:
    known = [Person(id=user, names=()) for user in slack.allowed_users]
    if slack.bot_token:
        try:
            known = asyncio.run(_described(slack))
        except ChatError as error:
            notice(f"warning: no names: {error}")
    if as_json:
        print_json({"users": [{"id": one.id, "name": one.names[0] if one.names else ""} for one in known]})
        return
    for one in known:
        say(str(one))
    if not known:
        notice(people.NOBODY_ALLOWED)


def _tell(done: str, who: list[Person], where: Home) -> None:
    for one in who:
        say(f"{done}: {one}")
    config_files.warn_of_overrides(where, resolve_global(where, environment()), [KEY])
    reload_supervisor()


def _warn_of_own_lists(where: Home) -> None:
    """A repository's own list, where it is trusted, replaces the one that was changed."""
    for entry in Registry(where).load():
        try:
            source = resolve_repo(where, entry, environment()).provenance[KEY]
        except ConfigError:
            continue
        if source == str(RepoPaths(Path(entry.path)).config):
            notice(f"warning: {entry.name} has a list of its own: see {KEY} in {source}")


def _require_token(slack: SlackSection) -> None:
    if not slack.bot_token:
        raise ConfigError("no bot token yet: run `codebutler setup` first")
