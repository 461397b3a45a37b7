"""Changing the home's config file, or a repository's, from the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from codebutler.cli.output import notice
from codebutler.cli.repo_files import encode, prepare
from codebutler.config.channels import channel_in
from codebutler.config.load import check_layer, parse_layer
from codebutler.config.paths import CONFIG_NAME, Home, RepoPaths
from codebutler.config.registry import Registry, find, replace
from codebutler.config.resolve import Resolved
from codebutler.config.trust import digest
from codebutler.platform.files import PrivateDir

Layer = dict[str, Any]
Edit = Callable[[Layer], Layer]
BOT_TOKEN, APP_TOKEN, ALLOWED_USERS = "slack.botToken", "slack.appToken", "slack.allowedUsers"


def change(where: Home, edit: Edit, source: str) -> Layer:
    """Write the home's edited file, and return what is in it now.

    Raises ConfigError, naming ``source``, if the result is not valid: then nothing is written.
    """
    with where.open() as directory:
        return _rewrite(directory, edit, source)[1]


def change_repo(where: Home, name: str, edit: Edit, source: str) -> Layer:
    """The same with the file of the repository of that name. One that was trusted stays so: the owner changes it."""
    registry = Registry(where)
    entry = find(registry.load(), name)
    with prepare(RepoPaths(Path(entry.path))) as directory:
        before, layer = _rewrite(directory, edit, source)
    if before is not None and digest(before) != entry.digest:
        notice(f"warning: its file was not trusted before: read it, then run `codebutler trust {name}`")
        return layer
    # The digest of what we wrote, not of what is there by now: an agent may write, too.
    channel = channel_in(layer) or entry.channel_id
    trusted = msgspec.structs.replace(entry, digest=digest(encode(layer)), channel_id=channel)
    registry.update(partial(replace, entry=trusted))
    return layer


def allow(layer: Layer, users: Iterable[str | int], section: str = "slack") -> Layer:
    """Add to those who may use the agents in a chat."""
    return _with_users(layer, section, [*dict.fromkeys([*_users(layer, section), *users])])


def deny(layer: Layer, users: Iterable[str | int], section: str = "slack") -> Layer:
    """Take out of those who may use the agents in a chat."""
    gone = set(users)
    return _with_users(layer, section, [user for user in _users(layer, section) if user not in gone])


def warn_of_overrides(where: Home, resolved: Resolved, keys: Iterable[str]) -> None:
    """Tell of each key whose value in the file does not count, because the environment has another."""
    for key in keys:
        source = resolved.provenance.get(key, "")
        if source.startswith("environment") or source == str(where.env_file):
            notice(f"warning: {source} overrides {key} of the file")


def _users(layer: Layer, section: str) -> list[str | int]:
    return list(layer.get(section, {}).get("allowedUsers", []))


def _with_users(layer: Layer, section: str, users: list[str | int]) -> Layer:
    return {**layer, section: {**layer.get(section, {}), "allowedUsers": users}}


def _rewrite(directory: PrivateDir, edit: Edit, source: str) -> tuple[bytes | None, Layer]:
    """What was in the file, None if it was absent, and what is in it now."""
    before = directory.read(CONFIG_NAME)
    layer = edit(parse_layer(before, str(directory.path / CONFIG_NAME)) if before is not None else {})
    check_layer(layer, source)
    directory.write(CONFIG_NAME, encode(layer))
    return before, layer
