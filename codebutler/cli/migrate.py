"""``codebutler migrate``: migrate files of the WhatsApp era, and stores of older versions.

``codebutler upgrade``: what an upgrade would change here, and the command that does it. ``codebutler restart``: the
supervisor restarts in place, and unfinished work resumes.
"""

from __future__ import annotations

import asyncio
import sys
import time
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from codebutler.cli.config_files import Step, migrate_config_file, migrate_store_file, report
from codebutler.cli.context import asked, environment, home, known_repositories, reload_supervisor, talk
from codebutler.cli.doctor import report as doctors_report
from codebutler.cli.output import notice, print_json, say
from codebutler.config.git_repo import repo_root
from codebutler.config.paths import CONFIG_NAME, Home, RepoPaths
from codebutler.config.registering import prepare, vouched
from codebutler.config.registry import Registry, RepoEntries, RepoEntry, replace
from codebutler.config.trust import digest
from codebutler.domain.errors import CodeButlerError
from codebutler.protocol.control import RestartRequest, StatusReply, StatusRequest


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
        report(step, say)
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


STEPS = (
    "Upgrade with the tool that installed it, such as `pipx upgrade codebutler` or `uv tool upgrade codebutler`.",
    "Then `codebutler upgrade --check` says what the new version will migrate,",
    "and `codebutler restart` starts it; running work resumes.",
)
LOOK_S = 0.3
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
            say(line)
        return
    from msgspec.structs import asdict

    from codebutler.operations.upgrade import examine
    from codebutler.platform import service

    found = asyncio.run(examine(home(), environment(), service.run))
    if as_json:
        print_json({"ready": found.ready, **asdict(found)})
    else:
        sys.stdout.writelines(f"{line}\n" for line in doctors_report(found.findings, every=True))
    if not found.ready:
        raise typer.Exit(1)


def restart() -> None:
    """Restart the running supervisor with the installed version; running work resumes."""
    began_s = time.monotonic()
    notice(talk(RestartRequest()).text)
    while (waited_s := time.monotonic() - began_s) < PATIENCE_S:
        time.sleep(LOOK_S)
        found = _supervisor()
        if found and found["uptime_s"] < waited_s:
            say(f"Restarted: pid {found['pid']}, version {found['version']}.")
            return
    raise CodeButlerError("the supervisor has not come back: see `codebutler logs`")


def _supervisor() -> dict[str, Any]:
    try:
        status: dict[str, Any] = asked(StatusRequest(), StatusReply).status["supervisor"]
    except CodeButlerError:
        return {}  # between the two
    return status
