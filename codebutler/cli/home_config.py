"""Changing the home's config file from the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from codebutler.cli.output import notice
from codebutler.cli.repo_files import encode
from codebutler.cli.surroundings import environment
from codebutler.config.load import check_layer, parse_layer
from codebutler.config.paths import CONFIG_NAME, Home
from codebutler.config.resolve import resolve_global

Layer = dict[str, Any]
BOT_TOKEN, APP_TOKEN, ALLOWED_USERS = "slack.botToken", "slack.appToken", "slack.allowedUsers"


def change(where: Home, edit: Callable[[Layer], None], source: str) -> None:
    """Have ``edit`` change the file's content, and write it.

    Raises ConfigError, naming ``source``, if the result is not valid.
    """
    with where.open() as directory:
        data = directory.read(CONFIG_NAME)
        layer = parse_layer(data, str(where.config)) if data is not None else {}
        edit(layer)
        check_layer(layer, source)
        directory.write(CONFIG_NAME, encode(layer))


def allow(layer: Layer, users: Iterable[str]) -> None:
    """Add to those who may use the agents."""
    slack = layer.setdefault("slack", {})
    slack["allowedUsers"] = [*dict.fromkeys([*slack.get("allowedUsers", []), *users])]


def deny(layer: Layer, users: Iterable[str]) -> None:
    """Take out of those who may use the agents."""
    slack = layer.setdefault("slack", {})
    gone = set(users)
    slack["allowedUsers"] = [user for user in slack.get("allowedUsers", []) if user not in gone]


def warn_of_overrides(where: Home, keys: Iterable[str]) -> None:
    """Tell of each key whose value comes from somewhere else than the file."""
    provenance = resolve_global(where, environment()).provenance
    for key in keys:
        if (source := provenance[key]) != str(where.config):
            notice(f"warning: {source} overrides {key} of the file")
