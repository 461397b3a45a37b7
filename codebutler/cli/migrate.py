"""``codebutler migrate``: config files of the WhatsApp era, and stores of older versions; each is backed up first."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from msgspec import Struct

from codebutler.cli.context import home, known_repositories, reload_supervisor
from codebutler.cli.output import notice, print_json, print_line
from codebutler.config.git_repo import repo_root
from codebutler.config.load import check_layer, join, known_keys, parse_object, printable_key, put
from codebutler.config.paths import CONFIG_NAME, Home, RepoPaths
from codebutler.config.registering import GITIGNORE, encode_config, prepare_directory, trust_entry
from codebutler.config.registry import Registry, RepoEntries, RepoEntry, replace
from codebutler.config.schema import Config
from codebutler.config.trust import digest
from codebutler.domain.errors import CodeButlerError, ConfigError
from codebutler.platform.files import PrivateDir

_RENAMED = {
    "maxturns": "maxTurns",
    "permissionmode": "permissionMode",
    "apikey": "apiKey",
    "baseurl": "baseUrl",
}
_SNAKE = re.compile(r"[_-]+([A-Za-z0-9])")


class MigratedConfig(Struct, frozen=True):
    """Today's content, and one line for each dropped key or one that needs attention."""

    values: dict[str, Any]
    notes: tuple[str, ...]


def is_legacy(values: dict[str, Any]) -> bool:
    """Whether this is a file of the WhatsApp era."""
    return "whatsapp" in values


def migrate_config(values: dict[str, Any]) -> MigratedConfig:
    """The sections that still apply, in camelCase; the WhatsApp group and the bot prefix do not.

    Never raises for an unknown key or value: those are dropped with a note that shows no value.
    """
    migrated: dict[str, Any] = {}
    notes = []
    for section, content in values.items():
        if section == "whatsapp":
            notes.append("whatsapp: dropped; give the repository a channel with `codebutler add-repo`")
            continue
        if section not in known_keys("") or not isinstance(content, dict):
            notes.append(f"{printable_key(section)}: dropped, because it no longer has any effect")
            continue
        for key, value in content.items():
            name = _current_key(key)
            if name in known_keys(section) and _is_valid(section, name, value):
                put(migrated, (section, name), value)
            else:
                notes.append(
                    f"{printable_key(join(section, key))}: dropped, because it no longer has any effect"
                )
    return MigratedConfig(migrated, tuple(notes))


def _current_key(key: str) -> str:
    camel = _SNAKE.sub(lambda match: match[1].upper(), key)
    camel = camel[:1].lower() + camel[1:]
    return _RENAMED.get(camel.lower(), camel)


def _is_valid(section: str, key: str, value: object) -> bool:
    try:
        msgspec.convert({section: {key: value}}, Config)
    except (msgspec.ValidationError, ConfigError):
        return False
    return True


class Step(Struct, frozen=True):
    """Something that was migrated (or, for a check, would be)."""

    file: str
    done: str
    backup: str = ""
    notes: tuple[str, ...] = ()


def migrate(
    repo: Annotated[
        str | None,
        typer.Argument(
            help="A repository's name or path; defaults to this directory.", autocompletion=known_repositories
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="The home and every registered repository.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Only print what would be done.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Migrate WhatsApp-era config and older stores; each is backed up first."""
    if repo is not None and every:
        raise typer.BadParameter("a repository and --all cannot be used together")
    home_dir = home()
    registry = Registry(home_dir)
    entries = registry.load()
    steps = migrate_home(home_dir, check=check)
    for entry in entries if every else [find_entry(entries, repo)]:
        steps += migrate_repo(registry, entry, check=check)
    if steps and not check:
        reload_supervisor()
    if as_json:
        print_json({"check": check, "steps": steps})
        return
    for step in steps:
        print_step(step, print_line)
    if not steps:
        print_line("Everything is up to date.")


def find_entry(entries: RepoEntries, repo: str | None) -> RepoEntry:
    """The registered repository of that name or path, or an unregistered one.

    Raises CodeButlerError if it is neither a name nor the path of a git repository.
    """
    for entry in entries:
        if repo == entry.name:
            return entry
    root = repo_root(Path(repo or ".").expanduser())
    return next((e for e in entries if e.path == str(root)), RepoEntry(name="", path=str(root)))


def migrate_home(home_dir: Home, *, check: bool) -> list[Step]:
    """The home's own config file; nothing if there is no home yet."""
    if not home_dir.root.is_dir():
        return []
    with home_dir.open() as directory:
        step = migrate_config_file(directory, check=check)
    return [step] if step else []


def migrate_repo(registry: Registry, entry: RepoEntry, *, check: bool) -> list[Step]:
    """A repository's config and store. A registered one's rewritten config is trusted if the old one was."""
    paths = RepoPaths(Path(entry.path))
    if not paths.repo.is_dir():
        raise CodeButlerError(f"{entry.name}: {paths.repo} no longer exists")
    if not paths.root.exists():
        return []
    with prepare_directory(paths) if not check else paths.open() as directory:
        was_trusted = digest(directory.read(CONFIG_NAME) or b"") == entry.digest
        config = migrate_config_file(directory, check=check)
        store = migrate_store_file(paths.store, check=check)
    if config and was_trusted and not check:
        registry.update(partial(replace, entry=trust_entry(entry)[0]))
    return [step for step in (config, store) if step]


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
