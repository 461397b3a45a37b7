"""`codebutler repos`, `add-repo`, `remove-repo` and `trust`: the registered repositories."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from msgspec.structs import replace

from codebutler.chat.platform import Given, PlaceWish, Platform, RepoPlace, platform, platforms
from codebutler.cli.command import options_by_platform, reporting_bad_options
from codebutler.cli.context import effective_config, environment, home, known_repositories, reload_supervisor
from codebutler.cli.migrate import current_layer, migrate_config_file, migrate_store_file, print_step
from codebutler.cli.output import is_interactive, notice, print_json, print_line, print_table, warn
from codebutler.cli.prompts import choose, prompter
from codebutler.cluster.membership import HOST_NAME, is_host
from codebutler.config.channels import CHANNEL_KEYS, channel_in, served_chats
from codebutler.config.chats import ChatName, chat_of
from codebutler.config.git_repo import repo_root
from codebutler.config.load import check_layer, parse_layer
from codebutler.config.paths import CONFIG_NAME, RepoPaths
from codebutler.config.programs import agent_fault
from codebutler.config.registering import check_repo, prepare_directory, register, trust_entry
from codebutler.config.registry import (
    JOBS_NAME,
    JobsProvenance,
    Registry,
    RepoEntry,
    add,
    find,
    host_in,
    name_for,
    read_jobs,
    remove,
)
from codebutler.config.registry import replace as replaced
from codebutler.config.resolve import read_repo_config
from codebutler.config.skills import find_skills, skills_digest
from codebutler.config.trust import digest
from codebutler.domain.errors import ConfigError
from codebutler.domain.refs import NO_CHANNEL, ConversationRef
from codebutler.operations.doctor import programs_path
from codebutler.platform.lookup import CLAUDE_CODE, KIMI_CODE, missing_rule
from codebutler.platform.lookup import look_up as program_at

NAME = typer.Argument(
    help="The repository's name, see `codebutler repos`.", autocompletion=known_repositories
)


def repos(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """List the registered repositories."""
    entries = Registry(home()).load()
    if as_json:
        print_json(
            [
                {"name": e.name, "path": e.path, "channel_id": e.channel_id, "state": state_of(e)}
                for e in entries
            ]
        )
    elif not entries:
        print_line("No repositories yet: register one with `codebutler add-repo PATH`.")
    else:
        print_table(
            ("NAME", "CHANNEL", "STATE", "PATH"),
            [(e.name, _channel_name(e), state_of(e), e.path) for e in entries],
        )


def _channel_name(entry: RepoEntry) -> str:
    """The channel's name for people; its ID if the repository's configuration cannot be read."""
    with suppress(ConfigError):
        return effective_config(entry).config.chat.place_shown or "-"
    return entry.channel_id or "-"


def state_of(entry: RepoEntry) -> str:
    """``trusted``, ``changed`` (its config is not the trusted one), ``missing`` or ``unreadable``."""
    if not Path(entry.path).is_dir():
        return "missing"
    try:
        data = read_repo_config(entry)
    except ConfigError:
        return "unreadable"
    return "trusted" if data is None or digest(data) == entry.digest else "changed"


def remove_repo(name: Annotated[str, NAME]) -> None:
    """Stop serving a repository. Its files, its history and its channel stay as they are."""
    registry = Registry(home())
    entry = find(registry.load(), name)
    registry.update(partial(remove, name=name))
    print_line(f"Removed {name}; {entry.path}/.codebutler was left as it is.")
    reload_supervisor()


def trust(name: Annotated[str, NAME]) -> None:
    """Trust a repository's current configuration, jobs.yaml and skills, even settings that weaken protection."""
    registry = Registry(home())
    entry, guarded = trust_entry(find(registry.load(), name))
    jobs = read_jobs(entry)
    entry = msgspec.structs.replace(
        entry,
        jobs_digest=digest(jobs) if jobs is not None else "",
        skills_digest=skills_digest(Path(entry.path)),
    )
    registry.update(partial(replaced, entry=entry))
    honoured = [key for key in guarded if key not in CHANNEL_KEYS]
    files = [
        "config",
        *(["jobs.yaml"] if jobs is not None else []),
        *(["skills"] if entry.skills_digest else []),
    ]
    file_names = " and ".join(f"the {each}" for each in files)
    print_line(f"Trusted {file_names} of {name}" + (f"; it sets {', '.join(honoured)}." if honoured else "."))
    reload_supervisor()


def add_repo(
    path: Annotated[
        Path, typer.Argument(help="The repository; defaults to this directory. At a gateway: HOST:NAME.")
    ] = Path(),
    name: Annotated[str, typer.Option(help="Its name; defaults to the directory's.")] = "",
    agent: Annotated[str, typer.Option(help="The agent that answers plain messages.")] = "",
    **chats: object,
) -> None:
    """Register a repository, give it a channel, and trust its current configuration."""
    # Check everything that may be refused before changing anything; the chat's own refusal comes last.
    given = options_by_platform({each: each.place_options for each in platforms()}, chats)
    _refuse_several(given)
    home_dir = home()
    registry = Registry(home_dir)
    if host_in(str(path)):
        _add_hosted(registry, str(path), name, given)
        return
    root = repo_root(path.expanduser())
    entry = RepoEntry(name=name or name_for(root), path=str(root))
    check_repo(registry, home_dir, entry)
    if is_host(home_dir):
        _add_on_host(registry, entry, agent)
        return
    layer = current_layer(RepoPaths(root))
    _refuse_unknown_agent(agent, layer)
    place = _choose_place(registry, entry, channel_in(layer), given)
    entry = RepoEntry(name=entry.name, path=entry.path, channel_id=place.id)
    home_dir.ensure()
    registered, ignored = register(registry, entry, _migrated_layer(root), place.name, agent)
    print_line(f"Registered {entry.name}: {place.name} ({place.id}) for {root}.")
    if place.advice:
        warn(place.advice)
    _print_warnings(registered, ignored, registry)
    if not reload_supervisor():
        notice("Next: `codebutler supervise`.")


def _add_hosted(registry: Registry, path: str, name: str, given: Mapping[Platform, Given]) -> None:
    """At a gateway: register a repository of a host, which has to register it, too."""
    host, _, repo_name = path.partition(":")
    entry = RepoEntry(name=name or repo_name, path=f"{host}:{name or repo_name}")
    if not HOST_NAME.fullmatch(host):
        raise typer.BadParameter(f"{host} is not a valid host name: use lower-case letters, digits and '-'")
    add(registry.load(), entry)
    place = _choose_place(registry, entry, NO_CHANNEL, given)
    home().ensure()
    registry.update(partial(add, entry=replace(entry, channel_id=place.id)))
    print_line(f"Registered {entry.name}: {place.name} ({place.id}) for the host {host}.")
    if place.advice:
        warn(place.advice)
    if not reload_supervisor():
        notice("Next: `codebutler gateway`.")
    notice(f"On {host}: `codebutler add-repo PATH --name {entry.name}`, then `codebutler host`.")


def _add_on_host(registry: Registry, entry: RepoEntry, agent: str) -> None:
    """On a host: its gateway has the channel."""
    root = Path(entry.path)
    _refuse_unknown_agent(agent, current_layer(RepoPaths(root)))
    registered, ignored = register(registry, entry, _migrated_layer(root), "", agent)
    print_line(f"Registered {entry.name} for {root}; the gateway manages its channel.")
    _print_warnings(registered, ignored, registry)
    notice("Next: `codebutler host`. If it is already running, it serves the repository within 10 seconds.")


def _refuse_several(given: Mapping[Platform, Given]) -> None:
    if len(given) > 1:
        *others, last = given
        flags = [option.flag for each in others for option in each.place_options]
        mine = " and ".join(option.flag for option in last.place_options if option.key in given[last])
        raise typer.BadParameter(f"{mine} cannot be combined with {', '.join(flags[:-1])} or {flags[-1]}")


def _refuse_unknown_agent(name: str, layer: dict[str, Any]) -> None:
    """Raises CodeButlerError for an unknown agent. Agents that the repository's own file adds in `commands` count from
    now on."""
    config, own = effective_config().config, check_layer(layer, CONFIG_NAME).commands
    if name and (fault := agent_fault(replace(config, commands=(*config.commands, *own)), name)):
        raise typer.BadParameter(f"--agent: {fault}")


def _choose_place(
    registry: Registry, entry: RepoEntry, present: ConversationRef, given: Mapping[Platform, Given]
) -> RepoPlace:
    """The place given by options; else the earlier one; else the person's choice."""
    config = effective_config().config

    def check(channel_id: ConversationRef) -> None:
        """Refuse a place that another repository has."""
        add(registry.load(), replace(entry, channel_id=channel_id))

    chat = next(iter(given), None) or platform(
        chat_of(present) if present else _choose_chat(served_chats(config))
    )
    with prompter() as terminal, reporting_bad_options():
        wish = PlaceWish(
            config=config,
            given=given.get(chat, {}),
            repo=entry.name,
            present=present if present and chat_of(present) == chat.name else NO_CHANNEL,
            check=check,
            prompter=terminal,
        )
        return asyncio.run(chat.place(wish))


def _choose_chat(chats: Sequence[ChatName]) -> ChatName:
    """The chat that the person at the terminal chooses; the first one if nobody can be asked."""
    if len(chats) == 1 or not is_interactive():
        return chats[0]
    by_name = {each.lower(): each for each in chats}
    return by_name[choose(f"{', '.join(chats[:-1])} or {chats[-1]}?", chats[0].lower(), by_name)]


def _print_warnings(entry: RepoEntry, ignored: tuple[str, ...], registry: Registry) -> None:
    if ignored:
        warn(
            f"ignoring {', '.join(ignored)} in .codebutler/config.json, because git tracks that file: "
            f"read it, then run `codebutler trust {entry.name}`"
        )
    _warn_of_foreign_jobs(entry, registry)
    _warn_of_skills(entry)
    _warn_without_agent(entry)


def _warn_of_foreign_jobs(entry: RepoEntry, registry: Registry) -> None:
    data = read_jobs(entry)
    if data is not None and (why := JobsProvenance(registry).objection(entry, data)):
        warn(f".codebutler/{JOBS_NAME} {why}; until then, its jobs do not run")


def _warn_of_skills(entry: RepoEntry) -> None:
    if names := find_skills(None, Path(entry.path)).untrusted:
        warn(
            f"its skills ({', '.join(names)}) are not used yet: read them, then run "
            f"`codebutler trust {entry.name}`"
        )


def _warn_without_agent(entry: RepoEntry) -> None:
    """Warn now, not at the first message, that nobody would answer in it."""
    home_dir, env = home(), environment()
    config = effective_config(entry).config
    agents = {"claude": (CLAUDE_CODE, config.claude.binary), "kimi": (KIMI_CODE, config.kimi.binary)}
    rule = next((rule for rule in config.commands if rule.prefix == config.agent.default), None)
    known, binary = agents.get(config.agent.default, (None, rule.binary if rule else ""))
    if binary and program_at(binary, asyncio.run(programs_path(home_dir, env))) is None:
        wanted = known.missing(binary, Path.home()) if known else missing_rule(binary, Path.home())
        warn(str(wanted))


def _migrated_layer(root: Path) -> dict[str, Any]:
    """The repository's own config after old files in its private directory were migrated."""
    paths = RepoPaths(root)
    with prepare_directory(paths) as directory:
        print_step(migrate_config_file(directory, check=False))
        print_step(migrate_store_file(paths.store, check=False))
        data = directory.read(CONFIG_NAME)
    return parse_layer(data, str(paths.config)) if data is not None else {}
