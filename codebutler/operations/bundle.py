"""`codebutler doctor --bundle`: the data for a bug report, as files that identify nobody.

Each text goes through the Anonymizer. The files are shown first, and only then written.
"""

from __future__ import annotations

import importlib.metadata
import io
import json
import os
import platform
import re
import sqlite3
import stat
import subprocess
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from codebutler.config.load import leaves
from codebutler.config.paths import Home, RepoPaths
from codebutler.config.resolve import MASK, is_secret, resolve_global
from codebutler.config.schema import Config
from codebutler.config.section import Section
from codebutler.domain.errors import CodeButlerError
from codebutler.domain.version import VERSION
from codebutler.intake.repos import RepoTable
from codebutler.operations.anonymous import Anonymizer, read_source
from codebutler.platform import sqlitefile
from codebutler.platform.lookup import look_up
from codebutler.platform.system import this_system
from codebutler.protocol.capabilities import LiveResult, last_result
from codebutler.protocol.messages import Finding

PACKAGES = ("codebutler", "codebutler_worker", "codebutler_migrations")
AGENTS = ("claude", "kimi", "native", "rehearsal")
LOG_LINES = 400
LOG_BYTES = 2**20
OWN_TAGS = frozenset(("INF", "WRN", "ERR", "DBG"))
"""The tags of log lines about CodeButler itself; other lines hold text of people and agents."""
PROGRAMS = ("git", "bwrap", "docker", "node")
PLAIN = re.compile(r"[A-Za-z0-9._-]{1,30}")
MAX_TABLES = 60
DEVELOPMENT = re.compile(r"extra == .dev")
_LINE = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) ([A-Z]{3})  (?:\[([^\]]*)\] )?(.*)")
_VERSION = re.compile(r"\d+\.\d+(?:\.\d+)?")
_FIXED_DATE = (2000, 1, 1, 0, 0, 0)
Files = dict[str, str]


def collect(home: Home, env: Mapping[str, str], findings: Sequence[Finding]) -> Files:
    """The files of the report by name. Blocking. Never raises for a part that cannot be read: it says so instead."""
    try:
        table: RepoTable | None = RepoTable.read(home, env)
    except CodeButlerError:
        table = None
    repos = [] if table is None else table.served
    names = {each.entry.name: f"<repo-{number}>" for number, each in enumerate(repos, 1)}
    names |= {each.entry.path: f"<repo-{number}-path>" for number, each in enumerate(repos, 1)}
    packages = [
        Path(next(iter(spec.submodule_search_locations or ()))) for spec in map(find_spec, PACKAGES) if spec
    ]
    anonymizer = Anonymizer(
        read_source(packages, (*AGENTS, *(each.area for each in findings), *_setting_names(Section))), names
    )
    return {
        "versions.json": _json(versions(env)),
        "doctor.json": _json([doctor_line(each, anonymizer) for each in findings]),
        "agents.json": _json(live_results(last_result(home), anonymizer)),
        "config.json": _json(configuration(home, env, table, anonymizer)),
        "counts.json": _json(counts(home, table, anonymizer)),
        "log.txt": log_lines(home.log_file, anonymizer),
    }


def _setting_names(section: type[Section]) -> Iterator[str]:
    """The keys that settings define, as opposed to keys that a person chose."""
    for each in section.__subclasses__():
        yield from (known.encode_name for known in msgspec.structs.fields(each))
        yield from _setting_names(each)


def versions(env: Mapping[str, str]) -> dict[str, Any]:
    """The versions of programs and libraries, without host names, paths or users."""
    system = platform.freedesktop_os_release() if Path("/etc/os-release").exists() else {}
    distribution = f"{system.get('ID', '')}-{system.get('VERSION_ID', '')}"
    release = _VERSION.match(platform.release())
    libraries = {}
    for needed in importlib.metadata.requires("codebutler") or ():
        if DEVELOPMENT.search(needed):
            continue
        name = re.split(r"[^A-Za-z0-9._-]", needed, maxsplit=1)[0]
        try:
            libraries[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "codebutler": VERSION,
        "python": platform.python_version(),
        "system": this_system().name,
        "kernel": release[0] if release else "",
        "machine": platform.machine(),
        "distribution": distribution if PLAIN.fullmatch(distribution) else "",
        "sqlite": sqlite3.sqlite_version,
        "root": os.geteuid() == 0,
        "programs": {name: _program_version(name, env) for name in PROGRAMS},
        "libraries": libraries,
    }


def _program_version(name: str, env: Mapping[str, str]) -> str:
    path = env.get("PATH", os.defpath)
    # Not through a relative entry: the current directory may be a repository.
    program = look_up(name, path)
    if program is None:
        return ""
    try:
        completed = subprocess.run(
            (program, "--version"), capture_output=True, timeout=5, check=False, env={"PATH": path}
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = _VERSION.search(completed.stdout.decode(errors="replace")[:200])
    return found[0] if found else "unknown"


def doctor_line(finding: Finding, anonymizer: Anonymizer) -> dict[str, str]:
    """A finding; its area and level are ours."""
    return {
        "level": finding.level,
        "area": finding.area,
        "subject": anonymizer.anonymize(finding.subject),
        "text": anonymizer.anonymize(finding.text),
    }


def live_results(result: LiveResult | None, anonymizer: Anonymizer) -> Any:
    """What agents could do when `doctor --live` last tried."""
    if result is None:
        return None
    results: dict[str, Any] = msgspec.to_builtins(result)
    for row in results["agents"]:
        row["repos"] = [anonymizer.anonymize(name) for name in row["repos"]]
        row["agent"], row["version"] = (
            anonymizer.anonymize(row["agent"]),
            anonymizer.anonymize(row["version"]),
        )
        row["model"] = anonymizer.anonymize(row["model"])
        for cell in row["cells"]:
            cell["text"], cell["fix"] = anonymizer.anonymize(cell["text"]), anonymizer.anonymize(cell["fix"])
    return results


def configuration(
    home: Home, env: Mapping[str, str], table: RepoTable | None, anonymizer: Anonymizer
) -> dict[str, Any]:
    """The settings that differ from the defaults, global and for each repository."""
    settings: dict[str, Any] = {}
    try:
        settings["global"] = _changed_settings(resolve_global(home, env).config, anonymizer)
    except CodeButlerError as error:
        settings["global"] = {"unreadable": anonymizer.anonymize(str(error))}
    for served in () if table is None else table.served:
        settings[anonymizer.anonymize(served.entry.name)] = _changed_settings(
            served.settings(env).config, anonymizer
        )
    return settings


def _changed_settings(config: Config, anonymizer: Anonymizer) -> dict[str, Any]:
    defaults = dict(leaves(msgspec.to_builtins(Config())))
    found = {}
    for path, value in leaves(msgspec.to_builtins(config)):
        if path not in defaults or defaults[path] != value:
            # A key without a default is a name that a person chose.
            keys = [
                key if at < 2 and _is_key(path[: at + 1], defaults) else anonymizer.anonymize(key)
                for at, key in enumerate(path)
            ]
            found[".".join(keys)] = _value(".".join(path), value, anonymizer)
    return found


def _is_key(path: tuple[str, ...], defaults: Mapping[tuple[str, ...], Any]) -> bool:
    return any(known[: len(path)] == path for known in defaults) or len(path) == 1


def _value(key: str, value: Any, anonymizer: Anonymizer) -> Any:
    if isinstance(value, bool) or value is None:
        return value
    if is_secret(key):
        return MASK if value else value
    if isinstance(value, dict):
        return {
            anonymizer.anonymize(str(name)): _value(key, each, anonymizer) for name, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [_value(key, each, anonymizer) for each in value]
    if isinstance(value, int | float):
        return value if abs(value) < 10_000 else anonymizer.pseudonym(str(value))
    return anonymizer.anonymize(str(value))


def counts(home: Home, table: RepoTable | None, anonymizer: Anonymizer) -> dict[str, Any]:
    """How many rows each store has, by table."""
    stores = {"journal": home.journal}
    for served in () if table is None else table.served:
        stores[anonymizer.anonymize(served.entry.name)] = RepoPaths(Path(served.entry.path)).store
    return {name: _row_counts(path, anonymizer) for name, path in stores.items()}


def _row_counts(path: Path, anonymizer: Anonymizer) -> Any:
    try:
        # A link could lead anywhere: the repository's content may have put it there.
        if not stat.S_ISDIR(path.parent.lstat().st_mode) or not sqlitefile.exists(path):
            return "none"
        with closing(sqlitefile.attach(path, writable=not sqlitefile.is_open(path))) as store:
            store.execute("PRAGMA query_only = ON")
            known = store.execute(
                "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name"
            ).fetchall()
            found: dict[str, int] = {}
            for (name,) in known[:MAX_TABLES]:
                quoted = '"' + str(name).replace('"', '""') + '"'
                shown = str(name) if str(name) in anonymizer.book.words else anonymizer.pseudonym(str(name))
                found[shown] = store.execute(f"SELECT count(*) FROM {quoted}").fetchone()[0]  # noqa: S608 - quoted
            return found
    except FileNotFoundError:
        return "none"
    except (sqlite3.Error, OSError, CodeButlerError) as error:
        return f"unreadable ({type(error).__name__})"


def log_lines(path: Path, anonymizer: Anonymizer) -> str:
    """The last log lines about CodeButler itself; for text of people and agents, only the number of lines."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - LOG_BYTES))
            lines = file.read(LOG_BYTES).decode(errors="replace").splitlines()[-LOG_LINES:]
    except OSError as error:
        return f"unreadable ({type(error).__name__})\n"
    shown, left_out = [], Counter[str]()
    for line in lines:
        found = _LINE.fullmatch(line)
        if found is None or found[2] not in OWN_TAGS:
            left_out[found[2] if found else "other"] += 1
            continue
        repo = f"[{anonymizer.anonymize(found[3])}] " if found[3] else ""
        shown.append(f"{found[1]} {found[2]}  {repo}{anonymizer.anonymize(found[4])}")
    shown.append(f"(left out: {sum(left_out.values())} lines written by people and agents)")
    return "\n".join(shown) + "\n"


def zip_files(files: Files) -> bytes:
    """A zip of the files, the same for the same content."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in files.items():
            packed.writestr(zipfile.ZipInfo(name, _FIXED_DATE), content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def write_archive(path: Path, files: Files) -> None:
    """Write it, readable by its owner only. Raises CodeButlerError; an existing file is not replaced."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(zip_files(files))
    except FileExistsError:
        raise CodeButlerError(f"{path} exists: choose another --output") from None
    except OSError as error:
        raise CodeButlerError(f"cannot write {path}: {error.strerror or error}") from error


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
