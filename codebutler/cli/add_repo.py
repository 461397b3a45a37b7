"""``codebutler add-repo``: from a git repository to one that answers in its channel."""

from __future__ import annotations

import asyncio
import dataclasses
import os
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from msgspec.structs import replace

from codebutler.cli.config_files import (
    current_layer,
    encode,
    migrate_config_file,
    migrate_store_file,
    prepare,
    report,
)
from codebutler.cli.context import environment, home, in_force, reload_supervisor
from codebutler.cli.output import notice, say, warn
from codebutler.cli.repositories import vouched
from codebutler.cli.slack import ChannelOptions, channel_for
from codebutler.cli.telegram import RepoPlace, look_up
from codebutler.config.channels import CHANNEL_KEYS, SLACK_CHANNEL, TELEGRAM_CHAT, name_channel, served_chats
from codebutler.config.git_repo import ROOTS_OWN, Owner, is_tracked, repo_root
from codebutler.config.load import check_layer, parse_layer
from codebutler.config.merge import at, put
from codebutler.config.paths import CONFIG_NAME, Home, RepoPaths
from codebutler.config.registry import JOBS_NAME, Provenance, Registry, RepoEntry, add, name_for, read_jobs
from codebutler.config.schema import AgentName
from codebutler.config.skills import find_skills
from codebutler.domain.errors import ConfigError
from codebutler.operations.doctor import programs_path
from codebutler.platform.lookup import CLAUDE_CODE, KIMI_CODE
from codebutler.platform.lookup import look_up as program_at


def run(  # noqa: PLR0913 - an argument for each option
    path: Annotated[Path, typer.Argument(help="The repository; this directory if left out.")] = Path(),
    channel: Annotated[str, typer.Option(help="Its channel: an ID (C…) or a name.")] = "",
    telegram: Annotated[
        str,
        typer.Option(metavar="CHAT", help="Its group in Telegram: a number (-100…) or a public name (@…)."),
    ] = "",
    create_channel: Annotated[str, typer.Option(help="Make a channel of this name.")] = "",
    name: Annotated[str, typer.Option(help="What to call it; the directory's name if left out.")] = "",
    invite: Annotated[
        list[str] | None,
        typer.Option(
            metavar="USER",
            help="Whom to invite to the new channel: a name, e-mail or user ID, or `none`; may be repeated. "
            "All allowed users if left out.",
        ),
    ] = None,
    agent: Annotated[AgentName | None, typer.Option(help="Who answers plain messages.")] = None,
) -> None:
    """Give a repository a channel, register it, and trust its config as it is now."""
    # Nothing is changed before everything that may be refused has been looked at; Slack's own refusal comes first.
    _refuse_exclusive(telegram, channel, create_channel, invite)
    where = home()
    registry = Registry(where)
    root = repo_root(path.expanduser())
    _refuse_home_within(root, where)
    _refuse_foreign_store(root)
    entry = RepoEntry(name=name or name_for(root), path=str(root))
    add(registry.load(), entry)  # refuse a duplicate before anything is done
    _refuse_roots_own(root)
    options = ChannelOptions(channel, create_channel, entry.name, invite)
    chosen = _chosen(registry, entry, _looked_at(root, where, entry), telegram, options)
    entry = RepoEntry(name=entry.name, path=entry.path, channel_id=chosen.id)
    where.ensure()
    _write(root, _prepared_layer(root), chosen, agent)
    trusted, guarded = vouched(entry)
    foreign = _came_with_the_repository(root, guarded)
    registry.update(partial(add, entry=entry if foreign else trusted))
    say(f"Registered {entry.name}: {chosen.name} ({chosen.id}) for {root}.")
    if chosen.advice:
        warn(chosen.advice)
    if foreign:
        warn(
            f"git tracks its .codebutler/config.json, which sets {', '.join(foreign)}: ignored; "
            f"read it, then run `codebutler trust {entry.name}`"
        )
    _warn_of_foreign_jobs(entry, registry)
    _warn_of_skills(entry)
    _warn_without_agent(entry)
    if not reload_supervisor():
        notice("Next: `codebutler supervise`.")


def _refuse_exclusive(telegram: str, channel: str, create_channel: str, invite: list[str] | None) -> None:
    if telegram and (channel or create_channel or invite):
        raise typer.BadParameter("--telegram excludes --channel, --create-channel and --invite")
    if channel and create_channel:
        raise typer.BadParameter("--channel and --create-channel exclude each other")
    if invite and channel:
        raise typer.BadParameter("--invite is for a channel that is made: pass --create-channel too")


def _chosen(
    registry: Registry, entry: RepoEntry, present: dict[str, Any], telegram: str, options: ChannelOptions
) -> RepoPlace:
    """The channel that is asked for by options; else the one it had before; else the one somebody chooses in Slack."""
    config = in_force().config
    is_given = options.wanted or options.new

    def check(channel_id: str) -> None:
        """Refuse one that another repository has."""
        add(registry.load(), replace(entry, channel_id=channel_id))

    if chat := telegram or ("" if is_given else str(at(present, TELEGRAM_CHAT) or "")):
        place = asyncio.run(look_up(config.telegram, chat))
        check(place.id)
        return place
    if served_chats(config) == ("Telegram",):
        raise typer.BadParameter("pass --telegram CHAT, the number of its group (-100…)")
    if not is_given:
        options = dataclasses.replace(options, wanted=str(at(present, SLACK_CHANNEL) or ""))
    found = asyncio.run(channel_for(config.slack, options, check))
    return RepoPlace(found.id, f"#{found.name}")


def _warn_of_foreign_jobs(entry: RepoEntry, registry: Registry) -> None:
    data = read_jobs(entry)
    if data is not None and (why := Provenance(registry).objection(entry, data)):
        warn(f".codebutler/{JOBS_NAME} {why}; until then none of its jobs runs")


def _warn_of_skills(entry: RepoEntry) -> None:
    if names := find_skills(None, Path(entry.path)).untrusted:
        warn(
            f"its skills ({', '.join(names)}) are not used yet: read them, then run "
            f"`codebutler trust {entry.name}`"
        )


def _warn_without_agent(entry: RepoEntry) -> None:
    """Who registers a repository learns now, not at the first message, that nobody would answer in it."""
    where, env = home(), environment()
    config = in_force(entry).config
    agents = {"claude": (CLAUDE_CODE, config.claude.binary), "kimi": (KIMI_CODE, config.kimi.binary)}
    if config.agent.default not in agents:
        return
    agent, binary = agents[config.agent.default]
    if program_at(binary, asyncio.run(programs_path(where, env))) is None:
        warn(str(agent.missing(binary, Path.home())))


def _refuse_roots_own(root: Path) -> None:
    """Nothing would ever start there: who registers it learns that now, not at the first message."""
    if os.geteuid() == 0 and Owner.at(root).is_root:
        raise ConfigError(ROOTS_OWN.format(repo=root))


def _refuse_home_within(root: Path, where: Home) -> None:
    """An agent may write in its repository; the tokens and the registry must not be there."""
    if where.root.resolve().is_relative_to(root):
        raise ConfigError(
            f"{where.root} lies within {root}, where agents may write: "
            "choose another CODEBUTLER_HOME or another repository"
        )


def _refuse_foreign_store(root: Path) -> None:
    """A store holds turns to run and words to say: one that came with the repository is nobody's wish here."""
    if is_tracked(root, ".codebutler/store.db*"):
        raise ConfigError(
            f"git tracks a store.db in {root}/.codebutler, so it came with the repository: take it out with "
            "`git rm --cached '.codebutler/store.db*'`, and delete it unless it is your own"
        )


def _looked_at(root: Path, where: Home, entry: RepoEntry) -> dict[str, Any]:
    """The repository's own config. Raises CodeButlerError for whatever in its private directory, or in the home, would
    stop us later."""
    paths = RepoPaths(root)
    layer = current_layer(paths)
    read_jobs(entry)
    for directory in (paths.root, where.root):
        there = next(each for each in (directory, *directory.parents) if os.path.lexists(each))
        if not os.access(there, os.W_OK | os.X_OK):
            raise ConfigError(
                f"{there} cannot be written: check its permissions, and that its disk is not read-only"
            )
    return layer


def _prepared_layer(root: Path) -> dict[str, Any]:
    """The repository's own config after what is old in its private directory was brought up to date."""
    paths = RepoPaths(root)
    with prepare(paths) as directory:
        report(migrate_config_file(directory, check=False))
        report(migrate_store_file(paths.store, check=False))
        data = directory.read(CONFIG_NAME)
    return parse_layer(data, str(paths.config)) if data is not None else {}


def _write(root: Path, layer: dict[str, Any], channel: RepoPlace, agent: AgentName | None) -> None:
    name_channel(layer, channel.id, channel.name.removeprefix("#"))
    if agent is not None:
        put(layer, ("agent", "default"), agent)
    paths = RepoPaths(root)
    check_layer(layer, str(paths.config))
    with paths.open() as directory:
        directory.write(CONFIG_NAME, encode(layer))


def _came_with_the_repository(root: Path, guarded: tuple[str, ...]) -> tuple[str, ...]:
    """The guarded keys nobody here has set: those of a config file that git tracks."""
    keys = tuple(key for key in guarded if key not in CHANNEL_KEYS)
    return keys if keys and is_tracked(root, f".codebutler/{CONFIG_NAME}") else ()
