"""`codebutler repos`, `remove-repo` and `trust`: the registered repositories."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from codebutler.cli.context import home, in_force, known_repositories, reload_supervisor
from codebutler.cli.output import print_json, print_table, say
from codebutler.config.channels import CHANNEL_KEYS
from codebutler.config.registering import vouched
from codebutler.config.registry import Registry, RepoEntry, find, read_jobs, remove, replace
from codebutler.config.resolve import read_repo_config
from codebutler.config.skills import skills_digest
from codebutler.config.trust import digest
from codebutler.domain.errors import ConfigError

NAME = typer.Argument(
    help="The repository's name, see `codebutler repos`.", autocompletion=known_repositories
)


def repos(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
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
        say("No repositories yet: register one with `codebutler add-repo PATH`.")
    else:
        print_table(
            ("NAME", "CHANNEL", "STATE", "PATH"),
            [(e.name, _channel_of(e), state_of(e), e.path) for e in entries],
        )


def _channel_of(entry: RepoEntry) -> str:
    """The channel's name for people; its ID if the repository's configuration cannot be read."""
    with suppress(ConfigError):
        return in_force(entry).config.chat.place_shown or "-"
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
    say(f"Removed {name}; {entry.path}/.codebutler was left as it is.")
    reload_supervisor()


def trust(name: Annotated[str, NAME]) -> None:
    """Trust a repository's current configuration, jobs.yaml and skills, even settings that weaken protection."""
    registry = Registry(home())
    entry, guarded = vouched(find(registry.load(), name))
    jobs = read_jobs(entry)
    entry = msgspec.structs.replace(
        entry,
        jobs_digest=digest(jobs) if jobs is not None else "",
        skills_digest=skills_digest(Path(entry.path)),
    )
    registry.update(partial(replace, entry=entry))
    honoured = [key for key in guarded if key not in CHANNEL_KEYS]
    files = [
        "config",
        *(["jobs.yaml"] if jobs is not None else []),
        *(["skills"] if entry.skills_digest else []),
    ]
    named = " and ".join(f"the {each}" for each in files)
    say(f"Trusted {named} of {name}" + (f"; it sets {', '.join(honoured)}." if honoured else "."))
    reload_supervisor()
