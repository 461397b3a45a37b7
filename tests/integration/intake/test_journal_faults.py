"""The journal when the disk or the process fails: nothing acknowledged is lost, and it recovers by itself."""

from __future__ import annotations

import asyncio
import os
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from codebutler.domain.errors import StoreError
from codebutler.domain.model import MessagePosted, Prompt
from codebutler.intake.journal import Journal
from tests.clock import ManualClock
from tests.events import posted


def a_message(number: int, text: str = "hello") -> MessagePosted:
    return posted(channel="C1", ref=f"1700000000.{number:06}", user="U1", text=text)


def numbers_in(path: Path) -> set[int]:
    """Which messages the file holds."""
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        keys = connection.execute("SELECT key FROM entries").fetchall()
    return {int(key.rpartition(".")[2]) for (key,) in keys}


WRITING = """
import asyncio, sys
from pathlib import Path
from codebutler.domain.clock import SystemClock
from codebutler.intake.journal import Journal
from codebutler.domain.model import MessagePosted, Prompt

async def one(journal, number):
    ts = f"1700000000.{number:06}"
    facts = {"sent_at": float(ts), "order": ts, "is_direct": False}
    event = MessagePosted(channel="C1", ref=ts, user="U1", text="x" * (number % 3000), **facts)
    entry = await journal.append(event, Prompt(text="x"))
    print(number, flush=True)  # the acknowledgement
    if number % 3 == 0:
        await journal.settle(entry.seq)

async def main():
    async with Journal.open(Path(sys.argv[1]), SystemClock()) as journal:
        number = int(sys.argv[2])
        while True:
            await asyncio.gather(*(one(journal, number + n) for n in range(7)))
            number += 7

asyncio.run(main())
"""


def test_sigkill_loses_no_acknowledged_entry(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    acknowledged: set[int] = set()
    dice = random.Random(7)
    for life in range(6):
        child = subprocess.Popen(
            [sys.executable, "-c", WRITING, str(path), str(life * 100_000)], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        for _ in range(dice.randint(1, 400)):
            acknowledged.add(int(child.stdout.readline()))
        child.send_signal(signal.SIGKILL)
        acknowledged.update(
            int(line) for line in child.stdout.read().splitlines(keepends=True) if "\n" in line
        )
        child.stdout.close()
        child.wait(10)
        assert acknowledged <= numbers_in(path)
    assert len(acknowledged) > 100


async def test_what_a_power_cut_may_tear_off_was_never_acknowledged(tmp_path: Path) -> None:
    """Cut the WAL anywhere behind what was written at an acknowledgement: the entries up to it are there."""
    path, copy = tmp_path / "journal.db", tmp_path / "copy" / "journal.db"
    copy.parent.mkdir()
    wal, torn = path.with_name("journal.db-wal"), copy.with_name("journal.db-wal")
    sizes: list[int] = []
    async with Journal.open(path, ManualClock()) as journal:
        for number in range(40):
            assert await journal.append(a_message(number, "x" * 97 * number), Prompt(text="x"))
            sizes.append(wal.stat().st_size)
        database, whole = path.read_bytes(), wal.read_bytes()
    dice = random.Random(11)
    for _ in range(60):
        copy.write_bytes(database)
        cut = dice.randint(sizes[0], len(whole))
        torn.write_bytes(whole[:cut] + dice.randbytes(dice.randint(0, 300)))
        acknowledged = {number for number, size in enumerate(sizes) if size <= cut}
        assert acknowledged <= numbers_in(copy)
        torn.unlink(missing_ok=True)


async def test_a_full_disk_refuses_and_then_recovers(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with Journal.open(path, ManualClock()) as journal:
        before = await journal.append(a_message(0), Prompt(text="x"))
        assert before is not None
        journal._writer._connection.execute("PRAGMA max_page_count = 1")
        for number in (1, 2):
            with pytest.raises(StoreError, match="the disk is full: free some space"):
                await journal.append(a_message(number, "x" * 50_000), Prompt(text="x"))
        assert await journal.pending() == [before]
        assert journal.pending_count == 1
        journal._writer._connection.execute("PRAGMA max_page_count = 1000000")
        after = await journal.append(a_message(1, "x" * 50_000), Prompt(text="x"))
        assert after is not None
        assert await journal.pending() == [before, after]
    assert numbers_in(path) == {0, 1}


async def test_a_settlement_that_could_not_be_written_is_written_later(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with Journal.open(path, ManualClock()) as journal:
        entry = await journal.append(a_message(0), Prompt(text="x"))
        assert entry is not None
        journal._writer._connection.execute("PRAGMA query_only = ON")
        await journal.settle(entry.seq)
        with pytest.raises(StoreError, match="it cannot be written"):
            await journal.append(a_message(1), Prompt(text="x"))
        assert await journal.pending() == []
        journal._writer._connection.execute("PRAGMA query_only = OFF")
        assert await journal.append(a_message(2), Prompt(text="x"))
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT event IS NULL FROM entries ORDER BY seq").fetchall() == [(1,), (0,)]


LIMITED = """
import asyncio, resource, signal, sys, time
from pathlib import Path
from codebutler.domain.clock import SystemClock
from codebutler.domain.errors import StoreError
from codebutler.intake.journal import Journal
from codebutler.domain.model import MessagePosted, Prompt

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

async def put(journal, number):
    ts = f"1700000000.{number:06}"
    facts = {"sent_at": float(ts), "order": ts, "is_direct": False}
    event = MessagePosted(channel="C1", ref=ts, user="U1", text="x" * 3000, **facts)
    await journal.append(event, Prompt(text="x"))

async def main():
    async with Journal.open(Path(sys.argv[1]), SystemClock()) as journal:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
        kept, refused, number = [], [], 0
        while len(refused) < 20:
            try:
                await put(journal, number)
                kept.append(number)
            except StoreError as error:
                refused.append(str(error))
            number += 1
        assert kept, "the limit bit too early"
        spent = time.process_time()
        await asyncio.sleep(0.5)
        spent = time.process_time() - spent
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        await put(journal, 900_000)
        kept.append(900_000)
    print(kept)
    print(set(refused))
    print(spent)

asyncio.run(main())
"""


def test_a_write_that_the_system_refuses_is_refused_until_it_works_again(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(path)], capture_output=True, text=True, check=True
    )
    kept, refused, idle_cpu_s = done.stdout.splitlines()
    assert set(map(int, kept.strip("[]").split(", "))) == numbers_in(path)
    assert "disk" in refused
    assert float(idle_cpu_s) < 0.25, "it spins while the disk is full"


def removed(path: Path) -> None:
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink()


def moved(path: Path) -> None:
    path.rename(path.with_name("elsewhere.db"))


def replaced(path: Path) -> None:
    moved(path)
    shutil.copy(path.with_name("elsewhere.db"), path)


@pytest.mark.parametrize("harm", [removed, moved, replaced])
async def test_a_journal_taken_away_while_open_is_written_again_with_all_it_held(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    path = tmp_path / "journal.db"
    async with Journal.open(path, ManualClock()) as journal:
        first = await journal.append(a_message(0), Prompt(text="x"))
        news = asyncio.create_task(journal.news())
        harm(path)
        assert await journal.append(a_message(1), Prompt(text="x"))
        assert await journal.append(a_message(0), Prompt(text="x")) is None
        assert "was removed or replaced while it was in use" in await asyncio.wait_for(news, 10)
        assert journal.trouble == ""
        assert "nothing was lost" in journal.mended
        gap = await journal.gap("C1")
        assert gap is not None
        assert gap.since_s == 1700000000
        assert first is not None
        await journal.settle(first.seq)
    assert numbers_in(path) == {0, 1}
    async with Journal.open(path, ManualClock()) as again:
        assert [entry.event for entry in await again.pending()] == [a_message(1)]


async def test_a_journal_that_cannot_be_put_back_accepts_nothing_until_it_can(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    path = home / "journal.db"
    async with Journal.open(path, ManualClock()) as journal:
        assert await journal.append(a_message(0), Prompt(text="x"))
        removed(path)
        home.rmdir()
        for _ in range(2):
            with pytest.raises(StoreError, match="messages are refused until this is fixed"):
                await journal.append(a_message(1), Prompt(text="x"))
        assert "cannot be recreated" in journal.trouble
        home.mkdir()
        assert await journal.append(a_message(1), Prompt(text="x"))
        assert journal.trouble == ""
    assert numbers_in(path) == {0, 1}


async def test_a_journal_nobody_writes_to_is_missed_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with Journal.open(path, ManualClock(), look_every_s=0.01) as journal:
        assert await journal.append(a_message(0), Prompt(text="x"))
        removed(path)
        assert "was removed" in await asyncio.wait_for(journal.news(), 10)
        assert numbers_in(path) == {0}


async def test_no_file_descriptors_left_is_survived(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with Journal.open(path, ManualClock()) as journal:
        assert await journal.append(a_message(0), Prompt(text="x"))
        held: list[int] = []
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
        try:
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            assert await asyncio.wait_for(journal.append(a_message(1), Prompt(text="x")), 10)
        finally:
            for descriptor in held:
                os.close(descriptor)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert numbers_in(path) == {0, 1}
