"""One SQLite file that must not lose what it acknowledged: how to create, open, upgrade and copy it.

WAL with ``synchronous=FULL`` survives power loss (NORMAL does not: it may lose the last commits). Exactly one
connection writes a file: SQLite 3.7.0 to 3.51.2 can corrupt a WAL when two connections write and checkpoint at once. A
missing file is created only if nothing indicates that there was one: an empty store in place of a lost one would
silently forget everything.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from datetime import datetime
from functools import partial
from pathlib import Path

from msgspec import Struct

from codebutler.domain.errors import StoreDamagedError, StoreError, StoreFullError, StoreTooNewError
from codebutler.domain.version import VERSION, as_number, as_text
from codebutler.platform.files import identity
from codebutler.platform.system import this_system

BUSY_TIMEOUT_S = 2.0
CHECKED_BYTES = 16 * 2**20
# A connection's page cache. The system caches the pages once for all; SQLite's default would give each worker another
# two megabytes for a long history.
CACHE_KB = 512
COPIED_PAGES = 1024

_DAMAGED = ("SQLITE_CORRUPT", "SQLITE_NOTADB")
_KINDS = {
    "SQLITE_FULL": StoreFullError,
    **dict.fromkeys(_DAMAGED, StoreDamagedError),
}
_ADVICE = {
    "SQLITE_FULL": "the disk is full: free some space",
    "SQLITE_READONLY": "it cannot be written: check its permissions, and that its disk is not read-only",
    "SQLITE_PERM": "it cannot be written: check its permissions",
    "SQLITE_CANTOPEN": "it cannot be opened: check the permissions of the file and of its directory",
    "SQLITE_IOERR": "its disk reports an error: check the disk",
    "SQLITE_BUSY": "another process uses it: stop that one first",
    "SQLITE_LOCKED": "another process uses it: stop that one first",
    "SQLITE_CORRUPT": "it is damaged: put a backup (*.bak) in its place, or move it away",
    "SQLITE_NOTADB": "it is not a database: put a backup (*.bak) in its place, or move it away",
}


class StoredContents(Struct, frozen=True):
    """The content of a file: columns by table, Alembic's revision (None = never versioned, "" = the base), and the
    CodeButler that wrote it last ("" = unknown)."""

    tables: dict[str, frozenset[str]]
    revision: str | None
    written_by: str = ""


def store_error(path: Path, error: Exception) -> StoreError:
    """The one line that a person needs about an error of SQLite or the system. It never quotes a statement.

    A StoreDamagedError if the file itself is at fault, rather than the disk or another process; a StoreFullError if
    only space is missing.
    """
    code = getattr(error, "sqlite_errorname", "")
    for name, advice in _ADVICE.items():
        if code.startswith(name):
            return _KINDS.get(name, StoreError)(f"{path}: {advice}")
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return StoreError(f"{path}: {reason}")


def too_new(path: Path, found: StoredContents) -> StoreTooNewError:
    """The error for a file whose revision is none of ours: which version wrote it, and what to do."""
    by = f"{found.written_by}, " if as_number(found.written_by) > as_number(VERSION) else ""
    copies = sorted(path.parent.glob(f"{path.name}.*.bak"))
    instead = (
        f", or put the copy from before its migration, {copies[-1].name}, in its place" if copies else ""
    )
    return StoreTooNewError(
        f"{path} was written by a newer CodeButler ({by}revision {found.revision}): update this one, which is "
        f"{VERSION}{instead}"
    )


def exists(path: Path) -> bool:
    """Whether there is a file to open; False = it may be created.

    Raises StoreDamagedError for an empty file and for a missing file that left a WAL or a backup, and StoreError for a
    link or anything but a regular file.
    """
    try:
        found = path.lstat()
    except FileNotFoundError:
        left = [path.with_name(path.name + "-wal"), *sorted(path.parent.glob(f"{path.name}.*.bak"))]
        if traces := [trace.name for trace in left if trace.exists()]:
            raise StoreDamagedError(
                f"{path} is missing but {traces[-1]} is there: put a backup in its place, "
                "or move the leftovers away to start afresh"
            ) from None
        return False
    except OSError as error:
        raise store_error(path, error) from error
    if not stat.S_ISREG(found.st_mode):
        raise StoreError(f"{path} is not a regular file: move it away")
    if found.st_size == 0:
        raise StoreDamagedError(
            f"{path} is empty, it was cut off: put a backup in its place, or remove it to start afresh"
        )
    return True


def create(path: Path, statements: Iterable[str]) -> None:
    """Create a file (mode 0600) with these statements: after a crash it is complete or does not exist."""
    new = path.with_name(path.name + ".new")
    try:
        new.unlink(missing_ok=True)
        os.close(os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600))
        with closing(sqlite3.connect(new, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            for statement in statements:
                connection.execute(statement)
            connection.execute("COMMIT")
        new.rename(path)
        sync_directory(path.parent)
    except (sqlite3.Error, OSError) as error:
        raise store_error(path, error) from error


def attach(path: Path, *, writable: bool = True) -> sqlite3.Connection:
    """Open an existing file and change nothing; the caller begins transactions. Raises sqlite3.Error.

    Without ``writable`` the connection can neither write nor checkpoint, so that it may read next to the writer. The
    last one to close a file should be writable, since it cleans up the WAL.
    """
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={'rw' if writable else 'ro'}",  # never creates a file
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        timeout=BUSY_TIMEOUT_S,
    )
    try:
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA foreign_keys = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def become_writer(connection: sqlite3.Connection) -> None:
    """Make this the writing connection: WAL, full sync. The file keeps which version writes it.

    Raises sqlite3.Error if it cannot write now.
    """
    connection.execute("PRAGMA journal_mode = WAL").fetchone()
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"PRAGMA cache_size = -{CACHE_KB}")
    connection.execute("PRAGMA fullfsync = ON")  # macOS: fsync alone leaves data in the drive's cache
    (before,) = connection.execute("PRAGMA user_version").fetchone()
    connection.execute("BEGIN IMMEDIATE")
    try:
        # BEGIN alone succeeds on a file opened read-only.
        connection.execute(f"PRAGMA user_version = {as_number(VERSION)}")
        if before != as_number(VERSION):
            connection.commit()
    finally:
        connection.rollback()


def connect(path: Path) -> sqlite3.Connection:
    """Open an existing file for its one writer. Raises sqlite3.Error."""
    connection = attach(path)
    try:
        become_writer(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def examine(connection: sqlite3.Connection, path: Path) -> StoredContents:
    """Read the structure of the file.

    Raises StoreDamagedError if it is damaged, StoreError if it contains code (triggers, views).
    """
    size = path.stat().st_size
    if size <= CHECKED_BYTES:  # a larger file would delay the start; the daily backup checks its copy
        check(connection, path)
    schema = connection.execute("SELECT type, name FROM sqlite_master").fetchall()
    if code := [name for kind, name in schema if kind in ("trigger", "view")]:
        raise StoreError(f"{path} holds the foreign trigger or view {code[0]}: move the file away")
    names = [name for kind, name in schema if kind == "table" and not name.startswith("sqlite_")]
    tables = {name: _columns(connection, name) for name in names}
    (number,) = connection.execute("PRAGMA user_version").fetchone()
    if "alembic_version" not in tables:
        return StoredContents(tables, None, as_text(number))
    rows = connection.execute("SELECT version_num FROM alembic_version").fetchall()
    return StoredContents(tables, str(rows[0][0]) if rows else "", as_text(number))


def require(path: Path, found: StoredContents, wanted: Mapping[str, frozenset[str]]) -> None:
    """Raise StoreDamagedError unless all these tables and columns exist: a flipped bit renames them."""
    for table, columns in wanted.items():
        if not columns <= found.tables.get(table, frozenset()):
            raise StoreDamagedError(f"{path}: {_ADVICE['SQLITE_CORRUPT']}")


def backup(path: Path, now: datetime) -> Path:
    """Copy the file, including its WAL, to ``NAME.<UTC stamp>.bak`` next to it (mode 0600, synced).

    Raises StoreError; a failed copy is removed.
    """
    target = path.with_name(f"{path.name}.{now:%Y%m%dT%H%M%SZ}.bak")
    number = 1
    while target.exists():
        number += 1
        target = path.with_name(f"{path.name}.{now:%Y%m%dT%H%M%SZ}-{number}.bak")
    copy(path, target)
    return target


def copy(path: Path, target: Path, stop: threading.Event | None = None) -> None:
    """Copy a snapshot of the file, including its WAL, to a new private file.

    May run while the file is written, since it only reads. Raises StoreError, also if ``stop`` is set meanwhile; then
    no partial copy is left.
    """
    try:
        with closing(attach(path, writable=not is_open(path))) as source:
            copy_of(source, path, target, stop)
    except sqlite3.Error as error:
        raise store_error(path, error) from error


def copy_of(
    source: sqlite3.Connection, path: Path, target: Path, stop: threading.Event | None = None
) -> None:
    """Like ``copy``, of what a connection opened under ``path`` sees, whatever is there now."""
    try:
        descriptor = os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise store_error(target, error) from error
    try:
        with closing(sqlite3.connect(target)) as new:
            source.execute("BEGIN")  # one snapshot: otherwise each write meanwhile would restart the copy
            try:
                source.execute("SELECT count(*) FROM sqlite_master").fetchone()
                source.backup(new, pages=COPIED_PAGES, progress=partial(_go_on, path, stop))
            finally:
                source.rollback()
            new.execute("PRAGMA journal_mode = DELETE").fetchone()
        this_system().sync(descriptor)
        sync_directory(target.parent)
    except BaseException as error:
        target.unlink(missing_ok=True)
        if isinstance(error, sqlite3.Error | OSError):
            raise store_error(path if is_damage(error) else target, error) from error
        raise
    finally:
        os.close(descriptor)


def check(connection: sqlite3.Connection, path: Path, *, thorough: bool = False) -> None:
    """Raise StoreDamagedError unless the file's pages are intact and consistent; ``thorough``, and slower: also unless
    its indexes agree with its tables."""
    pragma = "integrity_check" if thorough else "quick_check"
    verdict = connection.execute(f"PRAGMA {pragma}(1)").fetchone()[0]
    if verdict != "ok":
        raise StoreDamagedError(f"{path}: {_ADVICE['SQLITE_CORRUPT']}")


def restrict_to_owner(path: Path) -> None:
    """Restrict the file, and what SQLite keeps next to it, to its owner. Raises OSError.

    SQLite creates its WAL and shared memory with the mode of the file. Never by a descriptor: closing one would drop
    the locks that SQLite holds on the file.
    """
    for suffix in ("", "-wal", "-shm"):
        part = path.with_name(path.name + suffix)
        with suppress(FileNotFoundError):
            mode = part.lstat().st_mode
            if stat.S_ISREG(mode) and mode & 0o077:
                part.chmod(mode & 0o700)


def is_open(path: Path) -> bool:
    """Whether a process has the file open, or died with it open."""
    return path.with_name(path.name + "-wal").exists()


def is_damage(error: Exception) -> bool:
    """Whether this is SQLite's error for a damaged file."""
    return getattr(error, "sqlite_errorname", "").startswith(_DAMAGED)


class Anchor:
    """Remembers which file was opened under a path. Commits to a deleted file would be lost."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._identity = identity(path)

    @property
    def holds(self) -> bool:
        """Whether the path still leads to the file that was opened."""
        return identity(self._path) == self._identity


def sync_directory(directory: Path) -> None:
    """Make a new name in the directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        this_system().sync(descriptor)
    finally:
        os.close(descriptor)


def _columns(connection: sqlite3.Connection, table: str) -> frozenset[str]:
    rows = connection.execute("SELECT name FROM pragma_table_info(?)", (table,)).fetchall()
    return frozenset(name for (name,) in rows)


def _go_on(path: Path, stop: threading.Event | None, _status: int, _remaining: int, _total: int) -> None:
    if stop is not None and stop.is_set():
        raise StoreError(f"{path}: the copy was cancelled")


class Shape(Struct, frozen=True):
    """A file at its newest revision, ``head``: the columns of its tables, and the statements that create it."""

    head: str
    columns: Mapping[str, frozenset[str]]
    statements: Callable[[], Iterable[str]]


def open_at_head(path: Path, shape: Shape, upgrade: Callable[[StoredContents], None]) -> sqlite3.Connection:
    """The file's one connection, which writes. ``upgrade`` gets the contents of an older file and brings it to
    ``shape``, after a backup, or raises StoreError for an unknown one; nobody has the file open then.

    Raises what ``upgrade`` raises, StoreDamagedError for a file that is damaged or lost, and StoreError for one that is
    locked or not writable.
    """
    if not exists(path):
        create(path, shape.statements())
    connection: sqlite3.Connection | None = None
    try:
        connection = attach(path)
        found = examine(connection, path)
        if found.revision != shape.head:
            connection.close()
            upgrade(found)
            connection = attach(path)
            found = examine(connection, path)
        require(path, found, shape.columns)
        become_writer(connection)
        path.chmod(0o600)
        restrict_to_owner(path)
        return connection
    except BaseException as error:  # whatever it is, nothing stays open; it is raised again
        if connection is not None:
            connection.close()
        if isinstance(error, sqlite3.Error | OSError):
            raise store_error(path, error) from error
        raise
