"""Daily backups of one SQLite file: taken while it is in use, kept for a week, and restored if the file is lost.

A backup also proves that there was a file. Backups are in the home, which neither an agent nor a `git clean` in the
repository reaches, and the first is taken as soon as a file is used.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import shutil
import sqlite3
import threading
from collections.abc import Awaitable, Callable, Iterable
from contextlib import closing
from datetime import UTC, date, datetime
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from msgspec import Struct

from codebutler.domain.clock import Clock
from codebutler.domain.errors import CodeButlerError, StoreDamagedError
from codebutler.platform import sqlitefile
from codebutler.platform.system import this_system

KEPT = 7
LOOK_EVERY_S = 3600.0
BROUGHT_ALONG = ("", "-wal", "-shm")

T = TypeVar("T")


class Restored(Struct, frozen=True):
    """``path`` was replaced by a backup. Data written after ``taken_at`` is missing.

    ``aside`` is where the damaged file is now, None if there was none.
    """

    path: Path
    why: str
    taken_at: datetime
    aside: Path | None

    def __str__(self) -> str:
        kept = f"; what was there is now {self.aside}" if self.aside else ""
        return f"{self.why}. Restored from the backup of {self.taken_at:%Y-%m-%d %H:%M} UTC{kept}"


def best_first(days: Iterable[date], today: date) -> list[date]:
    """The newest first; days in the future (from a wrong clock) after all others."""
    known = set(days)
    return sorted((day for day in known if day <= today), reverse=True) + sorted(
        day for day in known if day > today
    )


def surplus(days: Iterable[date], today: date) -> list[date]:
    """The backups to delete once today's has been taken."""
    return best_first(days, today)[KEPT:]


def directory_name(name: str, path: Path) -> str:
    """A unique directory name for the backups of what belongs to ``path``."""
    return f"{name}-{hashlib.sha256(os.fsencode(path)).hexdigest()[:12]}"


class Backups:
    """The backups of one file, in a separate directory: ``STEM-YYYY-MM-DD.db``, the day in UTC."""

    def __init__(self, directory: Path, path: Path) -> None:
        self._directory = directory
        self._path = path

    def days(self) -> list[date]:
        """The days that have a backup."""
        found = []
        prefix, suffix = f"{self._path.stem}-", self._path.suffix
        for file in self._directory.glob(f"{prefix}*{suffix}"):
            try:
                found.append(date.fromisoformat(file.name.removeprefix(prefix).removesuffix(suffix)))
            except ValueError:
                continue  # not one of ours
        return found

    def file(self, day: date) -> Path:
        """The file for the backup of that day, which need not exist."""
        return self._directory / f"{self._path.stem}-{day.isoformat()}{self._path.suffix}"

    def take_if_due(self, now: datetime, stop: threading.Event | None = None) -> Path | None:
        """Take today's backup if it is missing, and delete those beyond the last ``KEPT``. Blocks.

        The whole copy is read before it counts, which also detects damage that opening a file does not. Raises
        StoreDamagedError if the file is damaged and StoreError if it could not be copied; then the earlier backups
        stay.
        """
        today = now.astimezone(UTC).date()
        if today in self.days():
            return None
        target = self.file(today)
        new = target.with_suffix(".new")
        try:
            _make_private(self._directory)
            new.unlink(missing_ok=True)
            sqlitefile.copy(self._path, new, stop)
            self._check(new)
            new.rename(target)
            sqlitefile.sync_directory(self._directory)
            for day in surplus(self.days(), today):
                self.file(day).unlink(missing_ok=True)
        except OSError as error:
            raise sqlitefile.store_error(target, error) from error
        return target

    def restore(self, why: str, now: datetime) -> Restored | None:
        """Replace the file by the newest good backup and move it aside; None if there is no good backup.

        After a power cut in between, the file is missing, which is then restored again; an old WAL is never next to the
        backup. Blocks. Raises StoreError if the disk does not allow it.
        """
        try:
            new = self._path.with_name(self._path.name + ".new")
            for day in best_first(self.days(), now.astimezone(UTC).date()):
                backup = self.file(day)
                if not _copied(backup, new):
                    continue
                taken_at = datetime.fromtimestamp(backup.stat().st_mtime, UTC)
                aside = put_aside(self._path, now)
                new.rename(self._path)
                sqlitefile.sync_directory(self._path.parent)
                return Restored(self._path, why, taken_at, aside)
        except (sqlite3.Error, OSError) as error:
            raise sqlitefile.store_error(self._path, error) from error
        return None

    def _check(self, copy: Path) -> None:
        try:
            with closing(sqlitefile.attach(copy)) as connection:
                sqlitefile.check(connection, self._path, thorough=True)
        except (sqlite3.Error, StoreDamagedError) as error:
            copy.unlink(missing_ok=True)
            if isinstance(error, sqlite3.Error):
                raise sqlitefile.store_error(self._path, error) from error
            raise


def put_back(path: Path, connection: sqlite3.Connection, now: datetime) -> Path | None:
    """The file that ``connection`` was opened on was removed or replaced: write what it still sees to ``path`` again.

    A file there is moved aside; returns its new path, None if there was none. The connection stays open and should be
    closed once there is a new one. Blocks. Raises StoreError, and may then be called again.
    """
    new = path.with_name(path.name + ".new")
    try:
        new.unlink(missing_ok=True)
        sqlitefile.copy_of(connection, path, new)
        aside = put_aside(path, now)
        new.rename(path)
        sqlitefile.sync_directory(path.parent)
    except OSError as error:
        raise sqlitefile.store_error(path, error) from error
    return aside


def put_aside(path: Path, now: datetime) -> Path | None:
    """Move the file at ``path`` away; returns its new path, None if there was none. Raises OSError.

    The file first, then its WAL: a damaged file without its WAL might look intact.
    """
    aside = path.with_name(f"{path.name}.damaged-{now.astimezone(UTC):%Y%m%dT%H%M%SZ}")
    number = 1
    while aside.exists():
        number += 1
        aside = aside.with_name(f"{aside.name.partition('~')[0]}~{number}")
    found = path.exists()
    for ending in BROUGHT_ALONG:
        file = path.with_name(path.name + ending)
        if file.exists():
            file.rename(aside.with_name(aside.name + ending))
            sqlitefile.sync_directory(path.parent)
    return aside if found else None


def open_or_restore(
    opener: Callable[[], T], backups: Backups, path: Path, clock: Clock
) -> tuple[T, Restored | None]:
    """Open a file; create it if it never existed, restore it if it is lost or damaged.

    Blocks; nobody else may have the file open. Raises what ``opener`` raises, and StoreDamagedError if a lost or
    damaged file has no good backup.
    """
    try:
        if backups.days() and not sqlitefile.exists(path):
            raise StoreDamagedError(f"{path} is missing")
        return opener(), None
    except StoreDamagedError as error:
        restored = backups.restore(str(error).rpartition(": ")[0] or str(error), clock.now())
        if restored is None:
            raise
        return opener(), restored


class DailyBackups:
    """Takes the daily backups of a file in use, in a thread, between enter and exit."""

    def __init__(
        self,
        backups: Backups,
        clock: Clock,
        trouble: Callable[[str], None],
        afterwards: Callable[[datetime], Awaitable[None]] | None = None,
    ) -> None:
        """``trouble`` is called with a line that says why a backup failed; it is retried every hour.

        ``afterwards`` is called with the time after each backup: changes to the file after that can be undone.
        """
        self._backups = backups
        self._clock = clock
        self._trouble = trouble
        self._afterwards = afterwards
        self._stop = threading.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> DailyBackups:
        self._task = asyncio.create_task(self._run(), name="backups")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            now = self._clock.now()
            taking = asyncio.create_task(
                asyncio.to_thread(self._backups.take_if_due, now, self._stop), name="backup"
            )
            try:
                taken = await asyncio.shield(taking)
            except asyncio.CancelledError:
                await asyncio.gather(taking, return_exceptions=True)
                raise
            except CodeButlerError as error:
                self._trouble(f"could not take a backup: {error}")
            else:
                await self._follow(taken, now)
            await self._clock.sleep(LOOK_EVERY_S)

    async def _follow(self, taken: Path | None, now: datetime) -> None:
        if taken is None or self._afterwards is None:
            return
        try:
            await self._afterwards(now)
        except CodeButlerError as error:
            self._trouble(f"could not clean up old data: {error}")


def _copied(backup: Path, target: Path) -> bool:
    """Whether the backup is intact; then ``target`` is a synced copy of it."""
    target.unlink(missing_ok=True)
    try:
        with backup.open("rb") as source, target.open("xb") as copy:
            os.fchmod(copy.fileno(), 0o600)
            shutil.copyfileobj(source, copy)
            copy.flush()
            this_system().sync(copy.fileno())
        with closing(sqlitefile.attach(target)) as connection:
            sqlitefile.check(connection, backup, thorough=True)
    except (sqlite3.Error, OSError, StoreDamagedError) as error:
        target.unlink(missing_ok=True)
        if isinstance(error, StoreDamagedError) or sqlitefile.is_damage(error) or _unreadable(error):
            return False
        raise
    return True


def _unreadable(error: Exception) -> bool:
    return isinstance(error, OSError) and error.errno == errno.EIO


def _make_private(directory: Path) -> None:
    """Create the directory and its missing parents, private to the owner."""
    missing = [each for each in (directory, *directory.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(mode=0o700, exist_ok=True)
