"""``codebutler migrate``: migrate files of the WhatsApp era, and stores of older versions."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from codebutler.cli.config_files import Step, migrate_config_file, migrate_store_file
from codebutler.cli.context import home, known_repositories, reload_supervisor
from codebutler.cli.output import print_json, say
from codebutler.config.git_repo import repo_root
from codebutler.config.paths import CONFIG_NAME, Home, RepoPaths
from codebutler.config.registering import prepare, vouched
from codebutler.config.registry import Registry, RepoEntries, RepoEntry, replace
from codebutler.config.trust import digest
from codebutler.domain.errors import CodeButlerError


def run(
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
    where = home()
    registry = Registry(where)
    entries = registry.load()
    steps = migrate_home(where, check=check)
    for entry in entries if every else [chosen(entries, repo)]:
        steps += migrate_repo(registry, entry, check=check)
    if steps and not check:
        reload_supervisor()
    if as_json:
        print_json({"check": check, "steps": steps})
        return
    for step in steps:
        say(f"{step.file}: {step.done}" + (f", backup: {step.backup}" if step.backup else ""))
        for note in step.notes:
            say(f"  {note}")
    if not steps:
        say("Everything is up to date.")


def chosen(entries: RepoEntries, repo: str | None) -> RepoEntry:
    """The registered repository of that name or path, or an unregistered one.

    Raises CodeButlerError if it is neither a name nor the path of a git repository.
    """
    for entry in entries:
        if repo == entry.name:
            return entry
    root = repo_root(Path(repo or ".").expanduser())
    return next((e for e in entries if e.path == str(root)), RepoEntry(name="", path=str(root)))


def migrate_home(where: Home, *, check: bool) -> list[Step]:
    """The home's own config file; nothing if there is no home yet."""
    if not where.root.is_dir():
        return []
    with where.open() as directory:
        step = migrate_config_file(directory, check=check)
    return [step] if step else []


def migrate_repo(registry: Registry, entry: RepoEntry, *, check: bool) -> list[Step]:
    """A repository's config and store. A registered one's rewritten config is trusted if the old one was."""
    paths = RepoPaths(Path(entry.path))
    if not paths.repo.is_dir():
        raise CodeButlerError(f"{entry.name}: {paths.repo} no longer exists")
    if not paths.root.exists():
        return []
    with prepare(paths) if not check else paths.open() as directory:
        was_trusted = digest(directory.read(CONFIG_NAME) or b"") == entry.digest
        config = migrate_config_file(directory, check=check)
        store = migrate_store_file(paths.store, check=check)
    if config and was_trusted and not check:
        registry.update(partial(replace, entry=vouched(entry)[0]))
    return [step for step in (config, store) if step]
