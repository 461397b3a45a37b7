"""``codebutler repos``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from codebutler.cli.output import print_json, print_table, say
from codebutler.cli.surroundings import home
from codebutler.config.registry import Registry, RepoEntry
from codebutler.config.resolve import read_repo_config
from codebutler.config.trust import digest
from codebutler.domain.errors import ConfigError


def run(
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
            [(e.name, e.channel_id or "-", state_of(e), e.path) for e in entries],
        )


def state_of(entry: RepoEntry) -> str:
    """``trusted``, ``changed`` (its config is not the trusted one), ``missing`` or ``unreadable``."""
    if not Path(entry.path).is_dir():
        return "missing"
    try:
        data = read_repo_config(entry)
    except ConfigError:
        return "unreadable"
    return "trusted" if data is None or digest(data) == entry.digest else "changed"
