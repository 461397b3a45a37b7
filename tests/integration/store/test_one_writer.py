"""Only one connection ever writes a store: SQLite before 3.51.3 may corrupt a WAL that two write."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from codebutler.domain.errors import StoreError
from codebutler_worker.store.opening import migrate_store, open_store
from codebutler_worker.store.rows import InboxRow
from tests.clock import ManualClock

HOLDING = """
import asyncio, sys
from pathlib import Path
from codebutler.domain.clock import SystemClock
from codebutler_worker.store.opening import open_store
from codebutler_worker.store.rows import InboxRow

async def main():
    async with open_store(Path(sys.argv[1]), SystemClock()) as store:
        await store.run(lambda uow: uow.inbox.add(InboxRow("k", 1)))
        print("open", flush=True)
        await asyncio.to_thread(sys.stdin.readline)

asyncio.run(main())
"""


@contextmanager
def another_worker(path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the store open until it is told, or killed."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", HOLDING, str(path)], stdin=pipe, stdout=pipe, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / ".codebutler" / "store.db"


async def test_a_second_worker_is_refused(path: Path) -> None:
    with another_worker(path):
        with pytest.raises(StoreError, match="uses it: stop that one first") as caught:
            open_store(path, ManualClock())
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("how", ["asked", signal.SIGTERM, signal.SIGKILL])
async def test_it_takes_over_as_soon_as_the_first_is_gone(path: Path, how: str | signal.Signals) -> None:
    with another_worker(path) as first:
        opening = asyncio.create_task(asyncio.to_thread(open_store, path, ManualClock(), None, 20))
        if isinstance(how, signal.Signals):
            first.send_signal(how)
        else:
            assert first.stdin is not None
            first.stdin.write("\n")
            first.stdin.flush()
        async with await opening as store:
            assert not await store.run(lambda uow: uow.inbox.add(InboxRow("k", 1), known="keep"))


async def test_a_program_started_meanwhile_does_not_keep_it_locked(path: Path) -> None:
    store = open_store(path, ManualClock())
    child = await asyncio.create_subprocess_exec("sleep", "60", close_fds=False)
    await store.close()
    await open_store(path, ManualClock()).close()
    child.kill()
    await child.wait()


async def test_a_migration_is_refused_while_a_worker_is_at_it(path: Path) -> None:
    async with open_store(path, ManualClock()) as store:
        # A newer program's `migrate`, while the worker is still of the older one.
        store._raw.execute("UPDATE alembic_version SET version_num = '0002'")
        with pytest.raises(StoreError, match="uses it: stop that one first"):
            migrate_store(path)
        assert migrate_store(path, check=True).needed
        assert list(path.parent.glob("*.bak")) == []


async def test_what_needs_no_migration_may_be_looked_at(path: Path) -> None:
    with another_worker(path):
        assert not migrate_store(path).needed
        assert not migrate_store(path, check=True).needed


WATCHED = """
import asyncio, sys
from pathlib import Path
from codebutler.platform.backups import Backups, DailyBackups
from codebutler.domain.clock import SystemClock
from codebutler_worker.store.opening import open_store
from codebutler_worker.store.rows import InboxRow

opened = []
def note(event, args):
    if event == "sqlite3.connect":
        opened.append(str(args[0]))
sys.addaudithook(note)

async def main():
    path = Path(sys.argv[1])
    backups = Backups(Path(sys.argv[2]), path)
    async with open_store(path, SystemClock(), backups) as store:
        del opened[:]
        async with DailyBackups(backups, SystemClock(), print):
            while not backups.days():
                await store.run(lambda uow: uow.inbox.add(InboxRow("k", 1), known="keep"))
    print("\\n".join(name for name in opened if "store.db?" in name))

asyncio.run(main())
"""


def test_the_backup_only_reads_beside_the_writer(path: Path, tmp_path: Path) -> None:
    """A connection that cannot write cannot checkpoint either."""
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, str(path), str(tmp_path / "backups")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"{path.as_uri()}?mode=ro\n"


async def test_sqlite_itself_would_let_two_take_turns(path: Path) -> None:
    """Why there is a lock of our own."""
    async with open_store(path, ManualClock()) as store:
        await store.run(lambda uow: uow.inbox.add(InboxRow("k", 1), known="keep"))
        with closing(sqlite3.connect(path)) as other, other:
            other.execute("INSERT INTO inbox VALUES ('other', 2)")
        assert not await store.run(lambda uow: uow.inbox.add(InboxRow("other", 2), known="keep"))
