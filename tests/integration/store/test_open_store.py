"""What open_store makes of the files it may meet, good and bad."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from codebutler.domain.errors import StoreError
from codebutler_worker.store.opening import open_store, prepare_state_dir
from codebutler_worker.store.rows import InboxRow
from tests.clock import ManualClock

NOBODY = 65534


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    """A store that was used and closed, with enough in it to be damaged."""
    path = tmp_path / ".codebutler" / "store.db"
    async with open_store(path, ManualClock()) as store:
        for number in range(300):
            row = InboxRow(f"message:C1:{number:06}.000000", number)
            await store.run(lambda uow, row=row: uow.inbox.add(row))  # type: ignore[misc]  # defaults of a lambda
    return path


def check_refused(path: Path, message: str) -> None:
    """It is refused in one line, and what is there stays byte by byte."""
    before = {file.name: file.read_bytes() for file in path.parent.glob("store.db*") if file.is_file()}
    with pytest.raises(StoreError, match=message) as caught:
        open_store(path, ManualClock())
    assert "\n" not in str(caught.value)
    assert {f.name: f.read_bytes() for f in path.parent.glob("store.db*") if f.is_file()} == before


async def test_a_new_store_is_private_and_git_ignored(tmp_path: Path) -> None:
    path = tmp_path / ".codebutler" / "store.db"
    async with open_store(path, ManualClock()) as store:
        await store.run(lambda uow: uow.inbox.add(InboxRow("k", 1), known="keep"))
        modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert (path.parent / ".gitignore").read_text() == "*\n"
    assert modes == {
        ".gitignore": 0o600,
        "store.db": 0o600,
        "store.lock": 0o600,
        "store.db-wal": 0o600,
        "store.db-shm": 0o600,
        "files": 0o700,
        "images": 0o700,
    }


async def test_the_writer_survives_power_loss_by_its_settings(path: Path) -> None:
    async with open_store(path, ManualClock()) as store:
        pragmas = {
            name: store._raw.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("journal_mode", "synchronous", "foreign_keys", "trusted_schema", "fullfsync")
        }
    assert pragmas == {
        "journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "trusted_schema": 0, "fullfsync": 1
    }  # fmt: skip


def test_a_store_at_head_opens_without_alembic(path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from codebutler.domain.clock import SystemClock\n"
        "from codebutler_worker.store.opening import open_store\n"
        "open_store(Path(sys.argv[1]), SystemClock())\n"
        "print(sorted(name for name in sys.modules if name.startswith(('alembic', 'codebutler_migrations'))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_what_is_no_database_is_refused(path: Path) -> None:
    path.write_bytes(b"certainly not a database, but long enough to be looked at " * 100)
    check_refused(path, "it is not a database: put a backup")


def test_an_emptied_file_is_refused(path: Path) -> None:
    path.write_bytes(b"")
    check_refused(path, "is empty, it was cut off: put a backup")


@pytest.mark.parametrize("kept", [100, 5000, 0.5])
def test_a_cut_off_file_is_refused(path: Path, kept: float) -> None:
    size = path.stat().st_size
    os.truncate(path, int(kept * size) if kept < 1 else int(kept))
    check_refused(path, "damaged|not a database")


def test_a_damaged_page_is_refused(path: Path) -> None:
    content = bytearray(path.read_bytes())
    with closing(sqlite3.connect(path)) as connection:
        page = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'inbox'").fetchone()[0]
    start = (page - 1) * 4096
    content[start : start + 64] = bytes(64)
    path.write_bytes(content)
    check_refused(path, "it is damaged: put a backup")


@pytest.mark.parametrize("left", ["store.db-wal", "store.db.20260101T000000Z.bak"])
def test_a_lost_store_is_not_replaced_by_an_empty_one(path: Path, left: str) -> None:
    path.rename(path.with_name(left))
    check_refused(path, f"is missing but {left} is there")


@pytest.mark.parametrize("kind", ["link", "dangling", "fifo", "directory"])
def test_only_a_regular_file_is_opened(path: Path, tmp_path: Path, kind: str) -> None:
    elsewhere = tmp_path / "elsewhere.db"
    path.rename(elsewhere)
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        path.symlink_to(elsewhere if kind == "link" else tmp_path / "nothing")
    with pytest.raises(StoreError, match="not a regular file"):
        open_store(path, ManualClock())
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize(
    "code",
    [
        "CREATE TRIGGER t AFTER INSERT ON inbox BEGIN DELETE FROM inbox; END",
        "CREATE VIEW v AS SELECT 1",
    ],
)
def test_a_store_that_brings_code_is_refused(path: Path, code: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(code)
    with pytest.raises(StoreError, match="foreign trigger or view"):
        open_store(path, ManualClock())


def test_a_linked_state_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "repo").mkdir()
    (tmp_path / "repo" / ".codebutler").symlink_to(tmp_path / "target")
    with pytest.raises(StoreError, match="must be a directory"):
        prepare_state_dir(tmp_path / "repo")
    with pytest.raises(StoreError, match="must be a directory"):
        open_store(tmp_path / "repo" / ".codebutler" / "store.db", ManualClock())
    assert list((tmp_path / "target").iterdir()) == []


def test_a_linked_gitignore_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / ".codebutler").mkdir()
    (tmp_path / ".codebutler" / ".gitignore").symlink_to(tmp_path / "victim")
    prepare_state_dir(tmp_path)
    assert not (tmp_path / "victim").exists()


def test_a_second_writer_is_refused(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        check_refused(path, "another process uses it: stop that one first")


AS_NOBODY = """
import os, sys
from pathlib import Path
from tests.clock import ManualClock
from codebutler.domain.errors import StoreError
from codebutler_worker.store.opening import open_store
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    open_store(Path(sys.argv[1]), ManualClock())
except StoreError as error:
    print(error)
else:
    print("opened")
"""


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """Outside pytest's own directories, which an ordinary user may not enter when the tests run as root."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)


def open_as_an_ordinary_user(path: Path) -> str:
    """Root may write everything: the child gives that up first."""
    return subprocess.run(
        [sys.executable, "-c", AS_NOBODY, str(path)], capture_output=True, text=True, check=True
    ).stdout


def own(path: Path, mode: int) -> None:
    if os.geteuid() == 0:
        os.chown(path, NOBODY, NOBODY)
    path.chmod(mode)


def test_a_directory_that_cannot_be_written_is_told(open_directory: Path) -> None:
    own(open_directory, 0o555)
    said = open_as_an_ordinary_user(open_directory / "store.db")
    own(open_directory, 0o755)
    assert "check the permissions" in said or "Permission denied" in said
    assert said.count("\n") == 1


async def test_a_file_that_cannot_be_written_is_told(open_directory: Path) -> None:
    path = open_directory / "store.db"
    await open_store(path, ManualClock()).close()
    own(open_directory, 0o755)
    own(path.with_suffix(".lock"), 0o600)
    own(path, 0o400)
    said = open_as_an_ordinary_user(path)
    assert "it cannot be written: check its permissions" in said
    assert said.count("\n") == 1
