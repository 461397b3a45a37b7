"""`codebutler upgrade --check`: the conditions for an upgrade: versions, files to migrate, running work, room for the
backups. It changes nothing, and needs no network."""

from __future__ import annotations

import asyncio
import importlib
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from codebutler.config.paths import Home, RepoPaths
from codebutler.config.registry import Registry, RepoEntry
from codebutler.domain.errors import CodeButlerError, ConfigError, NotRunningError
from codebutler.domain.version import VERSION, as_number
from codebutler.intake import journal_file
from codebutler.intake.repos import RepoTable
from codebutler.parent.configuration import GRACE_S
from codebutler.platform.backups import BROUGHT_ALONG
from codebutler.platform.system import Run
from codebutler.protocol.control import StatusReply, StatusRequest, reply_to
from codebutler.protocol.messages import Finding, fail, ok, warn

# The parent's packages do not import the worker's.
STORES = "codebutler_worker.store.opening"
# pip knows the user's index, mirror and proxy.
PIP_INDEX_VERSIONS = ("-I", "-m", "pip", "index", "versions", "codebutler")
PIP_OPTIONS = ("--disable-pip-version-check", "--timeout", "5", "--retries", "0")
# For each file: its backup, and as much again while it is migrated.
COPIES = 2
MARGIN_BYTES = 100 * 2**20


class Migration(Struct, frozen=True, kw_only=True):
    """A file that the next start migrates, after a backup beside it."""

    file: str
    from_revision: str
    to_revision: str
    size_bytes: int


class Upgrade(Struct, frozen=True, kw_only=True):
    """The outcome. ``newest`` and ``running`` are "" if unknown or not running; ``turns``: for each repository with
    work under way, the number of runs by state."""

    installed: str
    newest: str
    running: str
    migrations: tuple[Migration, ...]
    turns: dict[str, dict[str, int]]
    findings: tuple[Finding, ...]

    @property
    def ready(self) -> bool:
        """Whether no problem has to be fixed first."""
        return all(each.level != "FAIL" for each in self.findings)


async def examine(home: Home, env: Mapping[str, str], run: Run) -> Upgrade:
    """Look at everything; ``run`` asks pip."""
    newest, release = await asyncio.to_thread(newest_release, run)
    status, trouble = await _status(home)
    migrations, files = await asyncio.to_thread(_check_files, home)
    turns = _turns(status)
    findings = [
        release,
        *_check_running(status, trouble, turns),
        *files,
        *_check_room(migrations),
        *_check_configuration(home, env),
    ]
    running = status["supervisor"]["version"] if status else ""
    return Upgrade(
        installed=VERSION,
        newest=newest,
        running=running,
        migrations=migrations,
        turns=turns,
        findings=tuple(findings),
    )


def newest_release(run: Run) -> tuple[str, Finding]:
    """The newest release in the package index of this machine, "" if unknown. Blocks."""
    try:
        result = run((sys.executable, *PIP_INDEX_VERSIONS, *PIP_OPTIONS))
    except CodeButlerError as error:
        return "", warn("version", "newest release", f"unknown: {error}")
    found = re.match(r"codebutler \((\d[\w.]*)\)", result.out)
    if result.code or found is None:
        errors = [line.removeprefix("ERROR: ") for line in result.err.splitlines() if "ERROR" in line]
        why = (errors or ["pip is not in this environment, or its index cannot be reached"])[0]
        return "", warn("version", "newest release", f"unknown: {why[:200]}")
    newest = found[1]
    if as_number(newest) <= as_number(VERSION):
        return newest, ok("version", "newest release", f"{newest}; {VERSION} is installed")
    return newest, warn("version", "newest release", f"{newest} is available; {VERSION} is installed")


async def _status(home: Home) -> tuple[dict[str, Any] | None, str]:
    """The running supervisor's status, None without one; and why it does not answer."""
    try:
        reply = await reply_to(home.socket, StatusRequest(), StatusReply)
    except NotRunningError:
        return None, ""
    except CodeButlerError as error:
        return None, str(error)
    return (reply.status, "") if reply else (None, "it does not answer")


def _turns(status: Mapping[str, Any] | None) -> dict[str, dict[str, int]]:
    rows = {row["name"]: dict(row["turns"]) for row in status["repos"]} if status else {}
    return {name: states for name, states in rows.items() if any(states.values())}


def _check_running(
    status: Mapping[str, Any] | None, trouble: str, turns: Mapping[str, Mapping[str, int]]
) -> Iterator[Finding]:
    if trouble:
        yield warn("supervisor", "status", trouble)
    if status is None:
        if not trouble:
            yield ok("supervisor", "process", "not running")
        return
    supervisor = status["supervisor"]
    text = f"pid {supervisor['pid']}, version {supervisor['version']}"
    if supervisor["version"] == VERSION:
        yield ok("supervisor", "process", text)
    else:
        yield warn("supervisor", "process", f"{text}: `codebutler restart` starts {VERSION}")
    live = {name: states["running"] + states["waiting"] for name, states in turns.items()}
    under_way = [f"{name} {number}" for name, number in live.items() if number]
    if under_way:
        yield warn(
            "supervisor",
            "running work",
            f"{', '.join(under_way)}: `codebutler restart` gives them {GRACE_S:g} s to finish; longer "
            "ones resume afterwards, and their threads say so",
        )
    else:
        yield ok("supervisor", "running work", "none")


def _check_files(home: Home) -> tuple[tuple[Migration, ...], list[Finding]]:
    """The files to migrate, and a finding about each file. Blocks."""
    migrations: list[Migration] = []
    findings: list[Finding] = []
    try:
        entries: Sequence[RepoEntry] = Registry(home).load()
    except ConfigError as error:
        return (), [fail("store", "registry", str(error))]
    files = [("journal", home.journal), *((each.name, RepoPaths(Path(each.path)).store) for each in entries)]
    for name, path in files:
        try:
            found = _migration(path, is_journal=path == home.journal)
        except CodeButlerError as error:
            findings.append(fail("store", name, str(error)))
            continue
        if found is None:
            findings.append(ok("store", name, "up to date" if path.exists() else "none yet"))
        else:
            migrations.append(found)
            text = f"{found.from_revision} to {found.to_revision}, migrated at the next start, after a backup"
            findings.append(ok("store", name, text))
    return tuple(migrations), findings


def _migration(path: Path, *, is_journal: bool) -> Migration | None:
    if not path.exists():
        return None
    if is_journal:
        before, after = journal_file.revision_of(path), journal_file.HEAD
    else:
        report = importlib.import_module(STORES).migrate_store(path, check=True)
        before, after = report.from_revision, report.to_revision
    if before == after:
        return None
    parts = [path.with_name(path.name + ending) for ending in BROUGHT_ALONG]
    size = sum(part.stat().st_size for part in parts if part.exists())
    return Migration(file=str(path), from_revision=before, to_revision=after, size_bytes=size)


def _check_room(migrations: Sequence[Migration]) -> Iterator[Finding]:
    """Is there room for the backups and the migrations, on each disk?"""
    by_disk: dict[int, list[Migration]] = {}
    for each in migrations:
        by_disk.setdefault(Path(each.file).stat().st_dev, []).append(each)
    for found in by_disk.values():
        place = Path(found[0].file).parent
        needed = COPIES * sum(each.size_bytes for each in found) + MARGIN_BYTES
        free = shutil.disk_usage(place).free
        text = f"{free / 2**20:,.0f} MB free, the backups and migrations take up to {needed / 2**20:,.0f} MB"
        yield (
            ok("disk", str(place), text)
            if free >= needed
            else fail("disk", str(place), f"{text}: free some space")
        )


def _check_configuration(home: Home, env: Mapping[str, str]) -> Iterator[Finding]:
    """Configuration of an older version that this one does not accept."""
    if not home.root.is_dir():
        yield ok("configuration", str(home.root), "does not exist yet")
        return
    try:
        table = RepoTable.read(home, env)
    except ConfigError as error:
        yield fail("configuration", str(home.config), str(error))
        return
    for unserved in table.unserved:
        yield fail("configuration", unserved.entry.name, unserved.problem)
    if not table.unserved:
        yield ok("configuration", str(home.config), "valid for this version")
