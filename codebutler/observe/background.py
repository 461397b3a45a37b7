"""Log handlers that never block who logs: a thread of their own writes.

multiprocessing-logging's handler does the work; its installer refuses every start method but "fork", so the
handler is built directly.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from contextlib import suppress
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path

from multiprocessing_logging import MultiProcessingHandler

_MARK = "codebutler.observe.written"
CLOSE_S = 5.0


class PrivateFileHandler(RotatingFileHandler):
    """Rotates by size; the file is its owner's alone and is never opened through a symlink. Of lines that it cannot
    write the first one is told on stderr, which has them all."""

    _lost = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record. Raises nothing."""
        before = self._lost
        super().emit(record)
        if self._lost == before:
            self._lost = 0

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802, ARG002 - they are logging's
        """Instead of a traceback for each line, with the line as it was before it was redacted."""
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
    """Writes through ``inner`` and notices the mark that ``Background.close`` sends as the last record."""

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


class Background:
    """``inner`` behind a queue and a thread: ``handler`` is what a logger gets."""

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
            # macOS cannot count a queue, and the handler's thread asks when it is told to end.
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
