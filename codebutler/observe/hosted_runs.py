"""The hosts' reports about their runs: one table, from which the ledger of all machines is read.

A row is reported again whenever it has changed, and replaces the one before. The table is a copy: if it is lost, hosts
report the rows again.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from codebutler.config.chats import message_url
from codebutler.domain.errors import StoreError
from codebutler.observe.ledger import Period, as_moment
from codebutler.platform import sqlitefile
from codebutler.platform.sqlitefile import Shape, StoredContents, open_at_head
from codebutler.protocol.capabilities import LedgerRow

MAX_ROW_BYTES = 16 * 2**10
MOST_ROWS = 200_000
"""The most rows of one repository; older ones are deleted."""
HEAD = "1"
COLUMNS = frozenset({"repo", "run", "host", "at", "ended", "program", "row"})
SCHEMA = (
    """CREATE TABLE runs (
        repo TEXT NOT NULL,
        run TEXT NOT NULL,
        host TEXT NOT NULL,
        at TEXT NOT NULL,
        ended TEXT NOT NULL,
        program INTEGER NOT NULL,
        row BLOB NOT NULL,
        PRIMARY KEY (repo, run)
    )""",
    "CREATE INDEX ix_runs_at ON runs (repo, at)",
    "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)",
    f"INSERT INTO alembic_version VALUES ('{HEAD}')",  # noqa: S608 - a constant
)
_KEEP = """INSERT INTO runs (repo, run, host, at, ended, program, row) VALUES (?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (repo, run) DO UPDATE SET
    host = excluded.host, at = excluded.at, ended = excluded.ended, program = excluded.program, row = excluded.row"""
_TRIM = """DELETE FROM runs WHERE repo = ? AND at <
    (SELECT at FROM runs WHERE repo = ? ORDER BY at DESC LIMIT 1 OFFSET ?)"""
T = TypeVar("T")


class HostedRuns:
    """The table's one connection, for any thread: everything blocks. ``path``: its file. Opening it raises StoreError.

    A host is less trusted: it may report only about its own repositories, and each row is bounded.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._connection = open_at_head(path, Shape(HEAD, {"runs": COLUMNS}, lambda: SCHEMA), self._refuse)
        query = "SELECT host, repo, max(ended) FROM runs GROUP BY host, repo"
        self._known: dict[tuple[str, str], str] = {
            (host, repo): ended
            for host, repo, ended in self._do(lambda connection: connection.execute(query).fetchall())
        }

    def _refuse(self, found: StoredContents) -> None:
        raise StoreError(
            f"{self._path} is of another version ({found.revision}): move it away, and the hosts fill a new one"
        )

    def known(self, host: str, repo: str) -> str:
        """When the latest run ended that this host has reported for the repository; "" if it has reported none."""
        return self._known.get((host, repo), "")

    def keep(self, host: str, repo: str, rows: Sequence[LedgerRow], programs: Collection[str]) -> None:
        """Store new or changed rows of a repository; ``programs`` are the agents that call no model. Raises
        StoreError."""
        found = [_record(host, repo, row, row.agent in programs) for row in rows]
        kept = [record for record in found if record is not None]

        def write(connection: sqlite3.Connection) -> None:
            connection.execute("BEGIN IMMEDIATE")
            with connection:
                connection.executemany(_KEEP, kept)
                connection.execute(_TRIM, (repo, repo, MOST_ROWS - 1))

        self._do(write)
        if kept:
            self._known[host, repo] = max(self.known(host, repo), *(record[4] for record in kept))

    def read(self, repo: str, during: Period, *, programs: bool) -> list[LedgerRow]:
        """Runs that started in the period, oldest first; ``programs``: include those of programs. Raises StoreError."""
        return self._do(lambda connection: _read(connection, repo, during, programs=programs))

    def close(self) -> None:
        """Close the file; the object cannot be used any more."""
        with self._lock:
            self._connection.close()

    def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            with self._lock:
                return work(self._connection)
        except (sqlite3.Error, msgspec.MsgspecError) as error:
            raise sqlitefile.store_error(self._path, error) from error


def read_hosted(path: Path, repo: str, during: Period) -> list[LedgerRow]:
    """The same with programs, whether or not a gateway is running. Raises StoreError."""
    if not sqlitefile.exists(path):
        return []
    try:
        with closing(sqlitefile.attach(path, writable=not sqlitefile.is_open(path))) as connection:
            return _read(connection, repo, during, programs=True)
    except (sqlite3.Error, msgspec.MsgspecError) as error:
        raise sqlitefile.store_error(path, error) from error


def _read(connection: sqlite3.Connection, repo: str, during: Period, *, programs: bool) -> list[LedgerRow]:
    query = "SELECT row FROM runs WHERE repo = ? AND at >= ? AND at < ? AND program <= ? ORDER BY at"
    found = connection.execute(query, (repo, *during.ends, int(programs)))
    return [msgspec.json.decode(row, type=LedgerRow) for (row,) in found]


def _record(
    host: str,
    repo: str,
    row: LedgerRow,
    program: bool,
) -> tuple[str, str, str, str, str, int, bytes] | None:
    """The row to store; None for an invalid one."""
    try:
        at, ended = as_moment(row.at), as_moment(row.ended)
    except (ValueError, OverflowError):
        return None
    # The link is built here, not taken from the host: the page of costs shows it.
    link = message_url(row.channel, row.thread) if row.thread else ""
    own = replace(row, repo=repo, at=at, ended=ended, link=link)
    data = msgspec.json.encode(own)
    if len(data) > MAX_ROW_BYTES:
        return None
    # Our own model requests have no ID.
    return repo, row.run or f"{at} {row.agent}", host, at, ended, int(program), data
