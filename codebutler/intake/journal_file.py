"""``journal.db`` on disk: its tables, opening it, and the journal's statements.

The standard library's sqlite3, not SQLAlchemy: five tables and a dozen statements, a commit in half the time,
and nothing to load in the parent. A settled entry keeps its key for a month, so that the same event is
recognised, and loses its payload. Only a file of an older revision loads Alembic.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from contextlib import closing
from datetime import datetime, timedelta
from functools import partial
from importlib import import_module
from pathlib import Path

from codebutler.domain.clock import Clock
from codebutler.domain.errors import StoreError
from codebutler.domain.model import Event, MessagePosted
from codebutler.domain.refs import ConversationRef, MessageRef, PersonRef
from codebutler.intake.absence import Arrival
from codebutler.intake.records import LOOK_BACK_S, Gap, SeenMessage
from codebutler.platform import sqlitefile
from codebutler.platform.sqlitefile import Shape, open_at_head

# Every revision of the Alembic chain, oldest first; a test compares the chain with SCHEMA.
REVISIONS = ("0001", "0002", "0003", "0004", "0005", "0006", "0007")
HEAD = REVISIONS[-1]

SCHEMA = (
    """CREATE TABLE entries (
        seq INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
        key TEXT NOT NULL UNIQUE,
        channel TEXT NOT NULL,
        received_at TEXT NOT NULL,
        event TEXT,
        request TEXT
    )""",
    "CREATE INDEX ix_entries_pending ON entries (channel, seq) WHERE event IS NOT NULL",
    """CREATE TABLE channels (
        channel TEXT NOT NULL PRIMARY KEY,
        newest_s REAL NOT NULL,
        floor_s REAL NOT NULL DEFAULT 0,
        gap_s REAL
    )""",
    """CREATE TABLE recent (
        channel TEXT NOT NULL,
        ref TEXT NOT NULL,
        root TEXT NOT NULL,
        user TEXT NOT NULL,
        taken INTEGER NOT NULL,
        sent_at REAL NOT NULL,
        PRIMARY KEY (channel, ref)
    )""",
    "CREATE INDEX ix_recent_root ON recent (channel, root, sent_at)",
    "CREATE INDEX ix_recent_sent_at ON recent (channel, sent_at)",
    "CREATE TABLE notes (name TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL)",
    """CREATE TABLE direct (
        home TEXT NOT NULL,
        item TEXT NOT NULL,
        channel TEXT NOT NULL,
        PRIMARY KEY (home, item)
    )""",
)
VERSION = (
    """CREATE TABLE alembic_version (
        version_num VARCHAR(32) NOT NULL, CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
    )""",
    f"INSERT INTO alembic_version VALUES ('{HEAD}')",  # noqa: S608 - a constant
)

COLUMNS = {
    "entries": frozenset({"seq", "key", "channel", "received_at", "event", "request"}),
    "channels": frozenset({"channel", "newest_s", "floor_s", "gap_s"}),
    "recent": frozenset({"channel", "ref", "root", "user", "taken", "sent_at"}),
    "notes": frozenset({"name", "value"}),
    "direct": frozenset({"home", "item", "channel"}),
}

# The chat's time is exact to a second or two: a position this far ahead was set by a wrong clock,
AHEAD_S = 60
# and if nothing else is known, this much is compared.
LAST_MINUTES_S = 600

# How long a channel's messages are remembered in ``recent``, counted back from its newest one.
REMEMBERED_S = 7 * 86400

# How long a settled event is known: no chat repeats older ones. The newest are always known,
# whatever our clock says.
KNOWN = timedelta(days=30)

# How many threads that started before the fetched history are checked.
MOST_THREADS = 200

# How many events are checked for age.
LATEST = 5000

# How many uploads are known by their file.
KEPT_UPLOADS = 10_000
# How many posts are known to have been sent to the chat.
KEPT_POSTS = 50_000
# Per transaction; events behind it wait.
FORGOTTEN_AT_ONCE = 20_000

# How many messages and files of direct conversations are assigned.
KEPT_DIRECT = 10_000

PendingRow = tuple[int, str, str, str, str]


def open_file(path: Path, clock: Clock) -> sqlite3.Connection:
    """The journal's one connection; creates the file, or migrates it after a backup, if needed.

    Raises StoreTooNewError for a newer CodeButler's file, StoreDamagedError for a damaged or lost one, and
    StoreError for one that is foreign, locked or not writable.
    """
    return open_at_head(path, Shape(HEAD, COLUMNS, _statements), partial(_upgrade, path, clock))


def append(connection: sqlite3.Connection, event: Event, payload: tuple[str, str, str]) -> int | None:
    """Add an entry (``payload``: received_at, event, request); its seq, or None if the key exists."""
    cursor = connection.execute(
        "INSERT INTO entries (key, channel, received_at, event, request) VALUES (?, ?, ?, ?, ?) "
        "ON CONFLICT (key) DO NOTHING",
        (event.key, event.channel, *payload),
    )
    seq = cursor.lastrowid if cursor.rowcount == 1 else None
    if isinstance(event, MessagePosted) and event.origin == "chat":
        remember(connection, event, taken=True)
    return seq


def remember(connection: sqlite3.Connection, message: MessagePosted, *, taken: bool) -> bool:
    """Record a message, as long as catch-up may ask for it; one that was taken stays so. True the first time."""
    query = "SELECT 1 FROM recent WHERE channel = ? AND ref = ?"
    channel, ref = message.channel, message.ref
    is_new = connection.execute(query, (channel, ref)).fetchone() is None
    connection.execute(
        "INSERT INTO recent (channel, ref, root, user, taken, sent_at) VALUES (?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (channel, ref) DO UPDATE SET taken = max(taken, excluded.taken)",
        (channel, ref, message.thread or ref, message.user, taken, message.sent_at),
    )
    connection.execute(
        "INSERT INTO channels (channel, newest_s) VALUES (?, ?) "
        "ON CONFLICT (channel) DO UPDATE SET newest_s = max(newest_s, excluded.newest_s)",
        (channel, message.sent_at),
    )
    return is_new


def keep_channels(connection: sqlite3.Connection, channels: Collection[ConversationRef]) -> None:
    """Forget every other channel's position; the keys of its events stay."""
    known = connection.execute("SELECT channel FROM channels").fetchall()
    gone = [(channel,) for (channel,) in known if channel not in channels]
    connection.executemany("DELETE FROM channels WHERE channel = ?", gone)
    connection.executemany("DELETE FROM recent WHERE channel = ?", gone)


def open_gaps(connection: sqlite3.Connection, channels: Collection[ConversationRef], now_s: float) -> None:
    """From here on messages may be missed, until ``close_gap``. An open gap keeps its start; an unknown
    channel starts now. Positions in the future were set by a wrong clock: they become now, and the channel's
    start the last minutes."""
    for channel in channels:
        connection.execute(
            "UPDATE channels SET newest_s = min(newest_s, ?2), gap_s = min(gap_s, ?2), "
            "floor_s = CASE WHEN floor_s > ?3 THEN ?4 ELSE floor_s END WHERE channel = ?1",
            (channel, now_s, now_s + AHEAD_S, now_s - LAST_MINUTES_S),
        )
        connection.execute(
            "INSERT INTO channels (channel, newest_s, floor_s, gap_s) VALUES (?1, ?2, ?2, ?2) "
            "ON CONFLICT (channel) DO UPDATE SET gap_s = coalesce(gap_s, newest_s)",
            (channel, now_s),
        )
        _forget_recent(connection, channel)


def open_known_gaps(connection: sqlite3.Connection) -> None:
    """From the newest message of each channel on, messages may have been missed."""
    connection.execute("UPDATE channels SET gap_s = coalesce(gap_s, newest_s)")


def resume_at(connection: sqlite3.Connection, position_s: float) -> None:
    """Another process has accepted everything up to here, so nothing older is missing."""
    connection.execute(
        "UPDATE channels SET newest_s = max(newest_s, ?1), gap_s = CASE WHEN gap_s IS NULL THEN NULL ELSE ?1 END",
        (position_s,),
    )


def oldest_gap(connection: sqlite3.Connection) -> float | None:
    """From when on messages may be missing in some channel; None if in none."""
    (found,) = connection.execute("SELECT min(gap_s) FROM channels").fetchone()
    return None if found is None else float(found)


def close_gap(connection: sqlite3.Connection, channel: ConversationRef) -> None:
    """Close the channel's gap: all of it has been accepted."""
    connection.execute("UPDATE channels SET gap_s = NULL WHERE channel = ?", (channel,))


def gap(connection: sqlite3.Connection, channel: ConversationRef, old_root: str) -> Gap | None:
    """The channel's open gap, None if there is none. Reads little, however much was said."""
    found = connection.execute(
        "SELECT gap_s, floor_s FROM channels WHERE channel = ? AND gap_s IS NOT NULL", (channel,)
    ).fetchone()
    if found is None:
        return None
    since_s, floor_s = found
    (first_root,) = connection.execute(
        "SELECT min(root) FROM recent WHERE channel = ?", (channel,)
    ).fetchone()
    # SQLite: beside max() the other columns are those of the row that has it.
    beyond = connection.execute(
        "SELECT ref, root, user, taken, max(sent_at) FROM recent WHERE channel = ? AND root <= ? "
        "GROUP BY root ORDER BY 5 DESC LIMIT ?",
        (channel, old_root, MOST_THREADS),
    ).fetchall()
    known = seen_after(connection, channel, since_s - LOOK_BACK_S)
    return Gap(channel, since_s, floor_s, known, first_root or "", tuple(map(_seen, beyond)))


def seen_after(
    connection: sqlite3.Connection, channel: ConversationRef, after_s: float
) -> tuple[SeenMessage, ...]:
    """Every recorded message of a channel that was written after ``after_s``, oldest first."""
    rows = connection.execute(
        "SELECT ref, root, user, taken, sent_at FROM recent WHERE channel = ? AND sent_at > ? ORDER BY sent_at",
        (channel, after_s),
    )
    return tuple(map(_seen, rows))


def drop_payloads(connection: sqlite3.Connection, seqs: Collection[int]) -> None:
    """Settle these entries."""
    rows = [(seq,) for seq in seqs]
    connection.executemany("UPDATE entries SET event = NULL, request = NULL WHERE seq = ?", rows)


def pending_rows(connection: sqlite3.Connection) -> list[PendingRow]:
    """The unsettled entries, in order: (seq, channel, received_at, event, request)."""
    return connection.execute(
        "SELECT seq, channel, received_at, event, request FROM entries INDEXED BY ix_entries_pending "
        "WHERE event IS NOT NULL ORDER BY seq"
    ).fetchall()


def mark(connection: sqlite3.Connection, channel: ConversationRef) -> float:
    """When the newest message of the channel was written, 0 if none is known."""
    found = connection.execute("SELECT newest_s FROM channels WHERE channel = ?", (channel,)).fetchone()
    return float(found[0]) if found else 0.0


def arrivals(connection: sqlite3.Connection, channel: ConversationRef, since_s: float) -> tuple[Arrival, ...]:
    """The channel's accepted messages written from ``since_s`` on, as far as they are recorded."""
    rows = connection.execute(
        "SELECT sent_at, received_at FROM recent JOIN entries "
        "ON entries.key = 'message:' || recent.channel || ':' || recent.ref "
        "WHERE recent.channel = ? AND sent_at >= ? ORDER BY sent_at",
        (channel, since_s),
    )
    return tuple(Arrival(sent_at, datetime.fromisoformat(received_at)) for sent_at, received_at in rows)


def newest_before(connection: sqlite3.Connection, channel: ConversationRef, moment_s: float) -> float:
    """When the last recorded message before a moment was written, 0 if none is."""
    query = "SELECT max(sent_at) FROM recent WHERE channel = ? AND sent_at < ?"
    found = connection.execute(query, (channel, moment_s)).fetchone()
    return float(found[0] or 0.0)


def note(connection: sqlite3.Connection, name: str) -> str:
    """A note, "" if there is none."""
    found = connection.execute("SELECT value FROM notes WHERE name = ?", (name,)).fetchone()
    return str(found[0]) if found else ""


def keep_note(connection: sqlite3.Connection, name: str, value: str) -> None:
    """Store a note, replacing an earlier one."""
    connection.execute(
        "INSERT INTO notes (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        (name, value),
    )


def place_direct(
    connection: sqlite3.Connection, home: ConversationRef, channel: ConversationRef, items: Collection[str]
) -> None:
    """These messages and files of a direct conversation belong to the repository of channel ``home``."""
    connection.executemany(
        "INSERT INTO direct (home, item, channel) VALUES (?1, ?2, ?3) "
        "ON CONFLICT (home, item) DO UPDATE SET channel = excluded.channel",
        [(home, item, channel) for item in items],
    )


def placed_direct(connection: sqlite3.Connection) -> list[tuple[ConversationRef, str, ConversationRef]]:
    """The latest assignments of ``place_direct``, oldest first: (home, item, channel)."""
    rows = connection.execute(
        "SELECT home, item, channel FROM direct ORDER BY rowid DESC LIMIT ?", (KEPT_DIRECT,)
    ).fetchall()
    return rows[::-1]


def forget_old(connection: sqlite3.Connection, now: datetime) -> None:
    """Delete what nobody asks for any more."""
    # Reads the oldest only, not the young ones.
    connection.execute(
        "DELETE FROM entries WHERE seq IN (SELECT seq FROM (SELECT seq, event, received_at FROM entries "
        "ORDER BY seq LIMIT ?3) WHERE event IS NULL AND received_at < ?1 "
        "AND seq <= (SELECT max(seq) FROM entries) - ?2)",
        ((now - KNOWN).isoformat(), LATEST, FORGOTTEN_AT_ONCE),
    )
    connection.execute(
        "DELETE FROM direct WHERE rowid <= (SELECT rowid FROM direct ORDER BY rowid DESC LIMIT 1 OFFSET ?)",
        (KEPT_DIRECT,),
    )
    for names, kept in (("upload:%", KEPT_UPLOADS), ("sent:%", KEPT_POSTS)):
        connection.execute(
            "DELETE FROM notes WHERE name LIKE ?1 AND rowid <= ("
            "SELECT rowid FROM notes WHERE name LIKE ?1 ORDER BY rowid DESC LIMIT 1 OFFSET ?2)",
            (names, kept),
        )
    for (channel,) in connection.execute("SELECT channel FROM channels").fetchall():
        _forget_recent(connection, channel)


def _forget_recent(connection: sqlite3.Connection, channel: ConversationRef) -> None:
    query = "SELECT coalesce(gap_s, newest_s) FROM channels WHERE channel = ?"
    (newest_s,) = connection.execute(query, (channel,)).fetchone()
    connection.execute(
        "DELETE FROM recent WHERE channel = ? AND sent_at < ?", (channel, newest_s - REMEMBERED_S)
    )


def _seen(row: tuple[str, str, str, int, float]) -> SeenMessage:
    ref, root, user, taken, sent_at = row
    return SeenMessage(MessageRef(ref), MessageRef(root), PersonRef(user), bool(taken), sent_at)


def _statements() -> tuple[str, ...]:
    return (*SCHEMA, *VERSION)


def revision_of(path: Path) -> str:
    """The revision of the file, "" if there is none yet; changes nothing. Raises StoreTooNewError for a newer
    CodeButler's file, and StoreError for one that is damaged, foreign or not readable."""
    if not sqlitefile.exists(path):
        return ""
    try:
        with closing(sqlitefile.attach(path, writable=not sqlitefile.is_open(path))) as connection:
            found = sqlitefile.examine(connection, path)
    except sqlite3.Error as error:
        raise sqlitefile.store_error(path, error) from error
    _refuse_foreign(path, found)
    return found.revision or "base"


def _upgrade(path: Path, clock: Clock, found: sqlitefile.StoredContents) -> None:
    _refuse_foreign(path, found)
    sqlitefile.backup(path, clock.now())
    # By name: Alembic is loaded only if it is needed.
    import_module("codebutler_migrations.runner").upgrade("journal", path)


def _refuse_foreign(path: Path, found: sqlitefile.StoredContents) -> None:
    if found.revision is None:
        raise StoreError(f"{path} is not a CodeButler journal: move it away")
    if found.revision and found.revision not in REVISIONS:
        raise sqlitefile.too_new(path, found)
