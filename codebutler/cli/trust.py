"""``codebutler trust``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from codebutler.cli.output import say
from codebutler.cli.reload import reload_supervisor
from codebutler.cli.surroundings import home
from codebutler.cli.which import known_repositories
from codebutler.config.channels import CHANNEL_KEYS, channel_in
from codebutler.config.load import parse_layer
from codebutler.config.registry import Registry, RepoEntry, find, read_jobs, replace
from codebutler.config.resolve import read_repo_config
from codebutler.config.skills import skills_digest
from codebutler.config.trust import digest, strip_untrusted


def run(
    name: Annotated[
        str,
        typer.Argument(
            help="The repository's name, see `codebutler repos`.", autocompletion=known_repositories
        ),
    ],
) -> None:
    """Trust a repository's configuration, jobs.yaml and skills as they are now, including what loosens safety."""
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


def vouched(entry: RepoEntry) -> tuple[RepoEntry, tuple[str, ...]]:
    """(the entry with the digest and channel of its file as it is now, the guarded keys that file sets).

    Raises ConfigError if the file cannot be used.
    """
    data = read_repo_config(entry)
    if data is None:
        return msgspec.structs.replace(entry, digest=""), ()
    layer = parse_layer(data, f"{entry.path}/.codebutler/config.json")
    _, guarded = strip_untrusted(layer)
    channel = channel_in(layer) or entry.channel_id
    return msgspec.structs.replace(entry, digest=digest(data), channel_id=channel), guarded
