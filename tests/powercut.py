"""A model of a disk that loses power: what SQLite wrote is recorded, and put together again as a cut leaves it.

A file holds what was written before its last sync, and of the later writes any subset, each one possibly torn
at a sector. That is more than most disks do, and less than those that lie about syncing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import apsw
import apsw.ext

SECTOR = 512
SKIPPED, TORN = 0.4, 0.6
VFS_NAME = "powercut"

Parameters = Sequence[Any] | Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Step:
    """Something that happened to a file, or (``ack``) something that was promised meanwhile."""

    kind: Literal["write", "truncate", "sync", "delete", "ack"]
    file: str = ""
    offset: int = 0
    data: bytes = b""
    promise: object = None


class Recorder(apsw.VFS):
    """SQLite's usual files, with a record of all that is done to them. Use as a context manager."""

    def __init__(self) -> None:
        super().__init__(VFS_NAME, "")
        self.steps: list[Step] = []

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        self.unregister()

    def acknowledge(self, promise: object) -> None:
        """From here on ``promise`` has to be kept through any cut."""
        self.steps.append(Step("ack", promise=promise))

    def xOpen(self, name: apsw.URIFilename | str | None, flags: list[int]) -> _RecordedFile:  # noqa: N802 - apsw's
        return _RecordedFile(self.steps, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802 - apsw's
        self.steps.append(Step("delete", Path(filename).name))
        super().xDelete(filename, syncdir)


class _RecordedFile(apsw.VFSFile):
    def __init__(self, steps: list[Step], name: apsw.URIFilename | str | None, flags: list[int]) -> None:
        text = name.filename() if isinstance(name, apsw.URIFilename) else name or ""
        self._steps = steps
        self._name = Path(text).name
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - apsw's
        self._steps.append(Step("write", self._name, offset, bytes(data)))
        super().xWrite(data, offset)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802 - apsw's
        self._steps.append(Step("truncate", self._name, newsize))
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:  # noqa: N802 - apsw's
        self._steps.append(Step("sync", self._name))
        super().xSync(flags)


@dataclass
class Disk:
    """Files as they are for sure, and what was written to them since."""

    durable: dict[str, bytearray]
    pending: dict[str, list[Step]] = field(default_factory=dict)

    def take(self, step: Step) -> None:
        if step.kind in ("write", "truncate"):
            self.pending.setdefault(step.file, []).append(step)
        elif step.kind == "sync":
            content = self.durable.setdefault(step.file, bytearray())
            for earlier in self.pending.pop(step.file, []):
                _apply(content, earlier)
        elif step.kind == "delete":
            self.durable.pop(step.file, None)
            self.pending.pop(step.file, None)

    def after_a_cut(self, dice: random.Random) -> dict[str, bytes]:
        """One of the many ways the files may look when the power is back."""
        files = {name: bytearray(content) for name, content in self.durable.items()}
        for name, steps in self.pending.items():
            content = files.setdefault(name, bytearray())
            for step in steps:
                luck = dice.random()
                if luck < SKIPPED:
                    continue
                torn = luck < TORN and step.kind == "write" and len(step.data) > SECTOR
                length = SECTOR * dice.randrange(1, len(step.data) // SECTOR + 1) if torn else len(step.data)
                _apply(content, Step(step.kind, name, step.offset, step.data[:length]))
        return {name: bytes(content) for name, content in files.items()}


def cuts(
    steps: Sequence[Step], before: Mapping[str, bytes], count: int, seed: int
) -> Iterator[tuple[dict[str, bytes], set[Any]]]:
    """``count`` cuts at random moments: the files then, and what had been promised until then.

    ``before``: the files when the recording began.
    """
    dice = random.Random(seed)
    moments = sorted(dice.randrange(len(steps) + 1) for _ in range(count))
    disk = Disk({name: bytearray(content) for name, content in before.items()})
    promised: set[Any] = set()
    done = 0
    for moment in moments:
        for step in steps[done:moment]:
            disk.take(step)
            if step.kind == "ack":
                promised.add(step.promise)
        done = moment
        yield disk.after_a_cut(dice), set(promised)


def put(files: Mapping[str, bytes], directory: Path) -> None:
    """Make the directory hold exactly these files."""
    directory.mkdir(exist_ok=True)
    for file in directory.iterdir():
        file.unlink()
    for name, content in files.items():
        if not name.endswith("-shm"):
            (directory / name).write_bytes(content)


def _apply(content: bytearray, step: Step) -> None:
    if step.kind == "truncate":
        del content[step.offset :]
        return
    if len(content) < step.offset:
        content.extend(bytes(step.offset - len(content)))
    content[step.offset : step.offset + len(step.data)] = step.data


class Row:
    """As much of sqlite3's row as our code uses."""

    def __init__(self, names: Sequence[str], values: Sequence[Any]) -> None:
        self._names = names
        self._values = values

    def __getitem__(self, column: int | str) -> Any:
        return self._values[column if isinstance(column, int) else self._names.index(column)]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)


class Cursor:
    """As much of sqlite3's cursor as our code uses. Its rows are asked for a column by name or by place."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._rows: list[Any] = []
        self.description: Sequence[Any] | None = None
        self.rowcount = -1
        self.lastrowid: int | None = None

    def execute(self, statement: str, parameters: Parameters = ()) -> Cursor:
        before = self._connection.total_changes()
        reads = statement.lstrip()[:6].upper() in ("SELECT", "PRAGMA") or "RETURNING" in statement
        found = apsw.ext.query_info(self._connection, statement).description if reads else ()
        self.description = [(name, *[None] * 6) for name, _ in found] or None
        names = [name for name, _ in found]
        self._rows = [Row(names, row) for row in self._connection.execute(statement, parameters)]
        self.rowcount = self._connection.total_changes() - before
        self.lastrowid = self._connection.last_insert_rowid()
        return self

    def executemany(self, statement: str, rows: Sequence[Sequence[Any]]) -> Cursor:
        self._connection.executemany(statement, [tuple(row) for row in rows])
        return self

    def fetchone(self) -> Any:
        return self._rows.pop(0) if self._rows else None

    def fetchall(self) -> list[Any]:
        rows, self._rows = self._rows, []
        return rows

    def fetchmany(self, size: int = 1) -> list[Any]:
        rows, self._rows = self._rows[:size], self._rows[size:]
        return rows

    def close(self) -> None:
        self._rows = []

    def __iter__(self) -> Iterator[Any]:
        return iter(self.fetchall())


class Connection:
    """As much of sqlite3's connection, on recorded files: SQLite itself is apsw's, whose VFS can be ours."""

    isolation_level = None

    def __init__(self, path: Path) -> None:
        self._apsw = apsw.Connection(str(path), vfs=VFS_NAME)

    @property
    def in_transaction(self) -> bool:
        return self._apsw.in_transaction

    def cursor(self) -> Cursor:
        return Cursor(self._apsw)

    def execute(self, statement: str, parameters: Parameters = ()) -> Cursor:
        return self.cursor().execute(statement, parameters)

    def executemany(self, statement: str, rows: Sequence[Sequence[Any]]) -> Cursor:
        return self.cursor().executemany(statement, rows)

    def create_function(self, name: str, arguments: int, function: Callable[..., Any], **_: Any) -> None:
        self._apsw.create_scalar_function(name, function, arguments)

    def commit(self) -> None:
        if self._apsw.in_transaction:
            self._apsw.execute("COMMIT")

    def rollback(self) -> None:
        if self._apsw.in_transaction:
            self._apsw.execute("ROLLBACK")

    def close(self) -> None:
        self._apsw.close()
