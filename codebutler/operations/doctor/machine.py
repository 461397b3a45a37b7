"""What this machine says: the home, its files, the disk, the supervisor, the registered repositories."""

from __future__ import annotations

import shutil
import sqlite3
import stat
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import aclosing, closing
from pathlib import Path

from codebutler.config.paths import Home
from codebutler.config.search_path import login_shell, noted, search_path
from codebutler.control.messages import StatusReply, StatusRequest
from codebutler.control.wire import ask
from codebutler.domain.errors import CodeButlerError, LockHeldError, NotRunningError
from codebutler.intake import journal_file
from codebutler.intake.repos import RepoTable
from codebutler.platform import sqlitefile
from codebutler.protocol.messages import Finding, fail, ok, warn
from codebutler.supervisor.supervisor import SupervisorLock, is_held

# Below the first there is hardly room for a day's work, below the second nothing can be accepted soon.
SCARCE_BYTES = 2**30
FULL_BYTES = 100 * 2**20
# The parts of the status that say what is wrong with them.
RUNNING = ("supervisor", "journal", "slack", "telegram")


async def programs_path(home: Home, env: Mapping[str, str]) -> str:
    """What the supervisor looks for programs in: the one that runs, or the one that would run."""
    running = is_held(home.lock) and noted(home)
    return running or await search_path(env, login_shell())


def check_home(home: Home) -> Iterator[Finding]:
    """Whose it is, who may read it, whether its journal is whole, and whether anybody serves it."""
    mode = stat.S_IMODE(home.root.stat().st_mode)
    if mode & 0o077:
        yield warn(
            "home", str(home.root), f"others may enter it (mode {mode:o}): run `chmod 700 {home.root}`"
        )
    else:
        yield ok("home", str(home.root), "yours alone")
    yield disk_finding(home.root, shutil.disk_usage(home.root).free)
    yield _journal(home)
    yield _supervisor(home)


async def check_running(home: Home) -> AsyncIterator[Finding]:
    """What the supervisor that runs says is wrong with itself, with its journal and with its connection."""
    try:
        async with aclosing(ask(home.socket, StatusRequest())) as replies:
            async for reply in replies:
                if isinstance(reply, StatusReply):
                    for part in RUNNING:
                        if trouble := reply.status.get(part, {}).get("trouble"):
                            yield warn("supervisor", part, trouble)
    except NotRunningError:
        return
    except CodeButlerError as error:
        yield warn("supervisor", "status", str(error))


def check_repos(home: Home, table: RepoTable) -> Iterator[Finding]:
    """Each registered repository: its configuration and whether that is the trusted one; its disk."""
    if not table.served and not table.unserved:
        yield warn("repos", "none", "no repository is registered: run `codebutler add-repo PATH`")
    for unserved in table.unserved:
        yield fail("repos", unserved.entry.name, unserved.problem)
    seen = {home.root.stat().st_dev}
    for served in table.served:
        name, path = served.entry.name, Path(served.entry.path)
        if served.trusted:
            yield ok("repos", name, f"{path}, configuration trusted")
        else:
            yield warn("repos", name, served.notes[0] if served.notes else f"see `codebutler trust {name}`")
        device = path.stat().st_dev
        if device not in seen:
            seen.add(device)
            yield disk_finding(path, shutil.disk_usage(path).free)


def disk_finding(path: Path, free_bytes: int) -> Finding:
    """Is there room where ``path`` is?"""
    told = f"{free_bytes / 2**30:.1f} GB free"
    if free_bytes < FULL_BYTES:
        return fail("disk", str(path), f"{told}: messages are refused when it is full, free some space")
    if free_bytes < SCARCE_BYTES:
        return warn("disk", str(path), f"{told}: free some space")
    return ok("disk", str(path), told)


def _journal(home: Home) -> Finding:
    path = home.journal
    try:
        if not sqlitefile.exists(path):
            return ok("store", "journal", "none yet: it is made at the first start")
        with closing(sqlitefile.attach(path, writable=not sqlitefile.is_open(path))) as connection:
            found = sqlitefile.examine(connection, path)
    except sqlite3.Error as error:
        return fail("store", "journal", str(sqlitefile.store_error(path, error)))
    except CodeButlerError as error:
        return fail("store", "journal", str(error))
    if found.revision == journal_file.HEAD:
        return ok("store", "journal", f"revision {found.revision}")
    if found.revision in journal_file.REVISIONS:
        return ok("store", "journal", f"revision {found.revision}, migrated at the next start")
    return fail("store", "journal", f"{path} is not a journal that this version knows: update CodeButler")


def _supervisor(home: Home) -> Finding:
    try:
        with SupervisorLock(home.lock):
            pass
    except LockHeldError as error:
        return ok("supervisor", "process", f"runs (pid {error.holder_pid}): see `codebutler status`")
    except OSError as error:
        return fail("supervisor", "process", f"{home.lock} cannot be opened: {error.strerror}")
    return warn(
        "supervisor", "process", "none runs: `codebutler supervise`, or `codebutler install` once for all"
    )
