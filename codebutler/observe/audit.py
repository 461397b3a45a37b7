"""The audit log: one JSON object per executed or refused command, each bound to the line before.

A full file is put aside as ``audit.000001.jsonl`` and so on; the chain goes on in the next. Where the log was taken
away or cut, the next line says so.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec
from msgspec import Struct, structs

from codebutler.clock import Clock
from codebutler.model import Event
from codebutler.observe.chain import CUT, TORN, AuditLine, Head, digest_of, holds, number_of, rotated

TAIL_BYTES = 2**20
ROTATE_BYTES = 64 * 2**20


class Act(Struct, frozen=True, kw_only=True):
    """What was executed or refused. ``thread``: its ts, "" for none."""

    kind: str
    user: str
    channel: str
    text: str
    decision: str
    thread: str = ""
    exit_code: int | None = None
    duration_s: float | None = None


class AuditLog:
    """``with AuditLog(path, clock, redact) as audit``. A line torn by a crash stays; the next says so."""

    def __init__(
        self,
        path: Path,
        clock: Clock,
        redact: Callable[[str], str],
        rotate_bytes: int = ROTATE_BYTES,
    ) -> None:
        self._path = path
        self._rotate_bytes = rotate_bytes
        self._clock = clock
        self._redact = redact
        self._lock = threading.Lock()
        self._fd = -1
        self._prev = ""
        self._head = Head(path)

    def __enter__(self) -> AuditLog:
        """Raises OSError if the file cannot be opened."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._fd = self._open()
        last, torn = _last_line(self._fd)
        self._prev = digest_of(last) if last else self._end_of_rotated()
        if torn:
            os.write(self._fd, b"\n")
            self.append(_note("the line before is torn", TORN))
        head = self._head.read()
        if head not in ("", self._prev) and not holds(self._path, head):
            self.keep([_note("lines before this one were removed or changed while nothing ran", CUT)])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._fd)

    def append(self, act: Act) -> None:
        """Write one line; any thread may. Raises OSError, and the line is then not part of the chain."""
        self._append([act], sync=False)

    def keep(self, acts: Sequence[Act]) -> None:
        """Write lines and sync them to the disk: what they speak of may begin. Blocks. Raises OSError."""
        self._append(acts, sync=True)

    def _append(self, acts: Sequence[Act], *, sync: bool) -> None:
        with self._lock:
            if self._is_gone():
                gone, self._fd = self._fd, self._open()
                os.close(gone)
                acts = [_note("the log before this line was taken away", CUT), *acts]
            stamp = self._clock.now().isoformat(timespec="milliseconds")
            prev, lines = self._prev, []
            for act in acts:
                fields = {name: _clean(value) for name, value in structs.asdict(act).items()}
                fields["text"] = self._redact(fields["text"])
                lines.append(msgspec.json.encode(AuditLine(time=stamp, prev=prev, **fields)))
                prev = digest_of(lines[-1])
            _write_whole(self._fd, b"".join(line + b"\n" for line in lines))
            self._prev = prev
            if sync:
                os.fsync(self._fd)
                self._head.write(prev)
            if os.fstat(self._fd).st_size > self._rotate_bytes:
                self._rotate()

    def _is_gone(self) -> bool:
        """Whether what we write to is no longer what people find there."""
        try:
            there = self._path.lstat()
        except FileNotFoundError:
            return True
        ours = os.fstat(self._fd)
        return (there.st_dev, there.st_ino) != (ours.st_dev, ours.st_ino)

    def _rotate(self) -> None:
        numbers = [0, *map(number_of, rotated(self._path))]
        self._path.rename(self._path.with_suffix(f".{max(numbers) + 1:06}.jsonl"))
        os.close(self._fd)
        self._fd = self._open()

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        return os.open(self._path, flags, 0o600)

    def _end_of_rotated(self) -> str:
        files = rotated(self._path)
        if not files:
            return ""
        fd = os.open(files[-1], os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            last, _ = _last_line(fd)
        finally:
            os.close(fd)
        return digest_of(last) if last else ""


def _note(text: str, decision: str) -> Act:
    return Act(kind="audit", user="", channel="", text=text, decision=decision)


def act_of(event: Event, kind: str, decision: str) -> Act:
    """What an event of the chat asked for."""
    return Act(
        user=event.user,
        channel=event.channel,
        thread=str(getattr(event, "thread_ts", None) or getattr(event, "ts", "")),
        kind=kind,
        text=getattr(event, "text", "") or getattr(event, "words", ""),
        decision=decision,
    )


def _clean(value: Any) -> Any:
    """Lone surrogates, which no JSON can hold, are written as escapes."""
    return value.encode("utf-8", "backslashreplace").decode("utf-8") if isinstance(value, str) else value


def _write_whole(fd: int, data: bytes) -> None:
    """All of ``data`` or, after an error, none of it."""
    end = os.fstat(fd).st_size
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(fd, view) :]
    except OSError:
        os.ftruncate(fd, end)
        raise


def _last_line(fd: int) -> tuple[bytes, bool]:
    """The file's last line without its newline, and whether that newline is missing."""
    data = b""
    for chunk in _chunks_backwards(fd):
        data = chunk + data
        if b"\n" in data[:-1]:
            break
    torn = bool(data) and not data.endswith(b"\n")
    return data.removesuffix(b"\n").rpartition(b"\n")[2], torn


def _chunks_backwards(fd: int) -> Iterator[bytes]:
    end = os.fstat(fd).st_size
    while end > 0:
        start = max(0, end - TAIL_BYTES)
        yield os.pread(fd, end - start, start)
        end = start
