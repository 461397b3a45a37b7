"""The last log lines in memory, and the format of a line: ``2026-02-14 15:04:05 TAG  text``, in local time."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import logging
import re
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct

# The last log lines in memory, and the followers who read new ones.

RING_LINES = 2000
FOLLOWER_LINES = 500


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


# A log record as one line: ``2026-02-14 15:04:05 TAG  text``, in local time.
#
# Any logged text may come from a stranger: characters that could forge a line or control a terminal are escaped.

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


def escape_controls(text: str) -> str:
    """``text`` on one line, with each control character escaped as in Python."""
    return _UNSAFE.sub(lambda match: match.group().encode("unicode_escape").decode("ascii"), text)


class LineFormatter(logging.Formatter):
    """Formats records; ``redact`` removes secrets, ``named`` replaces people's IDs by names, or (True) adds them."""

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
            repo=escape_controls(str(getattr(record, "repo", "") or "")),
            text=escape_controls(self._redact(text)),
        )

    def format(self, record: logging.LogRecord) -> str:
        """The whole line."""
        line = self.describe(record)
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(line.at))
        repo = f"[{line.repo}] " if line.repo else ""
        return f"{stamp} {line.tag}  {repo}{line.text}"
