"""The audit log: one JSON object per executed or refused command, each linked to the line before.

A full file is renamed to ``audit.000001.jsonl`` and so on; the chain continues in the next. It is deleted when its last
line is older than the retention time, after a line has recorded that. If the log was removed or cut, the next line says
so. While the disk is full, nothing may start (``keep`` raises); lines about what has already happened wait in memory,
and are written before any later one.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec
from msgspec import Struct, structs

from codebutler.domain.clock import Clock
from codebutler.domain.refs import NO_CHANNEL, NO_PERSON, ConversationRef, PersonRef
from codebutler.observe.chain import (
    CUT,
    EXPIRED,
    OURS,
    TORN,
    AuditAct,
    AuditLine,
    digest_of,
    expired,
    head_file,
    head_of,
    holds,
    number_of,
    rotated,
    shortened,
)
from codebutler.platform.system import this_system

COUNTED_S = 3600.0
# If more than this many are counted at once, they are counted for less than an hour.
MOST = 10_000
TAIL_BYTES = 2**20
ROTATE_BYTES = 64 * 2**20
# May wait in memory: while nothing new starts, the endings of what is running need far less.
HELD_CHARS = 2**20
LINE_CHARS = 500
FLUSH_S = 30.0
EXPIRE_S = 86400.0

log = logging.getLogger("codebutler.audit")


class _Count(Struct):
    since_s: float
    last: AuditAct
    more: int = 0


class Repeats:
    """A stranger's repeated attempts become one line of the audit log and, an hour later, one with a count. Grouped by
    user, place and what was attempted (a prompt, a command, a button, an edit …)."""

    def __init__(self) -> None:
        self._counts: dict[tuple[PersonRef, ConversationRef, str], _Count] = {}

    def is_first(self, act: AuditAct, now_s: float) -> bool:
        """Whether it gets its own line; otherwise it is counted. Call ``over`` before."""
        key = (act.user, act.channel, act.kind.partition(" ")[0])
        count = self._counts.get(key)
        if count is None:
            self._counts[key] = _Count(now_s, act)
            return True
        count.last, count.more = act, count.more + 1
        return False

    def over(self, now_s: float) -> list[AuditAct]:
        """The lines with the counts of the hours that are over."""
        full = len(self._counts) >= MOST
        ended = {k: c for k, c in self._counts.items() if full or now_s - c.since_s >= COUNTED_S}
        for key in ended:
            del self._counts[key]
        return [_line(count) for count in ended.values() if count.more]


def _line(count: _Count) -> AuditAct:
    return structs.replace(
        count.last, decision=f"{count.last.decision} ({count.more} more within the hour; this is the last)"
    )


class AuditLog:
    """Writes the audit log: ``with AuditLog(path, clock, redact) as audit``. A line cut by a crash stays; the next one
    says so."""

    def __init__(
        self,
        path: Path,
        clock: Clock,
        redact: Callable[[str], str],
        rotate_bytes: int = ROTATE_BYTES,
        retention_days: int = 30,
    ) -> None:
        self._path = path
        self._rotate_bytes = rotate_bytes
        self._retention_days = retention_days
        self._clock = clock
        self._redact = redact
        self._lock = threading.Lock()
        self._fd = -1
        self._prev = ""
        self._held: list[AuditLine] = []
        self._held_chars = 0
        self._repeats = Repeats()
        self._head = head_file(path)

    def __enter__(self) -> AuditLog:
        """Raises OSError if the file cannot be opened."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._fd = self._open()
        last, torn = _last_line(self._fd)
        self._prev = digest_of(last) if last else self._end_of_rotated()
        if torn:
            os.write(self._fd, b"\n")
            self.append(_note("the line before is torn", TORN))
        head = head_of(self._path)
        if head not in ("", self._prev) and not holds(self._path, head):
            self.keep([_note("lines before this one were removed or changed while nothing ran", CUT)])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._flush(math.inf)
        if self._held_chars:
            log.error("the audit log cannot be written: lost %d lines", len(self._held))
        os.close(self._fd)

    def append(self, act: AuditAct) -> None:
        """Write one line, or hold it until it can be written; callable from any thread. Raises OSError if too much is
        held already: then the line is lost."""
        with self._lock:
            line = self._line(act)
            try:
                self._write([line], sync=False)
            except OSError as error:
                self._hold(line, error)

    def keep(self, acts: Sequence[AuditAct]) -> None:
        """Write lines and sync them to disk: after that, what they record may start. Blocks. Raises OSError, and then
        holds none of them."""
        with self._lock:
            self._write([self._line(act) for act in acts], sync=True)

    def refuse(self, act: AuditAct, *, counted: bool) -> None:
        """Record what was refused, shortened; a repetition that is ``counted`` later becomes a number. Raises like
        ``append``."""
        # Redacted before it is cut: half a secret would not be recognized.
        act = shortened(structs.replace(act, text=self._line(act).text))
        now_s = self._clock.monotonic()
        with self._lock:
            lines = self._repeats.over(now_s)
            if not counted or self._repeats.is_first(act, now_s):
                lines.append(act)
        for line in lines:
            self.append(line)

    def expire(self) -> None:
        """Delete full files that are too old. Blocks. Raises OSError."""
        oldest = self._clock.now() - timedelta(days=self._retention_days)
        found = expired(self._path, oldest.isoformat(timespec="milliseconds"))
        if found:
            self.keep(
                [_note(f"{file.name} expired; its last line was {end}", EXPIRED) for file, end in found]
            )
        for file, _end in found:
            file.unlink()

    def flush(self) -> None:
        """Write the counts so far, and held lines if the disk accepts them."""
        self._flush(self._clock.monotonic())

    def _flush(self, now_s: float) -> None:
        with self._lock:
            counted = self._repeats.over(now_s)
        with suppress(OSError):
            for act in counted:
                self.append(act)
        with self._lock, suppress(OSError):
            if self._held:
                self._write([], sync=True)

    def _line(self, act: AuditAct) -> AuditLine:
        """What happened now, redacted. Lone surrogates, which JSON cannot represent, are written as escapes."""
        fields: dict[str, Any] = {
            name: value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value
            for name, value in structs.asdict(act).items()
        }
        fields["text"] = self._redact(fields["text"])
        return AuditLine(time=self._clock.now().isoformat(timespec="milliseconds"), prev="", **fields)

    def _hold(self, line: AuditLine, error: OSError) -> None:
        chars = self._held_chars + LINE_CHARS + len(line.text)
        if chars > HELD_CHARS:
            raise error
        if not self._held_chars:
            log.error("the audit log cannot be written (%s): its lines are held in memory", error.strerror)
        self._held.append(line)
        self._held_chars = chars

    def _write(self, lines: Sequence[AuditLine], *, sync: bool) -> None:
        """Held lines go first. If the file at our path is no longer the one we write to, a new chain starts. Raises
        OSError: then none of ``lines`` is part of the chain."""
        try:
            is_gone = not os.path.samestat(self._path.lstat(), os.fstat(self._fd))
        except FileNotFoundError:
            is_gone = True
        if is_gone:
            self._begin_anew()
        prev, raw = self._prev, []
        for line in (*self._held, *lines):
            raw.append(msgspec.json.encode(structs.replace(line, prev=prev)))
            prev = digest_of(raw[-1])
        end, rest = os.fstat(self._fd).st_size, memoryview(b"".join(line + b"\n" for line in raw))
        try:
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        except OSError:
            os.ftruncate(self._fd, end)  # no half lines
            raise
        self._prev = prev
        if self._held_chars:
            log.info("the audit log can be written again: the lines held in memory were written")
        self._held.clear()
        self._held_chars = 0
        if sync:
            this_system().sync(self._fd)
            with suppress(OSError):  # then an older one remains there, which is in the log too
                head = os.open(self._head, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
                try:
                    os.pwrite(head, f"{prev}\n".encode(), 0)
                finally:
                    os.close(head)
        if os.fstat(self._fd).st_size > self._rotate_bytes:
            with suppress(OSError):
                self._rotate()

    def _begin_anew(self) -> None:
        """Raises OSError."""
        gone, self._fd = self._fd, self._open()
        os.close(gone)
        self._held.insert(0, self._line(_note("the log before this line was removed", CUT)))

    def _rotate(self) -> None:
        """Raises OSError: then this file stays in use."""
        numbers = [0, *map(number_of, rotated(self._path))]
        aside = self._path.with_suffix(f".{max(numbers) + 1:06}.jsonl")
        self._path.rename(aside)
        try:
            full, self._fd = self._fd, self._open()
        except OSError:
            aside.rename(self._path)
            raise
        os.close(full)

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


async def maintain(audit: AuditLog, clock: Clock) -> None:
    """Write counts and held lines in time, and delete old files: at once and every day. Runs until cancelled."""
    due_s = clock.monotonic()
    while True:
        if clock.monotonic() >= due_s:
            due_s += EXPIRE_S
            with suppress(OSError):  # tried again tomorrow
                await asyncio.to_thread(audit.expire)
        await clock.sleep(FLUSH_S)
        await asyncio.to_thread(audit.flush)


def _note(text: str, decision: str) -> AuditAct:
    return AuditAct(kind=OURS, user=NO_PERSON, channel=NO_CHANNEL, text=text, decision=decision)


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
