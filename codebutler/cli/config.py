"""``codebutler config``."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from codebutler.cli.output import notice, print_json, say
from codebutler.cli.surroundings import environment, home
from codebutler.config.mask import mask_value, masked
from codebutler.config.merge import leaves
from codebutler.config.registry import Registry, find
from codebutler.config.resolve import Resolved, resolve_global, resolve_repo


def run(
    name: Annotated[
        str | None, typer.Argument(help="A repository's name; without it, the global one.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the configuration in force, secrets masked, and where each value came from."""
    where = home()
    if name is None:
        resolved = resolve_global(where, environment())
    else:
        resolved = resolve_repo(where, find(Registry(where).load(), name), environment())
    for note in resolved.notes:
        notice(f"warning: {note}")
    if as_json:
        print_json(
            {
                "config": masked(resolved.values),
                "sources": resolved.provenance,
                "trusted": resolved.trusted,
                "notes": resolved.notes,
            }
        )
    else:
        for line in describe(resolved):
            say(line)


def describe(resolved: Resolved) -> list[str]:
    """One line per key: its value as JSON, and its source."""
    pairs = []
    for path, value in leaves(resolved.values):
        if path == ("commands",):
            pairs += [(f"commands.{rule['prefix']}", rule) for rule in value]
        else:
            pairs.append((".".join(path), value))
    shown = [(key, msgspec.json.encode(mask_value(key, value)).decode()) for key, value in pairs]
    return [f"{key} = {text}   # {resolved.provenance[key]}" for key, text in shown]
