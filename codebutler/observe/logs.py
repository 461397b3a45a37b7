"""The parent's log: stderr, ``logs/codebutler.log`` and the last lines in memory, through standard ``logging``.

Code logs with ``logging.getLogger("codebutler…")``; ``extra={"tag": "MSG", "repo": "name"}`` sets the repository, and a
tag other than the level's. Other libraries' warnings are included.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import logging
import os
import re
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from types import TracebackType
from typing import Literal, TextIO

from msgspec import Struct
from multiprocessing_logging import MultiProcessingHandler

from codebutler.protocol.messages import LogTag

RING_LINES = 2000
FOLLOWER_LINES = 500
TAGS = {"ERR": logging.ERROR, "WRN": logging.WARNING, "INF": logging.INFO, "DBG": logging.DEBUG}
"""The level of each tag; the other tags (MSG, RSP, MEM and those of agents) are informational."""
_TAG = re.compile("[A-Z]{3}")
LEVELS: dict[str, int] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
}
# C0 and C1 controls, line and paragraph separators, bidirectional overrides, lone surrogates.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_MARK = "codebutler.observe.written"
CLOSE_S = 5.0
ROOM = "codebutler"
FILE_BYTES = 10 * 2**20
FILE_BACKUPS = 5
DAY_S = 86400.0
Level = Literal["debug", "info", "warn", "error"]


class LogLine(Struct, frozen=True, kw_only=True):
    """One log line. ``at``: seconds since the epoch; ``text`` has neither newlines nor control characters."""

    at: float
    tag: str
    repo: str
    text: str


class Follower:
    """New lines for one reader; a slow one loses the oldest and is told how many."""

    def __init__(self, past: Iterable[LogLine] = (), limit: int = FOLLOWER_LINES) -> None:
        self.past = tuple(past)
        """The lines before the followed ones, without gaps or duplicates."""
        self.lost = 0
        self.loop = asyncio.get_running_loop()
        self._lines: deque[LogLine] = deque(maxlen=limit)

    def put(self, line: LogLine) -> None:
        """Add a line; called on the event loop's thread."""
        if len(self._lines) == self._lines.maxlen:
            self.lost += 1
        self._lines.append(line)

    def take(self) -> list[LogLine]:
        """The lines since the last call, without waiting."""
        lines = list(self._lines)
        self._lines.clear()
        return lines


class Ring(logging.Handler):
    """A log handler that keeps the last lines. ``describe`` turns a record into a line.

    If there are too many, the oldest line of the repository with the most lines is dropped: a flood displaces only
    itself.
    """

    def __init__(self, describe: Callable[[logging.LogRecord], LogLine], size: int = RING_LINES) -> None:
        super().__init__()
        self._describe = describe
        self._size = size
        self._count = 0
        self._lines: dict[str, deque[tuple[int, LogLine]]] = {}
        """By repository ("" = none), with the number of each line in the whole log."""
        self._followers: set[Follower] = set()
        self.tags: Counter[str] = Counter()
        """How many lines of each tag there were."""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the record's line and pass it on. Called with the handler's lock held, from any thread."""
        line = self._describe(record)
        self.tags[line.tag] += 1
        self._count += 1
        self._lines.setdefault(line.repo, deque()).append((self._count, line))
        if sum(map(len, self._lines.values())) > self._size:
            longest = max(self._lines, key=lambda repo: len(self._lines[repo]))
            self._lines[longest].popleft()
            if not self._lines[longest]:
                del self._lines[longest]
        for follower in tuple(self._followers):
            # A closed loop has no followers any more.
            with contextlib.suppress(RuntimeError):
                follower.loop.call_soon_threadsafe(follower.put, line)

    def recent(self, count: int = RING_LINES, repo: str = "") -> list[LogLine]:
        """The newest ``count`` lines, oldest first; of one repository if named."""
        assert self.lock is not None
        with self.lock:
            lines = self._in_order([repo] if repo else list(self._lines))
        return lines[-count:] if count > 0 else []

    def _in_order(self, repos: list[str]) -> list[LogLine]:
        return [line for _, line in heapq.merge(*(self._lines.get(repo, ()) for repo in repos))]

    @contextlib.contextmanager
    def follow(self) -> Iterator[Follower]:
        """Every line from now on: ``with ring.follow() as follower: lines = follower.take()``."""
        assert self.lock is not None
        with self.lock:
            follower = Follower(self._in_order(list(self._lines)))
            self._followers.add(follower)
        try:
            yield follower
        finally:
            self._followers.discard(follower)


def _escaped(match: re.Match[str]) -> str:
    """A control character, escaped as in Python."""
    return match.group().encode("unicode_escape").decode("ascii")


class LineFormatter(logging.Formatter):
    """A log record as one line: ``2026-02-14 15:04:05 TAG  text``, in local time. ``redact`` removes secrets, ``named``
    replaces people's IDs by names, or (True) adds them. Any logged text may come from a stranger: characters that could
    forge a line or control a terminal are escaped."""

    def __init__(self, redact: Callable[[str], str], named: Callable[[str, bool], str] | None = None) -> None:
        super().__init__("%(message)s")
        self._redact = redact
        self._named = named

    def describe(self, record: logging.LogRecord) -> LogLine:
        """The record as data, with its own tag (``extra={"tag": "MSG"}``) or the one for its level; a traceback becomes
        part of its text."""
        tag = str(getattr(record, "tag", ""))
        if not _TAG.fullmatch(tag):
            tag = next((name for name, level in TAGS.items() if record.levelno >= level), "DBG")
        text = super().format(record)
        if self._named is not None:
            # Warnings and errors must identify a person exactly.
            text = self._named(text, record.levelno >= logging.WARNING)
        return LogLine(
            at=record.created,
            tag=tag,
            repo=_UNSAFE.sub(_escaped, str(getattr(record, "repo", "") or "")),
            text=_UNSAFE.sub(_escaped, self._redact(text)),
        )

    def format(self, record: logging.LogRecord) -> str:
        """The whole line."""
        line = self.describe(record)
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(line.at))
        repo = f"[{line.repo}] " if line.repo else ""
        return f"{stamp} {line.tag}  {repo}{line.text}"


class PrivateFileHandler(RotatingFileHandler):
    """Rotates by size; the file is private to its owner and never opened through a symlink. Of the lines that it cannot
    write, the first is reported on stderr, which has them all."""

    _lost = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record. Never raises."""
        before = self._lost
        super().emit(record)
        if self._lost == before:
            self._lost = 0

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802, ARG002 - they are logging's
        """Reports once, instead of a traceback for each line that would show it before redaction."""
        self._lost += 1
        if self._lost == 1 and sys.stderr is not None:
            error = sys.exc_info()[1]
            why = getattr(error, "strerror", None) or type(error).__name__
            with suppress(OSError, ValueError):
                sys.stderr.write(f"codebutler: {self.baseFilename} cannot be written: {why}\n")

    def _open(self) -> TextIOWrapper:
        binary = open(self.baseFilename, "ab", opener=_open_private)  # noqa: SIM115 - logging closes it
        return TextIOWrapper(binary, encoding=self.encoding, errors=self.errors)


class _Marked(logging.Handler):
    """Writes through ``inner`` and notices the marker that ``BackgroundHandler.close`` sends as the last record."""

    def __init__(self, inner: logging.Handler) -> None:
        super().__init__()
        self.reached = threading.Event()
        self._inner = inner

    def emit(self, record: logging.LogRecord) -> None:
        if record.name == _MARK:
            self.reached.set()
        else:
            self._inner.handle(record)

    def close(self) -> None:
        self._inner.close()
        super().close()


class BackgroundHandler:
    """``inner`` behind a queue and a thread, so that it never blocks the caller: give ``handler`` to a logger.

    Based on multiprocessing-logging's handler; its installer refuses every start method but "fork", so the handler is
    built directly.
    """

    def __init__(self, name: str, inner: logging.Handler) -> None:
        self._marked = _Marked(inner)
        wrapped = MultiProcessingHandler(name, sub_handler=self._marked)
        self._queue = wrapped.queue
        self.handler: logging.Handler = wrapped

    def close(self) -> None:
        """Write what is queued, within a few seconds, and close ``inner``."""
        self.handler.emit(logging.LogRecord(_MARK, logging.INFO, "", 0, "", None, None))
        self._marked.reached.wait(CLOSE_S)
        try:
            self._queue.qsize()
        except NotImplementedError:
            # macOS cannot count a queue, and the handler's thread does so when it is told to end.
            self._queue.qsize = _nothing
        self.handler.close()


def private_file(path: Path, max_bytes: int, backups: int) -> PrivateFileHandler:
    """A log file handler on ``path``; raises OSError if it cannot be opened."""
    return PrivateFileHandler(
        path, maxBytes=max_bytes, backupCount=backups, encoding="utf-8", errors="backslashreplace"
    )


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _nothing() -> int:
    return 0


class Logs:
    """``with Logs(path, level, redact) as logs``: leaving the block writes what is queued and closes the files.

    ``path`` None: no file. ``stream`` None: nothing on a terminal either.
    """

    def __init__(
        self,
        path: Path | None,
        level: Level,
        redact: Callable[[str], str],
        *,
        stream: TextIO | None = sys.stderr,
        retention_days: int = 30,
        named: Callable[[str, bool], str] | None = None,
    ) -> None:
        self._path = path
        self._level = LEVELS[level]
        self._formatter = LineFormatter(redact, named)
        self._stream = stream
        self._retention_days = retention_days
        self._backgrounds: list[BackgroundHandler] = []
        self._before: list[tuple[logging.Logger, int]] = []
        self._logger = logging.getLogger(ROOM)
        self.ring = Ring(self._formatter.describe)

    def __enter__(self) -> Logs:
        """Raises OSError if the file cannot be opened."""
        inner: list[logging.Handler] = []
        if self._path is not None:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _forget_old(self._path, time.time() - self._retention_days * DAY_S)
            inner.append(private_file(self._path, FILE_BYTES, FILE_BACKUPS))
        if self._stream is not None:
            inner.append(logging.StreamHandler(self._stream))
        for handler in inner:
            handler.setFormatter(self._formatter)
            self._backgrounds.append(BackgroundHandler("codebutler-log", handler))
        root = logging.getLogger()
        self._before = [(root, root.level), (self._logger, self._logger.level)]
        root.setLevel(logging.WARNING)
        self._logger.setLevel(self._level)
        for attached in self._handlers():
            root.addHandler(attached)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for attached in self._handlers():
            logging.getLogger().removeHandler(attached)
        for logger, level in self._before:
            logger.setLevel(level)
        for background in self._backgrounds:
            background.close()
        self._backgrounds.clear()

    def record(self, repo: str, tag: LogTag, text: str) -> None:
        """Log ``text`` with ``tag`` and the name of a repository ("" = none)."""
        self._logger.log(TAGS.get(tag, logging.INFO), "%s", text, extra={"tag": tag, "repo": repo})

    def _handlers(self) -> list[logging.Handler]:
        return [self.ring, *(background.handler for background in self._backgrounds)]


def _forget_old(path: Path, before: float) -> None:
    """Remove rotated files that were not written since ``before`` (seconds since the epoch)."""
    for old in path.parent.glob(f"{path.name}.*"):
        with suppress(OSError):
            if old.stat().st_mtime < before:
                old.unlink()
