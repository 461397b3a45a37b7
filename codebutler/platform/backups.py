"""One SQLite file's daily backups: taken beside its writer, kept a week, put in the place of a lost file.

That a backup exists is also how we know that there was a file: they are kept in the home, where neither an
agent nor a `git clean` in the repository reaches them, and the first one is taken as soon as a file is used.
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
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from codebutler.domain.clock import Clock
from codebutler.domain.errors import CodeButlerError, StoreDamagedError
from codebutler.platform import sqlitefile

KEPT = 7
LOOK_EVERY_S = 3600.0
BROUGHT_ALONG = ("", "-wal", "-shm")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Restored:
    """A backup was put in the place of ``path``. What was written after ``taken_at`` is not in it.

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
    """The newest first; days that have not come yet (the clock was wrong once) after all others."""
    known = set(days)
    return sorted((day for day in known if day <= today), reverse=True) + sorted(
        day for day in known if day > today
    )


def surplus(days: Iterable[date], today: date) -> list[date]:
    """Which backups may go when today's has been taken."""
    return best_first(days, today)[KEPT:]


def directory_name(name: str, path: Path) -> str:
    """A directory's name for the backups of what belongs to ``path``: no two paths share one."""
    return f"{name}-{hashlib.sha256(os.fsencode(path)).hexdigest()[:12]}"


class Backups:
    """The backups of one file, in a directory of its own: ``STEM-YYYY-MM-DD.db``, the day in UTC."""

    def __init__(self, directory: Path, path: Path) -> None:
        self._directory = directory
        self._path = path

    def days(self) -> list[date]:
        """The days of which there is a backup."""
        found = []
        prefix, suffix = f"{self._path.stem}-", self._path.suffix
        for file in self._directory.glob(f"{prefix}*{suffix}"):
            try:
                found.append(date.fromisoformat(file.name.removeprefix(prefix).removesuffix(suffix)))
            except ValueError:
                continue  # not one of ours
        return found

    def file(self, day: date) -> Path:
        """Where the backup of that day is, or would be."""
        return self._directory / f"{self._path.stem}-{day.isoformat()}{self._path.suffix}"

    def take_if_due(self, now: datetime, stop: threading.Event | None = None) -> Path | None:
        """Take today's backup unless it is there, and drop those beyond the last ``KEPT``. Blocks.

        The copy is read whole before it counts, which is also how damage is found that opening a file does
        not look for. Raises
        StoreDamagedError if the file is damaged and StoreError if no copy could be made; the earlier
        backups then stay as they are.
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
        """Put the newest good backup in the file's place and the file aside; None if there is no good one.

        A power cut in between leaves a missing file, which is restored again, and never an old WAL beside
        the backup. Blocks. Raises StoreError if the disk does not let us.
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

    What is there now is moved aside; returns where to, None if nothing was. The connection stays open and should be
    closed once there is a new one. Blocks. Raises StoreError, and may then be tried again.
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
    """Move away what is at ``path``; returns where to, None if nothing was there. Raises OSError.

    The file first, then its WAL: a damaged file without its WAL might pass for a whole one.
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
    """Open a file that is created if it never was, and restored if it is lost or damaged.

    Blocks; nobody else may have the file open. Raises what ``opener`` raises, StoreDamagedError if there is
    no good backup of a lost or damaged file.
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
    """Takes the backups of a file in use, day by day, in a thread; between enter and exit."""

    def __init__(
        self,
        backups: Backups,
        clock: Clock,
        trouble: Callable[[str], None],
        afterwards: Callable[[datetime], Awaitable[None]] | None = None,
    ) -> None:
        """``trouble`` is told, in a line, why a backup could not be taken; the next hour tries again.

        ``afterwards`` is called with the time once one was taken: what is done to the file then can be undone.
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
                self._trouble(f"no backup was taken: {error}")
            else:
                await self._follow(taken, now)
            await self._clock.sleep(LOOK_EVERY_S)

    async def _follow(self, taken: Path | None, now: datetime) -> None:
        if taken is None or self._afterwards is None:
            return
        try:
            await self._afterwards(now)
        except CodeButlerError as error:
            self._trouble(f"old data was not cleaned up: {error}")


def _copied(backup: Path, target: Path) -> bool:
    """Whether the backup is whole; then ``target`` is a synced copy of it."""
    target.unlink(missing_ok=True)
    try:
        with backup.open("rb") as source, target.open("xb") as copy:
            os.fchmod(copy.fileno(), 0o600)
            shutil.copyfileobj(source, copy)
            copy.flush()
            os.fsync(copy.fileno())
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
    """What is missing of it is made for its owner alone, also on the way to it."""
    missing = [each for each in (directory, *directory.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(mode=0o700, exist_ok=True)
