"""The daily backups of a file in use, and what becomes of a file that is lost or damaged."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from codebutler.domain.errors import StoreDamagedError, StoreError, StoreTooNewError
from codebutler.platform.backups import Backups, DailyBackups
from codebutler_worker.store.opening import open_store
from codebutler_worker.store.rows import InboxRow
from tests.clock import ManualClock

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
BEFORE, AFTER = 200, 50
DEADLINE_S = 20.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "repo").mkdir()
    return tmp_path / "repo" / ".codebutler" / "store.db"


@pytest.fixture
def backups(tmp_path: Path, path: Path) -> Backups:
    return Backups(tmp_path / "home" / "backups", path)


async def fill(path: Path, numbers: range) -> None:
    async with open_store(path, ManualClock()) as store:
        await store.run(
            lambda uow: [
                uow.inbox.add(InboxRow(f"message:C1:{number:06}", number), known="keep") for number in numbers
            ]
        )


def rows(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA quick_check").fetchone() == ("ok",)
        (count,) = connection.execute("SELECT count(*) FROM inbox").fetchone()
    assert isinstance(count, int)
    return count


@pytest.fixture
async def used(path: Path, backups: Backups) -> Path:
    """A store with a backup of ``BEFORE`` rows and ``AFTER`` more since."""
    await fill(path, range(BEFORE))
    assert backups.take_if_due(NOON) == backups.file(date(2026, 3, 10))
    await fill(path, range(BEFORE, BEFORE + AFTER))
    return path


async def test_a_backup_a_day_is_taken_and_a_week_is_kept(path: Path, backups: Backups) -> None:
    await fill(path, range(3))
    for day in range(10):
        now = NOON + timedelta(days=day)
        assert backups.take_if_due(now) is not None
        assert backups.take_if_due(now + timedelta(hours=11)) is None
    assert sorted(backups.days()) == [date(2026, 3, day) for day in range(13, 20)]
    file = backups.file(date(2026, 3, 19))
    assert file.stat().st_mode & 0o777 == 0o600
    assert {where.stat().st_mode & 0o777 for where in (file.parent, file.parent.parent)} == {0o700}
    assert rows(file) == 3
    assert {other.suffix for other in file.parent.iterdir()} == {".db"}


async def test_a_backup_taken_while_it_is_written_holds_one_moment(path: Path, backups: Backups) -> None:
    async with open_store(path, ManualClock()) as store:
        taken: list[int] = []
        for number in range(60):
            await store.run(lambda uow, n=number: uow.inbox.add(InboxRow(f"k{2 * n}", n), known="keep"))  # type: ignore[misc]  # defaults of a lambda
            copying = asyncio.create_task(
                asyncio.to_thread(backups.take_if_due, NOON + timedelta(days=number))
            )
            await store.run(lambda uow, n=number: uow.inbox.add(InboxRow(f"k{2 * n + 1}", n), known="keep"))  # type: ignore[misc]  # defaults of a lambda
            file = await copying
            assert file is not None
            taken.append(rows(file))
    assert all(count in (2 * number + 1, 2 * number + 2) for number, count in enumerate(taken))


def truncated(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def overwritten(path: Path) -> None:
    path.write_bytes(b"no database at all" * 300)


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    with closing(sqlite3.connect(path)) as connection:
        page = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'inbox'").fetchone()[0]
    content[(page - 1) * 4096] ^= 0x08
    path.write_bytes(content)


def renamed_table(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE inbox", b"CREATE TABLE inbix"))


@pytest.mark.parametrize("harm", [truncated, emptied, overwritten, flipped, renamed_table])
async def test_a_damaged_store_is_restored_and_kept_aside(
    used: Path, backups: Backups, harm: Callable[[Path], None]
) -> None:
    harm(used)
    broken = used.read_bytes()
    async with open_store(used, ManualClock(NOON), backups) as store:
        restored = store.restored
    assert restored is not None
    assert restored.aside == used.with_name("store.db.damaged-20260310T120000Z")
    assert restored.aside.read_bytes() == broken
    assert "Restored from the backup of" in str(restored)
    assert rows(used) == BEFORE
    async with open_store(used, ManualClock(), backups) as store:
        assert store.restored is None


async def test_a_lost_store_is_restored(used: Path, backups: Backups) -> None:
    """As `git clean -fdx` leaves it: the backups are out of its reach."""
    shutil.rmtree(used.parent)
    async with open_store(used, ManualClock(), backups) as store:
        assert store.restored is not None
        assert store.restored.aside is None
        assert "is missing" in str(store.restored)
    assert rows(used) == BEFORE


async def test_a_store_that_never_was_is_created_without_a_word(path: Path, backups: Backups) -> None:
    async with open_store(path, ManualClock(), backups) as store:
        assert store.restored is None
    assert rows(path) == 0


async def test_a_damaged_backup_is_passed_over(used: Path, backups: Backups) -> None:
    newer = backups.take_if_due(NOON + timedelta(days=1))
    assert newer is not None
    truncated(newer)
    flipped(used)
    async with open_store(used, ManualClock(NOON + timedelta(days=1)), backups) as store:
        assert store.restored is not None
    assert rows(used) == BEFORE


async def test_without_a_good_backup_it_is_refused_and_left_as_it_is(used: Path, backups: Backups) -> None:
    overwritten(backups.file(date(2026, 3, 10)))
    truncated(used)
    broken = used.read_bytes()
    for _ in range(2):
        with pytest.raises(StoreDamagedError, match="put a backup"):
            open_store(used, ManualClock(), backups)
    assert used.read_bytes() == broken
    used.unlink()
    with pytest.raises(StoreDamagedError, match="is missing"):
        open_store(used, ManualClock(), backups)
    assert not used.exists()


async def test_a_newer_store_is_refused_and_not_replaced(used: Path, backups: Backups) -> None:
    with closing(sqlite3.connect(used)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(StoreTooNewError) as caught:
        open_store(used, ManualClock(), backups)
    assert caught.value.exit_code == 78
    assert rows(used) == BEFORE + AFTER


async def test_trouble_with_the_disk_is_no_damage(used: Path, backups: Backups) -> None:
    with closing(sqlite3.connect(used, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreError) as caught:
            open_store(used, ManualClock(), backups)
    assert not isinstance(caught.value, StoreDamagedError)
    assert rows(used) == BEFORE + AFTER


@pytest.mark.parametrize("left", ["the WAL", "the half copied backup", "nothing"])
async def test_a_restore_that_was_cut_short_is_done_again(used: Path, backups: Backups, left: str) -> None:
    used.rename(used.with_name("store.db.damaged-20260310T110000Z"))
    if left == "the WAL":
        used.with_name("store.db-wal").write_bytes(b"what the damaged file had not yet taken in")
    elif left == "the half copied backup":
        used.with_name("store.db.new").write_bytes(b"half")
    async with open_store(used, ManualClock(), backups) as store:
        assert store.restored is not None
    assert rows(used) == BEFORE


async def test_a_damaged_file_takes_no_backups_place(used: Path, backups: Backups) -> None:
    flipped(used)
    with pytest.raises(StoreDamagedError):
        backups.take_if_due(NOON + timedelta(days=1))
    assert backups.days() == [date(2026, 3, 10)]
    assert [file.suffix for file in backups.file(date(2026, 3, 10)).parent.iterdir()] == [".db"]


async def test_an_index_that_disagrees_is_found_by_the_backup(used: Path, backups: Backups) -> None:
    """Which opening the store, in a hurry, does not see."""
    table = used.read_bytes().index(b"message:C1:000007")
    content = bytearray(used.read_bytes())
    content[table + 14] ^= 0x01
    used.write_bytes(content)
    await open_store(used, ManualClock(), backups).close()
    with pytest.raises(StoreDamagedError):
        backups.take_if_due(NOON + timedelta(days=1))


async def test_any_flipped_bit_is_harmless_restored_or_refused(used: Path, backups: Backups) -> None:
    """Never a store that has silently forgotten: with fewer rows than the backup, or none."""
    whole, dice = used.read_bytes(), random.Random(5)
    outcomes = {"opened": 0, "restored": 0, "refused": 0}
    for number in range(150):
        content = bytearray(whole)
        # Half of them where it hurts: in a page's first bytes.
        page, offset = dice.randrange(len(whole) // 4096), dice.randrange(100 if number % 2 else 4096)
        content[page * 4096 + offset] ^= 1 << dice.randrange(8)
        used.write_bytes(content)
        try:
            async with open_store(used, ManualClock(), backups) as store:
                outcomes["restored" if store.restored else "opened"] += 1
        except StoreError:
            outcomes["refused"] += 1
            continue
        assert rows(used) >= BEFORE
    assert outcomes["opened"] > 10
    assert outcomes["restored"] > 10


async def test_the_keeper_takes_one_at_once_and_one_each_day(path: Path, backups: Backups) -> None:
    clock, troubles = ManualClock(NOON), list[str]()
    await fill(path, range(3))
    async with DailyBackups(backups, clock, troubles.append):
        await until(lambda: backups.days() == [date(2026, 3, 10)])
        await until(lambda: len(backups.days()) == 2, clock)
    assert troubles == []


async def test_a_keeper_that_cannot_says_so_and_tries_again(path: Path, backups: Backups) -> None:
    clock, troubles = ManualClock(NOON), list[str]()
    await fill(path, range(3))
    obstacle = backups.file(date(2026, 3, 10)).parent
    obstacle.parent.mkdir()
    obstacle.write_text("a file in the directory's place")
    async with DailyBackups(backups, clock, troubles.append):
        await until(lambda: bool(troubles))
        assert "could not take a backup" in troubles[0]
        obstacle.unlink()
        await until(lambda: backups.days() == [date(2026, 3, 10)], clock)


async def test_a_copy_is_broken_off_when_asked(used: Path, tmp_path: Path, backups: Backups) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(StoreError, match="cancelled"):
        backups.take_if_due(NOON + timedelta(days=1), stop)
    assert backups.days() == [date(2026, 3, 10)]


async def until(condition: Callable[[], bool], clock: ManualClock | None = None) -> None:
    """A thread does the work: look at what it has done, while the clock (if any) runs on."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            if clock is not None:
                await clock.advance(600)
            await asyncio.to_thread(condition)
