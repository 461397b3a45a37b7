"""What the commands do in ``<repo>/.codebutler``: make it, write its config, bring old files up to date."""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from codebutler.cli.output import notice
from codebutler.config.files import PrivateDir
from codebutler.config.legacy import is_legacy, migrate_config
from codebutler.config.load import check_layer, parse_object
from codebutler.config.paths import CONFIG_NAME, RepoPaths, make_private

GITIGNORE = ".gitignore"
IGNORE_ALL = b"*\n"


@dataclass(frozen=True)
class Step:
    """Something that was brought up to date (or, when only checking, would be)."""

    file: str
    done: str
    backup: str = ""
    notes: tuple[str, ...] = ()


def prepare(paths: RepoPaths) -> PrivateDir:
    """The repository's private directory, made if absent: mode 0700, ignored by git. Enter it to use it.

    Raises ConfigError if a link or a file is in its place.
    """
    with paths.open(create=True) as directory:
        make_private(paths.root)
        if directory.read(GITIGNORE) != IGNORE_ALL:
            directory.write(GITIGNORE, IGNORE_ALL)
    return paths.open()


def current_layer(paths: RepoPaths) -> dict[str, Any]:
    """The repository's own config as it will be once what is old is brought up to date; nothing is written.

    Raises CodeButlerError for whatever could not be used or brought up to date.
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


def encode(layer: dict[str, Any]) -> bytes:
    """A config file's content, for people to read and edit."""
    return msgspec.json.format(msgspec.json.encode(layer), indent=2) + b"\n"


def migrate_config_file(directory: PrivateDir, *, check: bool) -> Step | None:
    """Rewrite a WhatsApp-era config.json, a backup beside it first; None if there is nothing to do.

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
    directory.write(CONFIG_NAME, encode(migrated.values))
    return Step(str(file), "rewritten", str(directory.path / backup), migrated.notes)


def migrate_store_file(path: Path, *, check: bool) -> Step | None:
    """Bring a store up to date, a backup beside it first; None if there is nothing to do.

    Raises StoreError (StoreTooNewError) if it cannot be used.
    """
    if not path.exists():
        return None
    # By name: the parent's packages do not know the worker's, and Alembic is loaded only here.
    report = importlib.import_module("codebutler_worker.store.opening").migrate_store(path, check=check)
    if not report.needed:
        return None
    kept = tuple(f"{count} {table} kept" for table, count in report.rows.items())
    done = (
        f"{'would be migrated' if check else 'migrated'} from {report.from_revision} to {report.to_revision}"
    )
    return Step(str(path), done, str(report.backup or ""), kept)


def report(step: Step | None) -> None:
    """Tell the user, on stderr, what was done."""
    if step is None:
        return
    notice(f"{step.file}: {step.done}" + (f", backup: {step.backup}" if step.backup else ""))
    for note in step.notes:
        notice(f"  {note}")
