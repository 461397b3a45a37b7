"""The parent's log: stderr, ``logs/codebutler.log`` and the last lines in memory, by standard ``logging``.

Code logs with ``logging.getLogger("codebutler…")``; ``extra={"tag": "MSG", "repo": "name"}`` names another
tag than the level's and the repository. Other libraries' warnings arrive here as well.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Literal, TextIO

from codebutler.observe.background import Background, private_file
from codebutler.observe.format import LEVELS, LineFormatter, People, level_of
from codebutler.observe.ring import Ring
from codebutler.protocol.messages import LogTag

ROOM = "codebutler"
FILE_BYTES = 10 * 2**20
FILE_BACKUPS = 5
DAY_S = 86400.0

Level = Literal["debug", "info", "warn", "error"]


class Logs:
    """``with Logs(path, level, redact) as logs``: leaving the block writes what is queued and lets go.

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
        people: People | None = None,
    ) -> None:
        self._path = path
        self._level = LEVELS[level]
        self._formatter = LineFormatter(redact, people)
        self._stream = stream
        self._retention_days = retention_days
        self._backgrounds: list[Background] = []
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
            self._backgrounds.append(Background("codebutler-log", handler))
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
        """Log ``text`` under ``tag`` and the name of a repository ("" = none)."""
        self._logger.log(level_of(tag), "%s", text, extra={"tag": tag, "repo": repo})

    def _handlers(self) -> list[logging.Handler]:
        return [self.ring, *(background.handler for background in self._backgrounds)]


def _forget_old(path: Path, before: float) -> None:
    """Remove rotated files that nothing was written to since ``before`` (seconds since the epoch)."""
    for old in path.parent.glob(f"{path.name}.*"):
        with suppress(OSError):
            if old.stat().st_mtime < before:
                old.unlink()
