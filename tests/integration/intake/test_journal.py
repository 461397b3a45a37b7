"""The journal over a real file: order, dedupe, group commit, settling, files good and bad."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from codebutler.domain.errors import StoreError, StoreTooNewError
from codebutler.domain.model import (
    Command,
    Event,
    MessagePosted,
    NoRequest,
    Prompt,
    Request,
)
from codebutler.intake import journal_file
from codebutler.intake.journal import Journal
from codebutler.intake.journal_writer import GATHERED
from codebutler.intake.records import Entry, SeenMessage
from codebutler_migrations import runner
from tests.clock import ManualClock
from tests.events import clicked, deleted, edited, posted, slashed


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


@pytest.fixture
async def journal(path: Path) -> AsyncIterator[Journal]:
    async with Journal.open(path, ManualClock()) as opened:
        yield opened


def a_message(number: int, channel: str = "C1", text: str = "hello") -> MessagePosted:
    return posted(channel=channel, ref=f"1700000000.{number:06}", user="U1", text=text)


async def put(journal: Journal, number: int, channel: str = "C1") -> Entry:
    entry = await journal.append(a_message(number, channel), Prompt(text="hello"))
    assert entry is not None
    return entry


EVERY_KIND: list[tuple[Event, Request]] = [
    (a_message(1, text="tabs\tand \u2028 and 👋 and \0"), Prompt(text="x", prefix="kimi")),
    (edited(channel="C1", ref="1.0", user="U1", text="new", edit="2.0"), Command(name="stop")),
    (deleted(channel="C1", ref="1.0", user="U1", thread="0.5"), NoRequest()),
    (
        slashed(channel="C1", user="U1", command="/butler", text="status", invocation="t.1"),
        Command(name="status"),
    ),
    (
        clicked(channel="C1", user="U1", message="1.0", action_id="codebutler.stop", value="v", press="3.0"),
        NoRequest(),
    ),
]


async def test_every_kind_of_event_comes_back_as_it_was(path: Path) -> None:
    async with Journal.open(path, ManualClock()) as journal:
        entries = [await journal.append(event, request) for event, request in EVERY_KIND]
    async with Journal.open(path, ManualClock()) as journal:
        assert await journal.pending() == entries
    assert [(e.event, e.request) for e in entries if e] == EVERY_KIND
    assert entries[0] is not None
    assert entries[0].received_at == datetime(2026, 1, 1, tzinfo=UTC)


async def test_an_entry_is_on_disk_when_append_returns(journal: Journal, path: Path) -> None:
    await put(journal, 1)
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT key FROM entries").fetchall() == [("message:C1:1700000000.000001",)]


async def test_an_event_is_taken_once_for_ever(path: Path) -> None:
    async with Journal.open(path, ManualClock()) as journal:
        entry = await put(journal, 1)
        assert await journal.append(a_message(1), Prompt(text="hello")) is None
        await journal.settle(entry.seq)
        assert await journal.append(a_message(1), Prompt(text="hello")) is None
    async with Journal.open(path, ManualClock()) as journal:
        assert await journal.append(a_message(1, text="changed"), Prompt(text="hello")) is None
        assert await journal.pending() == []
        assert journal.pending_count == 0


async def test_the_same_event_twice_in_one_commit_is_one_entry(journal: Journal) -> None:
    both = await asyncio.gather(*(journal.append(a_message(1), Prompt(text="x")) for _ in range(2)))
    assert [entry is None for entry in both] == [False, True]


async def test_a_burst_shares_commits_and_keeps_its_order(journal: Journal) -> None:
    commits: list[str] = []
    held, go = threading.Event(), threading.Event()

    def hold(_: sqlite3.Connection) -> None:
        held.set()
        go.wait(10)

    # The writer stands still within a read while the burst arrives.
    reading = asyncio.create_task(journal._read(hold))
    await asyncio.to_thread(held.wait, 10)
    journal._writer._connection.set_trace_callback(commits.append)
    burst = [asyncio.create_task(put(journal, number)) for number in range(1000)]
    await asyncio.sleep(0)
    go.set()
    entries = await asyncio.gather(*burst)
    await reading
    assert [entry.seq for entry in entries] == list(range(1, 1001))
    assert [entry.event for entry in entries] == [a_message(number) for number in range(1000)]
    assert commits.count("COMMIT") == 2


async def test_a_settled_entry_loses_its_payload_and_keeps_its_key(path: Path) -> None:
    async with Journal.open(path, ManualClock()) as journal:
        entries = [await put(journal, number) for number in range(3)]
        await journal.settle(entries[1].seq)
        await journal.settle(entries[1].seq)
        await journal.settle(99)
        assert journal.pending_count == 2
        assert await journal.pending() == [entries[0], entries[2]]
    await journal.settle(entries[0].seq)
    with closing(sqlite3.connect(path)) as other:
        kept = other.execute("SELECT seq, event IS NULL, request IS NULL FROM entries").fetchall()
    assert kept == [(1, 0, 0), (2, 1, 1), (3, 0, 0)]


async def test_settling_alone_reaches_the_disk_soon(journal: Journal, path: Path) -> None:
    written = threading.Event()
    entry = await put(journal, 1)
    trace = written.set
    journal._writer._connection.set_trace_callback(
        lambda statement: trace() if statement == "COMMIT" else None
    )
    await journal.settle(entry.seq)
    assert await asyncio.to_thread(written.wait, 10)
    assert await journal.high_water("C1")
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT event FROM entries").fetchall() == [(None,)]


async def test_no_event_waits_for_what_is_settled_which_is_written_all_the_same(
    journal: Journal, path: Path
) -> None:
    statements: list[str] = []
    journal._writer._connection.set_trace_callback(lambda statement: statements.append(statement.split()[0]))
    for number in range(2 * GATHERED):
        await journal.settle((await put(journal, number)).seq)
    await put(journal, 2 * GATHERED)
    transactions = [each.split() for each in " ".join(statements).split("COMMIT")]
    assert not [each for each in transactions if "INSERT" in each and "UPDATE" in each]
    with closing(sqlite3.connect(path)) as other:
        left = other.execute("SELECT count(*) FROM entries WHERE event IS NOT NULL").fetchone()
    assert left[0] <= GATHERED + 1


async def test_what_is_pending_is_in_order_of_all_channels(journal: Journal) -> None:
    first, second = await put(journal, 1, "C1"), await put(journal, 1, "C2")
    assert await journal.pending() == [first, second]


async def test_the_high_water_mark_is_the_newest_slack_message(path: Path) -> None:
    async with Journal.open(path, ManualClock()) as journal:
        assert await journal.high_water("C1") == 0.0
        await put(journal, 5)
        await put(journal, 3)
        await put(journal, 9, "C2")
        local = posted(channel="C1", ref="1800000000.000000", user="U1", text="x", origin="local")
        await journal.append(local, Prompt(text="x"))
        edit = edited(channel="C1", ref="1700000000.000007", user="U1", text="x", edit="1.0")
        await journal.append(edit, Prompt(text="x"))
    async with Journal.open(path, ManualClock()) as journal:
        assert await journal.high_water("C1") == 1700000000.000005
        assert await journal.high_water("C2") == 1700000000.000009


async def test_a_cancelled_append_harms_nobody(journal: Journal) -> None:
    cancelled = [asyncio.create_task(put(journal, number)) for number in range(5)]
    await asyncio.sleep(0)
    for task in cancelled:
        task.cancel()
    await asyncio.gather(*cancelled, return_exceptions=True)
    entry = await put(journal, 100)
    pending = await journal.pending()
    assert pending[-1] == entry
    assert journal.pending_count == len(pending)


async def test_a_closed_journal_says_so(path: Path) -> None:
    journal = Journal.open(path, ManualClock())
    await journal.close()
    await journal.close()
    with pytest.raises(StoreError, match="is closed"):
        await put(journal, 1)
    assert not [t for t in threading.enumerate() if t.name == "journal"]


async def test_a_new_journal_is_private_and_durable(path: Path) -> None:
    async with Journal.open(path, ManualClock()) as journal:
        await put(journal, 1)
        assert {f.stat().st_mode & 0o777 for f in path.parent.glob("journal.db*")} == {0o600}
        connection = journal._writer._connection
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)


def test_the_chain_is_the_constants_and_the_schema(path: Path, tmp_path: Path) -> None:
    assert runner.revisions("journal") == journal_file.REVISIONS
    journal_file.open_file(path, ManualClock()).close()
    migrated = tmp_path / "migrated.db"
    migrated.write_bytes(path.read_bytes())
    runner.downgrade("journal", migrated, "base")
    journal_file.open_file(migrated, ManualClock()).close()
    columns = """SELECT m.name, c.name, c.type, c."notnull", c.dflt_value, c.pk
        FROM sqlite_master m, pragma_table_info(m.name) c ORDER BY 1, 2"""
    indexes = "SELECT tbl_name, name, sql FROM sqlite_master WHERE type = 'index' ORDER BY 1, 2"
    with closing(sqlite3.connect(path)) as new, closing(sqlite3.connect(migrated)) as old:
        assert new.execute(columns).fetchall() == old.execute(columns).fetchall()
        assert new.execute(indexes).fetchall() == old.execute(indexes).fetchall()
    assert len(list(tmp_path.glob("migrated.db.*.bak"))) == 1


async def test_a_channel_known_from_before_takes_nothing_older_than_its_newest(path: Path) -> None:
    """What an older CodeButler took in is not remembered, so it must not be fetched as new."""
    async with Journal.open(path, ManualClock()) as journal:
        await put(journal, 1)
    runner.downgrade("journal", path, "0001")
    async with Journal.open(path, ManualClock()) as journal:
        assert await journal.high_water("C1") == a_message(1).sent_at
        await journal.open_gaps(["C1"], ManualClock().now())
        gap = await journal.gap("C1")
        assert gap is not None
        assert (gap.since_s, gap.floor_s, gap.known) == (a_message(1).sent_at, a_message(1).sent_at, ())


async def test_messages_are_remembered_for_a_week_back_from_the_newest_or_from_the_gap(
    journal: Journal,
) -> None:
    days = [f"{1700000000 + day * 86400}.000000" for day in range(10)]
    for channel in ("C1", "C2"):
        for ts in days[:5]:
            await journal.append(posted(channel=channel, ref=ts, user="U1", text="x"), NoRequest())
    await journal.open_gaps(["C2"], ManualClock().now())
    for channel in ("C1", "C2"):
        for ts in days[5:]:
            await journal.append(posted(channel=channel, ref=ts, user="U1", text="x"), NoRequest())
    await journal.forget_old(ManualClock().now())
    assert [seen.ref for seen in await journal.seen("C1")] == days[2:]
    assert [seen.ref for seen in await journal.seen("C2")] == days


def test_settled_events_are_forgotten_after_a_month_but_for_the_newest(path: Path) -> None:
    clock = ManualClock()
    old = (clock.now() - timedelta(days=31)).isoformat()
    connection = journal_file.open_file(path, clock)
    with closing(connection), connection:
        for number in range(journal_file.LATEST + 10):
            event = posted(channel="C1", ref=f"{number}.0", user="U1", text="x", origin="local")
            seq = journal_file.append(connection, event, (old, "{}", "{}"))
            assert seq is not None
            if number != 3:
                journal_file.drop_payloads(connection, [seq])
        recent = (clock.now() - timedelta(days=29)).isoformat()
        connection.execute("UPDATE entries SET received_at = ? WHERE seq = 6", (recent,))
        journal_file.forget_old(connection, clock.now())
        left = connection.execute("SELECT seq FROM entries ORDER BY seq LIMIT 3").fetchall()
    assert left == [(4,), (6,), (11,)]  # one that waits, one of this month, the newest


async def test_a_gap_in_a_long_history_is_found_by_indexes(path: Path) -> None:
    """However many messages are remembered, few are read; each of these statements runs at every loss."""
    statements: list[str] = []
    connection = journal_file.open_file(path, ManualClock())
    with closing(connection):
        for number in range(2000):
            ts = f"{1700000000 + number * 60}.000000"
            root = f"{1700000000 + number // 3 * 180}.000000"
            message = posted(channel="C1", ref=ts, user="U1", text="x", thread=None if root == ts else root)
            journal_file.remember(connection, message, taken=True)
        now = datetime.fromtimestamp(1700000000 + 2000 * 60, UTC)
        journal_file.open_gaps(connection, ("C1",), now.timestamp())
        connection.set_trace_callback(statements.append)
        gap = journal_file.gap(connection, "C1", "1699000000.000000")
        journal_file.newest_before(connection, "C1", now.timestamp())
        journal_file.arrivals(connection, "C1", now.timestamp() - 3600)
        journal_file.pending_rows(connection)
        journal_file.open_gaps(connection, ("C1",), now.timestamp())
        connection.set_trace_callback(None)
        plans = [row[3] for each in statements for row in connection.execute(f"EXPLAIN QUERY PLAN {each}")]
    assert gap is not None
    assert len(gap.known) == 60
    assert gap.first_root == "1700000000.000000"
    assert gap.beyond == ()
    scanned = [plan for plan in plans if plan.startswith("SCAN")]
    assert scanned == ["SCAN entries USING INDEX ix_entries_pending"]


async def test_threads_that_began_before_what_history_tells_are_known_by_their_last_message(
    journal: Journal,
) -> None:
    day_s = 86400
    root = f"{1700000000 - 9 * day_s}.000000"
    for number in (3, 2):
        ts = f"{1700000000 - number * 60}.000000"
        message = posted(channel="C1", ref=ts, user="U1", text="x", thread=root)
        await journal.append(message, NoRequest())
    now = datetime.fromtimestamp(1700000000, UTC)
    await journal.open_gaps(["C1"], now)
    gap = await journal.gap("C1", f"{1700000000 - 7 * day_s}.000000")
    assert gap is not None
    assert gap.first_root == root
    assert gap.beyond == (
        SeenMessage(f"{1700000000 - 120}.000000", root, "U1", taken=True, sent_at=1700000000 - 120),
    )


async def test_a_gap_stays_open_and_as_wide_until_it_is_closed(path: Path) -> None:
    async with Journal.open(path, ManualClock()) as journal:
        await put(journal, 1)
        await journal.open_gaps(["C1"], ManualClock().now())
        await put(journal, 2)
    async with Journal.open(path, ManualClock()) as journal:
        await journal.open_gaps(["C1"], ManualClock().now())
        gap = await journal.gap("C1")
        assert gap is not None
        assert gap.since_s == a_message(1).sent_at
        assert [seen.ref for seen in gap.known] == [a_message(1).ref, a_message(2).ref]
        await journal.close_gap("C1")
        assert await journal.gap("C1") is None


@pytest.mark.parametrize(
    ("script", "message", "error"),
    [
        (
            "UPDATE alembic_version SET version_num = '0999'",
            "newer CodeButler .revision 0999",
            StoreTooNewError,
        ),
        ("DROP TABLE alembic_version", "is not a CodeButler journal", StoreError),
        ("CREATE TRIGGER t AFTER INSERT ON entries BEGIN SELECT 1; END", "foreign trigger", StoreError),
    ],
)
async def test_a_file_that_is_not_ours_is_refused(
    path: Path, script: str, message: str, error: type[StoreError]
) -> None:
    await Journal.open(path, ManualClock()).close()
    with closing(sqlite3.connect(path)) as other:
        other.executescript(script)
    with pytest.raises(error, match=message):
        Journal.open(path, ManualClock())


@pytest.mark.parametrize("content", [b"", b"not a database at all, but of some length " * 50])
async def test_a_damaged_journal_is_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(StoreError, match="put a backup"):
        Journal.open(path, ManualClock())
    assert path.read_bytes() == content


async def test_an_unreadable_entry_is_named(journal: Journal, path: Path) -> None:
    await put(journal, 1)
    with closing(sqlite3.connect(path)) as other, other:
        other.execute("UPDATE entries SET event = '{}'")
    with pytest.raises(StoreError, match="entry 1 cannot be read"):
        await journal.pending()


def test_a_journal_opens_without_alembic_and_sqlalchemy(path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from codebutler.domain.clock import SystemClock\n"
        "from codebutler.intake.journal import Journal\n"
        "Journal.open(Path(sys.argv[1]), SystemClock())\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('alembic', 'sqlalchemy')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


async def test_a_note_outlives_the_journal_that_took_it(path: Path) -> None:
    async with Journal.open(path, ManualClock()) as journal:
        assert await journal.note("alive") == ""
        await journal.keep_note("alive", "once")
        await journal.keep_note("alive", "twice")
    async with Journal.open(path, ManualClock()) as journal:
        assert await journal.note("alive") == "twice"


@pytest.mark.parametrize(
    ("kind", "kept"), [("upload", journal_file.KEPT_UPLOADS), ("sent", journal_file.KEPT_POSTS)]
)
async def test_the_latest_uploads_and_posts_are_known_and_other_notes_stay(
    kind: str, kept: int, path: Path
) -> None:
    async with Journal.open(path, ManualClock()) as journal:
        await journal.keep_note("alive", "once")
    rows = [(f"{kind}:C1:op-{number}", f"F{number}") for number in range(kept + 2)]
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executemany("INSERT INTO notes (name, value) VALUES (?, ?)", rows)
    async with Journal.open(path, ManualClock()) as journal:
        await journal.forget_old(ManualClock().now())
        assert [await journal.note(name) for name, _ in rows[:4]] == ["", "", "F2", "F3"]
        assert await journal.note(rows[-1][0]) == rows[-1][1]
        assert await journal.note("alive") == "once"
