"""The last log lines in memory, and a record as one line: ``2026-02-14 15:04:05 TAG  text``, in local time."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import logging
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from msgspec import Struct

# The last log lines in memory, and whoever follows them.

RING_LINES = 2000
FOLLOWER_LINES = 500


class LogLine(Struct, frozen=True, kw_only=True):
    """One log line. ``at``: seconds since the epoch; ``text`` has neither newlines nor control characters."""

    at: float
    tag: str
    repo: str
    text: str


class Follower:
    """New lines for one reader; one that reads too slowly loses the oldest and is told how many."""

    def __init__(self, past: Iterable[LogLine] = (), limit: int = FOLLOWER_LINES) -> None:
        self.past = tuple(past)
        """The lines before those that come: none is in both, none in neither."""
        self.lost = 0
        self.loop = asyncio.get_running_loop()
        self._lines: deque[LogLine] = deque(maxlen=limit)

    def put(self, line: LogLine) -> None:
        """From the loop's own thread."""
        if len(self._lines) == self._lines.maxlen:
            self.lost += 1
        self._lines.append(line)

    def take(self) -> list[LogLine]:
        """What has come since it was taken last, without waiting."""
        lines = list(self._lines)
        self._lines.clear()
        return lines


class Ring(logging.Handler):
    """A log handler that keeps the last lines. ``describe`` turns a record into a line.

    When there are too many, the oldest line of the repository with the most goes: a flood drives out itself.
    """

    def __init__(self, describe: Callable[[logging.LogRecord], LogLine], size: int = RING_LINES) -> None:
        super().__init__()
        self._describe = describe
        self._size = size
        self._count = 0
        self._lines: dict[str, deque[tuple[int, LogLine]]] = {}
        """Of each repository ("" = none), with the number of each line among all."""
        self._followers: set[Follower] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the record's line and hand it on. Called with the handler's lock held, from any thread."""
        line = self._describe(record)
        self._keep(line)
        for follower in tuple(self._followers):
            # A loop that is closed has no followers any more.
            with contextlib.suppress(RuntimeError):
                follower.loop.call_soon_threadsafe(follower.put, line)

    def recent(self, count: int = RING_LINES, repo: str = "") -> list[LogLine]:
        """The newest ``count`` lines, oldest first; of one repository if named."""
        assert self.lock is not None
        with self.lock:
            lines = self._in_order([repo] if repo else list(self._lines))
        return lines[-count:] if count > 0 else []

    def _keep(self, line: LogLine) -> None:
        self._count += 1
        self._lines.setdefault(line.repo, deque()).append((self._count, line))
        if sum(map(len, self._lines.values())) > self._size:
            longest = max(self._lines, key=lambda repo: len(self._lines[repo]))
            self._lines[longest].popleft()
            if not self._lines[longest]:
                del self._lines[longest]

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
# Whatever is logged may come from a stranger: what could forge a line or drive a terminal is escaped.

_LEVELS = {"DBG": logging.DEBUG, "WRN": logging.WARNING, "ERR": logging.ERROR}
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
    """``text`` on one line, each control character as Python would write it."""
    return _UNSAFE.sub(lambda match: match.group().encode("unicode_escape").decode("ascii"), text)


def level_of(tag: str) -> int:
    """How much a line with this tag matters: INF, MSG, RSP, MEM and those of agents inform."""
    return _LEVELS.get(tag, logging.INFO)


def tag_of(record: logging.LogRecord) -> str:
    """The record's own tag (``extra={"tag": "MSG"}``), or the one of its level."""
    tag = str(getattr(record, "tag", ""))
    if _TAG.fullmatch(tag):
        return tag
    if record.levelno >= logging.ERROR:
        return "ERR"
    if record.levelno >= logging.WARNING:
        return "WRN"
    return "INF" if record.levelno >= logging.INFO else "DBG"


class NamesById(Protocol):
    """Whoever knows names."""

    def named(self, text: str, *, with_ids: bool = False) -> str:
        """``text`` with names in place of the IDs in it, or (``with_ids``) before them."""


class LineFormatter(logging.Formatter):
    """Formats records; ``redact`` takes the secrets out of their text, ``people`` puts names in place of user IDs."""

    def __init__(self, redact: Callable[[str], str], people: NamesById | None = None) -> None:
        super().__init__("%(message)s")
        self._redact = redact
        self._people = people

    def describe(self, record: logging.LogRecord) -> LogLine:
        """The record as data; a traceback becomes part of its text."""
        text = super().format(record)
        if self._people is not None:
            # What went wrong is about somebody: then it has to be sure about whom.
            text = self._people.named(text, with_ids=record.levelno >= logging.WARNING)
        return LogLine(
            at=record.created,
            tag=tag_of(record),
            repo=escape_controls(str(getattr(record, "repo", "") or "")),
            text=escape_controls(self._redact(text)),
        )

    def format(self, record: logging.LogRecord) -> str:
        """The whole line."""
        return render(self.describe(record))


def render(line: LogLine) -> str:
    """``line`` as it stands in the log."""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(line.at))
    repo = f"[{line.repo}] " if line.repo else ""
    return f"{stamp} {line.tag}  {repo}{line.text}"
