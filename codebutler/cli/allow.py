"""``codebutler allow`` and ``codebutler deny``: who may use the agents."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from codebutler.chat.people import Person
from codebutler.cli import config_files
from codebutler.cli.config_files import ALLOWED_USERS as KEY
from codebutler.cli.context import home, in_force, reload_supervisor
from codebutler.cli.output import notice, print_json, say, warn
from codebutler.cli.slack import NOBODY_ALLOWED, described, find_person, named, slack_api
from codebutler.cli.telegram import USERS as TELEGRAM_KEY
from codebutler.cli.telegram import user_in
from codebutler.config.channels import chat_of
from codebutler.config.paths import RepoPaths
from codebutler.config.registry import Registry
from codebutler.config.schema import USER_ID, Config, SlackSection, telegram_id
from codebutler.domain.errors import ChatError, CodeButlerError, ConfigError


def allow(
    users: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[USER]",
            help="A Slack name, e-mail address or user ID, or somebody's number in Telegram; without it, list them.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print who is allowed as JSON.")] = False,
) -> None:
    """Allow people to use the agents, or list who may."""
    home().ensure()
    numbers, others = _numbers(users or [])
    if others:
        slack = in_force().config.slack
        added = asyncio.run(_found(slack, others))
        config_files.change(partial(config_files.allow, users=[one.id for one in added]), "allow")
        _tell("Allowed", added)
    if numbers:
        config_files.change(partial(config_files.allow, users=numbers, section="telegram"), "allow")
        _tell("Allowed", _in_telegram(numbers))
    if as_json or not users:
        _list(in_force().config, as_json=as_json)


def deny(
    users: Annotated[
        list[str],
        typer.Argument(
            metavar="USER", help="A Slack name, e-mail address or user ID, or a number in Telegram."
        ),
    ],
) -> None:
    """Take people off the list of those who may use the agents."""
    home().ensure()
    config = in_force().config
    numbers, others = _numbers(users)
    if unknown := [number for number in numbers if number not in config.telegram.allowed_users]:
        raise CodeButlerError(f"{unknown[0]} is not on the list: `codebutler allow` shows it")
    in_slack = [_allowed_one(config.slack, user) for user in others]
    gone = [*in_slack, *_in_telegram(numbers)]
    if in_slack:
        config_files.change(partial(config_files.deny, users=[one.id for one in in_slack]), "deny")
    if numbers:
        config_files.change(partial(config_files.deny, users=numbers, section="telegram"), "deny")
    resolved = in_force()
    slack, telegram = resolved.config.slack.allowed_users, resolved.config.telegram.allowed_users
    left = {*slack, *map(telegram_id, telegram)}
    if still := [one for one in gone if one.id in left]:
        key = TELEGRAM_KEY if chat_of(still[0].id) == "Telegram" else KEY
        source = resolved.provenance[key]
        raise CodeButlerError(f"{named(still)} is still allowed: {source} overrides {key}, change it there")
    _tell("Denied", gone)
    _warn_of_own_lists()
    if not left:
        notice("Nobody is allowed now: nobody can use the agents.")


def _numbers(users: list[str]) -> tuple[list[int], list[str]]:
    """People of Telegram, and those of Slack."""
    numbers = [number for user in users if (number := user_in(user)) is not None]
    return numbers, [user for user in users if user_in(user) is None]


def _in_telegram(numbers: Iterable[int]) -> list[Person]:
    return [Person(id=telegram_id(number), names=()) for number in numbers]


def _allowed_one(slack: SlackSection, wanted: str) -> Person:
    """One of those who are allowed; an ID needs no Slack. Raises CodeButlerError."""
    if wanted in slack.allowed_users:
        return Person(id=wanted, names=())
    if not re.fullmatch(USER_ID, wanted):
        person = asyncio.run(_found(slack, [wanted]))[0]
        if person.id in slack.allowed_users:
            return person
        wanted = str(person)
    raise CodeButlerError(f"{wanted} is not on the list: `codebutler allow` shows it")


async def _found(slack: SlackSection, users: list[str]) -> list[Person]:
    async with slack_api(slack) as api:
        return [await find_person(api, user) for user in users]


async def _described(slack: SlackSection) -> list[Person]:
    async with slack_api(slack) as api:
        return await described(api, slack.allowed_users)


def _list(config: Config, *, as_json: bool) -> None:
    slack = config.slack
    known = [Person(id=user, names=()) for user in slack.allowed_users]
    if slack.bot_token:
        try:
            known = asyncio.run(_described(slack))
        except ChatError as error:
            warn(f"no names: {error}")
    known += _in_telegram(config.telegram.allowed_users)
    if as_json:
        print_json({"users": [{"id": one.id, "name": one.names[0] if one.names else ""} for one in known]})
        return
    for one in known:
        say(str(one))
    if not known:
        notice(NOBODY_ALLOWED)


def _tell(done: str, who: list[Person]) -> None:
    for one in who:
        say(f"{done}: {one}")
    config_files.warn_of_overrides(in_force(), [KEY, TELEGRAM_KEY])
    reload_supervisor()


def _warn_of_own_lists() -> None:
    """A repository's own list, where it is trusted, replaces the one that was changed."""
    for entry in Registry(home()).load():
        key = TELEGRAM_KEY if chat_of(entry.channel_id) == "Telegram" else KEY
        try:
            source = in_force(entry).provenance[key]
        except ConfigError:
            continue
        if source == str(RepoPaths(Path(entry.path)).config):
            warn(f"{entry.name} has a list of its own: see {key} in {source}")
