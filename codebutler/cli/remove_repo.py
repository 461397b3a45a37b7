"""``codebutler remove-repo``."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from codebutler.cli.output import say
from codebutler.cli.reload import reload_supervisor
from codebutler.cli.surroundings import home
from codebutler.cli.which import known_repositories
from codebutler.config.registry import Registry, find, remove


def run(
    name: Annotated[
        str,
        typer.Argument(
            help="The repository's name, see `codebutler repos`.", autocompletion=known_repositories
        ),
    ],
) -> None:
    """Stop serving a repository. Its files, its history and its channel stay as they are."""
    registry = Registry(home())
    entry = find(registry.load(), name)
    registry.update(partial(remove, name=name))
    say(f"Removed {name}; {entry.path}/.codebutler was left as it is.")
    reload_supervisor()
