"""What a newer version needs. ``codebutler upgrade``: what it would change here, and how to install it. ``restart``:
start it in place; unfinished work resumes. ``migrate``: files of the WhatsApp era, and stores of older versions."""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from msgspec import Struct

from codebutler.cli.context import (
    environment,
    home,
    known_repositories,
    reload_supervisor,
    request_reply,
    send_request,
)
from codebutler.cli.output import notice, print_json, print_line
from codebutler.config.git_repo import repo_root
from codebutler.config.legacy import is_legacy, migrate_config
from codebutler.config.load import check_layer, parse_object
from codebutler.config.paths import CONFIG_NAME, Home, RepoPaths
from codebutler.config.registering import GITIGNORE, encode_config, prepare_directory, trust_entry
from codebutler.config.registry import Registry, RepoEntries, RepoEntry, replace
from codebutler.config.trust import digest
from codebutler.domain.errors import CodeButlerError
from codebutler.platform.files import PrivateDir
from codebutler.protocol.control import RestartRequest, StatusReply, StatusRequest

STEPS = (
    "Upgrade with the tool that installed it, such as `pipx upgrade codebutler` or `uv tool upgrade codebutler`.",
    "Then `codebutler upgrade --check` says what the new version will migrate,",
    "and `codebutler restart` starts it; running work resumes.",
)
POLL_S = 0.3
# Longer than running work has to finish, and a start takes.
PATIENCE_S = 120.0


def upgrade(
    check: Annotated[
        bool, typer.Option("--check", help="Report what an upgrade would change, without changing anything.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the check as one JSON object.")] = False,
) -> None:
    """Show how to upgrade or, with --check, what an upgrade would change; exit code 1 if something must be fixed."""
    if not check:
        if as_json:
            raise typer.BadParameter("--json requires --check")
        for line in STEPS:
            print_line(line)
        return
    from msgspec.structs import asdict

    from codebutler.cli.doctor import report_lines
    from codebutler.operations.upgrade import examine
    from codebutler.platform import service

    found = asyncio.run(examine(home(), environment(), service.run))
    if as_json:
        print_json({"ready": found.ready, **asdict(found)})
    else:
        sys.stdout.writelines(f"{line}\n" for line in report_lines(found.findings, every=True))
    if not found.ready:
        raise typer.Exit(1)


def restart() -> None:
    """Restart the running supervisor with the installed version; running work resumes."""
    began_s = time.monotonic()
    notice(send_request(RestartRequest()).text)
    while (waited_s := time.monotonic() - began_s) < PATIENCE_S:
        time.sleep(POLL_S)
        found = _supervisor_status()
        if found and found["uptime_s"] < waited_s:
            print_line(f"Restarted: pid {found['pid']}, version {found['version']}.")
            return
    raise CodeButlerError("the supervisor has not come back: see `codebutler logs`")


def _supervisor_status() -> dict[str, Any]:
    try:
        status: dict[str, Any] = request_reply(StatusRequest(), StatusReply).status["supervisor"]
    except CodeButlerError:
        return {}  # between the two
    return status


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
