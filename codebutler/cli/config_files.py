"""Creates, changes and migrates config files in the home and in ``<repo>/.codebutler``, and migrates stores."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from codebutler.cli.context import home
from codebutler.cli.output import notice, warn
from codebutler.config.channels import channel_in
from codebutler.config.chats import PEOPLE, ChatSection
from codebutler.config.legacy import is_legacy, migrate_config
from codebutler.config.load import check_layer, parse_layer, parse_object
from codebutler.config.merge import value_at
from codebutler.config.paths import CONFIG_NAME, RepoPaths
from codebutler.config.registering import GITIGNORE, encode_config, prepare_directory
from codebutler.config.registry import Registry, find, replace
from codebutler.config.resolve import Resolved
from codebutler.config.trust import digest
from codebutler.domain.refs import PersonRef
from codebutler.platform.files import PrivateDir

Layer = dict[str, Any]
Edit = Callable[[Layer], Layer]


def change(edit: Edit, source: str, repo: str = "") -> Layer:
    """Write the edited file of the home, or of the repository of that name, and return its new content.

    Raises ConfigError, naming ``source``, if the result is not valid: then nothing is written.
    """
    home_dir = home().ensure()
    if repo:
        return _change_repo(Registry(home_dir), repo, edit, source)
    with home_dir.open() as directory:
        return _rewrite(directory, edit, source)[1]


def _change_repo(registry: Registry, name: str, edit: Edit, source: str) -> Layer:
    """A trusted file stays trusted: the owner changes it."""
    entry = find(registry.load(), name)
    with prepare_directory(RepoPaths(Path(entry.path))) as directory:
        before, layer = _rewrite(directory, edit, source)
    if before is not None and digest(before) != entry.digest:
        warn(f"its file was not trusted before: read it, then run `codebutler trust {name}`")
        return layer
    # The digest of what we wrote, not of the file as it is by now: an agent may write, too.
    channel = channel_in(layer) or entry.channel_id
    trusted = msgspec.structs.replace(entry, digest=digest(encode_config(layer)), channel_id=channel)
    registry.update(partial(replace, entry=trusted))
    return layer


def allow(layer: Layer, chat: type[ChatSection], ids: Iterable[PersonRef]) -> Layer:
    """Add to the people who may use the agents in a chat."""
    users = [*_users(layer, chat), *map(chat.file_value, ids)]
    return _with_users(layer, chat, list(dict.fromkeys(users)))


def deny(layer: Layer, chat: type[ChatSection], ids: Iterable[PersonRef]) -> Layer:
    """Remove from the people who may use the agents in a chat."""
    removed = set(map(chat.file_value, ids))
    return _with_users(layer, chat, [user for user in _users(layer, chat) if user not in removed])


def warn_of_overrides(resolved: Resolved, keys: Iterable[str]) -> None:
    """Warn about each key whose value in the file is overridden by the environment."""
    for key in keys:
        source = resolved.provenance.get(key, "")
        if source.startswith("environment") or source == str(home().env_file):
            warn(f"{source} overrides {key} of the file")


def _users(layer: Layer, chat: type[ChatSection]) -> list[Any]:
    return list(value_at(layer, chat.path(PEOPLE)) or ())


def _with_users(layer: Layer, chat: type[ChatSection], users: list[Any]) -> Layer:
    section, key = chat.path(PEOPLE)
    return {**layer, section: {**layer.get(section, {}), key: users}}


def _rewrite(directory: PrivateDir, edit: Edit, source: str) -> tuple[bytes | None, Layer]:
    """The file's old content, None if it was missing, and its new one."""
    before = directory.read(CONFIG_NAME)
    layer = edit(parse_layer(before, str(directory.path / CONFIG_NAME)) if before is not None else {})
    check_layer(layer, source)
    directory.write(CONFIG_NAME, encode_config(layer))
    return before, layer


class Step(Struct, frozen=True):
    """Something that was migrated (or, for a check, would be)."""

    file: str
    done: str
    backup: str = ""
    notes: tuple[str, ...] = ()


def current_layer(paths: RepoPaths) -> dict[str, Any]:
    """The repository's own config as it will be once old files are migrated; writes nothing.

    Raises CodeButlerError for anything that could not be used or migrated.
    """
    layer: dict[str, Any] = {}
    if os.path.lexists(paths.root):
        with paths.open() as directory:
            directory.read(GITIGNORE)
            data = directory.read(CONFIG_NAME)
        if data is not None:
            values = parse_object(data, str(paths.config))
            layer = migrate_config(values).values if is_legacy(values) else values
            check_layer(layer, str(paths.config))
    migrate_store_file(paths.store, check=True)
    return layer


def migrate_config_file(directory: PrivateDir, *, check: bool) -> Step | None:
    """Migrate a WhatsApp-era config.json, after a backup beside it; None if there is nothing to do.

    Raises ConfigError if the file is malformed.
    """
    file = directory.path / CONFIG_NAME
    data = directory.read(CONFIG_NAME)
    if data is None:
        return None
    values = parse_object(data, str(file))
    if not is_legacy(values):
        return None
    migrated = migrate_config(values)
    check_layer(migrated.values, str(file))
    if check:
        return Step(str(file), "would be rewritten", notes=migrated.notes)
    backup = f"{CONFIG_NAME}.{datetime.now(UTC):%Y%m%dT%H%M%SZ}.bak"
    directory.write(backup, data)
    directory.write(CONFIG_NAME, encode_config(migrated.values))
    return Step(str(file), "rewritten", str(directory.path / backup), migrated.notes)


def migrate_store_file(path: Path, *, check: bool) -> Step | None:
    """Migrate a store, after a backup beside it; None if there is nothing to do.

    Raises StoreError (StoreTooNewError) if it cannot be used.
    """
    if not path.exists():
        return None
    # By name: the parent's packages do not import the worker's, and Alembic is loaded only here.
    report = importlib.import_module("codebutler_worker.store.opening").migrate_store(path, check=check)
    if not report.needed:
        return None
    notes = tuple(f"{count} {table} kept" for table, count in report.rows.items())
    done = (
        f"{'would be migrated' if check else 'migrated'} from {report.from_revision} to {report.to_revision}"
    )
    return Step(str(path), done, str(report.backup or ""), notes)


def print_step(step: Step | None, print_to: Callable[[str], None] = notice) -> None:
    """Tell the user what was done."""
    if step is None:
        return
    print_to(f"{step.file}: {step.done}" + (f", backup: {step.backup}" if step.backup else ""))
    for note in step.notes:
        print_to(f"  {note}")
