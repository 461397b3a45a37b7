"""Opens the store in ``<repo>/.codebutler``, which git ignores and which is never reached through a link; migrates an
older file, also one of the WhatsApp era."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import cache, partial
from pathlib import Path

from msgspec import Struct
from sqlalchemy.dialects import sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from codebutler.config.git_repo import Owner
from codebutler.domain.clock import Clock, SystemClock
from codebutler.domain.errors import StoreError
from codebutler.platform import sqlitefile
from codebutler.platform.backups import Backups, open_or_restore
from codebutler.platform.files import FileLock
from codebutler.platform.sqlitefile import Shape, open_at_head
from codebutler_worker.store import tables
from codebutler_worker.store.unit_of_work import Store, store_thread

LEGACY = "legacy"
BASE = "base"
_WHATSAPP = {"messages": {"from_jid", "chat", "content"}, "sessions": {"chat_jid", "session_id"}}
_RENAMED = {
    "messages": {"from_id", "channel_id", "content", "platform_msg_id", "is_voice", "acked"},
    "sessions": {"channel_id", "session_id"},
}
STATE_DIR = ".codebutler"
# What agents see of it: received files, and files they make.
SHARED_DIRS = ("files", "images")


async def open_on_own_thread(path: Path, clock: Clock, backups: Backups | None, wait_s: float) -> Store:
    """``open_store`` on the thread that the store keeps.

    SQLite's allocations then lie together, not in the gaps of shared memory.
    """
    thread = store_thread()
    try:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(thread, open_store, path, clock, backups, wait_s, thread)
    except BaseException:
        thread.shutdown(wait=False)
        raise


def open_store(
    path: Path,
    clock: Clock,
    backups: Backups | None = None,
    wait_s: float = 0.0,
    thread: ThreadPoolExecutor | None = None,
) -> Store:
    """Open ``<repo>/.codebutler/store.db``; creates it or (after a backup) migrates it first.

    Prepares the state directory, too. A lost or damaged file is restored from ``backups`` if there is a good
    one. Waits ``wait_s`` seconds for an earlier worker to release it. Blocks; call it before serving. Raises
    StoreTooNewError for a newer CodeButler's file, StoreDamagedError for a damaged or lost one, and
    StoreError for one that is foreign, in use or not writable.
    """
    if path.parent.name == STATE_DIR:
        prepare_state_dir(path.parent.parent)
    check_state_dir(path.parent)
    lock = writer_lock(path).acquire(wait_s)
    try:
        if backups is None:
            return Store(path, _open_file(path, clock), clock, lock, thread=thread)
        raw, restored = open_or_restore(partial(_open_file, path, clock), backups, path, clock)
        return Store(path, raw, clock, lock, restored, thread)
    except BaseException:
        lock.release()
        raise


def _open_file(path: Path, clock: Clock) -> sqlite3.Connection:
    def bring_to_head(_found: sqlitefile.StoredContents) -> None:
        upgrade_store(path, clock)

    return open_at_head(path, Shape(tables.HEAD, _columns(), schema), bring_to_head)


@cache
def schema() -> list[str]:
    """The statements that make a store at HEAD."""
    dialect = sqlite.dialect()
    statements: list[str] = []
    for table in [*tables.metadata.sorted_tables, tables.version]:
        statements.append(str(CreateTable(table).compile(dialect=dialect)))
        indexes = sorted(table.indexes, key=lambda index: str(index.name))
        statements.extend(str(CreateIndex(index).compile(dialect=dialect)) for index in indexes)
    # HEAD is a constant of ours
    return [*statements, tables.SEARCH, f"INSERT INTO alembic_version VALUES ('{tables.HEAD}')"]  # noqa: S608 - constants


@cache
def _columns() -> dict[str, frozenset[str]]:
    return {table.name: frozenset(table.columns.keys()) for table in tables.metadata.sorted_tables}


class MigrationReport(Struct, frozen=True):
    """What was done or, for a check, would be. ``rows`` counts messages and sessions before and after.

    ``from_revision`` is a revision, "legacy" for a file of the WhatsApp era or "base" for one without tables;
    if it equals ``to_revision``, there was nothing to do.
    """

    path: Path
    from_revision: str
    to_revision: str
    backup: Path | None
    rows: dict[str, int]

    @property
    def needed(self) -> bool:
        """Whether the file was not at its newest revision."""
        return self.from_revision != self.to_revision


def writer_lock(path: Path) -> FileLock:
    """Held by the writer of the store, also while it migrates: SQLite alone would let two take turns."""
    return FileLock(path.with_suffix(".lock"), "this repository's worker or another migration")


def migrate_store(path: Path, *, check: bool = False, clock: Clock | None = None) -> MigrationReport:
    """Migrate the file to the newest revision, after a backup beside it; with ``check`` only report what is
    to do.

    ``clock`` stamps the backup (default: the real one). Raises StoreTooNewError for a newer CodeButler's file
    and StoreError for one that is missing, damaged, foreign, in use or not writable; the file is unchanged
    then.
    """
    if not sqlitefile.exists(path):
        raise StoreError(f"{path} does not exist: there is nothing to migrate")
    try:
        found, rows = _survey(path)
        report = MigrationReport(path, recognise(path, found), tables.HEAD, None, rows)
        if check or not report.needed:
            return report
        with writer_lock(path):
            return upgrade_store(path, clock or SystemClock())
    except sqlite3.Error as error:
        raise sqlitefile.store_error(path, error) from error


def upgrade_store(path: Path, clock: Clock) -> MigrationReport:
    """Migrate a file whose lock the caller holds, after a backup. Raises as ``migrate_store``."""
    try:
        found, _ = _survey(path)
        start = recognise(path, found)
        copy = sqlitefile.backup(path, clock.now())
        _upgrade(path, found, start)
        return MigrationReport(path, start, tables.HEAD, copy, _survey(path)[1])
    except sqlite3.Error as error:
        raise sqlitefile.store_error(path, error) from error


def downgrade(path: Path, revision: str) -> None:
    """Downgrade the file to an older revision; drops newer tables and columns."""
    from codebutler_migrations import runner

    with writer_lock(path):
        runner.downgrade("store", path, revision)


def recognise(path: Path, found: sqlitefile.StoredContents) -> str:
    """The revision the file is at, LEGACY or BASE. Raises StoreTooNewError, or StoreError if foreign."""
    if found.revision is not None:
        if found.revision and found.revision not in tables.REVISIONS:
            raise sqlitefile.too_new(path, found)
        return found.revision or BASE
    if not found.tables:
        return BASE
    if any(columns <= found.tables.get(table, frozenset()) for table, columns in _WHATSAPP.items()):
        return LEGACY
    if all(columns <= found.tables.get(table, frozenset()) for table, columns in _RENAMED.items()):
        return "0002"
    raise StoreError(f"{path} is not a CodeButler store: move it away")


def _survey(path: Path) -> tuple[sqlitefile.StoredContents, dict[str, int]]:
    with closing(sqlitefile.attach(path, writable=not sqlitefile.is_open(path))) as connection:
        found = sqlitefile.examine(connection, path)
        return found, {
            table: int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])  # noqa: S608 - constants
            for table in ("messages", "sessions")
            if table in found.tables
        }


def _upgrade(path: Path, found: sqlitefile.StoredContents, start: str) -> None:
    # Imported here: Alembic is heavy and rarely needed.
    from codebutler_migrations import runner

    if found.revision is None and start in tables.REVISIONS:
        runner.stamp_and_upgrade("store", path, start)
    else:
        runner.upgrade("store", path)


def prepare_state_dir(repo: Path) -> Path:
    """Make ``<repo>/.codebutler`` (mode 0700), the directories in it that agents share, and a ``.gitignore``
    that hides all of it; returns its path.

    Raises StoreError if the repository is gone, or the directory is a link, a file, someone else's or not
    writable.
    """
    directory = repo / STATE_DIR
    if not repo.is_dir():
        raise StoreError(f"{repo} no longer exists: restore it, or remove it with `codebutler remove-repo`")
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        check_state_dir(directory)
        directory.chmod(0o700)
        _let_the_owner_through(repo, directory)
        _write_once(directory / ".gitignore", "*\n")
        for name in SHARED_DIRS:
            _prepare_shared(directory / name)
    except OSError as error:
        raise StoreError(
            f"{directory}: {error.strerror or error}: check its permissions, and that its disk is not read-only"
        ) from error
    return directory


def check_state_dir(directory: Path) -> None:
    """Raise StoreError unless this is a real directory of ours: a link could lead our writes anywhere."""
    try:
        found = directory.lstat()
    except OSError as error:
        raise StoreError(f"{directory}: {error.strerror or error}") from error
    if not stat.S_ISDIR(found.st_mode):
        raise StoreError(f"{directory} is a link or a file, it must be a directory: move it away")
    if found.st_uid != os.geteuid():
        raise StoreError(
            f"{directory} belongs to another user: make it yours (chown -R {os.geteuid()} {directory}) or remove it"
        )


def _let_the_owner_through(repo: Path, directory: Path) -> None:
    """Root's agents run as the repository's owner, whose group may pass through to the shared directories."""
    owner = Owner.at(repo)
    if os.geteuid() == 0 and not owner.is_root:
        os.chown(directory, -1, owner.gid, follow_symlinks=False)
        directory.chmod(0o710)


def _prepare_shared(directory: Path) -> None:
    """Make a directory that agents may write in. Anything they put in its place stays: its users check."""
    with contextlib.suppress(FileExistsError):
        directory.mkdir(mode=0o700)
    if os.geteuid() == 0 and stat.S_ISDIR((found := directory.lstat()).st_mode) and found.st_uid == 0:
        # Only inside our own directory, where no agent can replace it by a link.
        owner = Owner.at(directory.parent.parent)
        os.chown(directory, owner.uid, owner.gid, follow_symlinks=False)


def _write_once(path: Path, text: str) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        return
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
