"""Backlog: what a program has written and nobody has rendered yet. Bounded, and safe between two threads."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass

HEAD_BYTES = 256 * 2**10
TAIL_BYTES = 24 * 2**10


@dataclass(frozen=True, slots=True)
class Batch:
    """``head``, then ``skipped_bytes`` that were let go, then ``tail`` (empty if nothing was let go)."""

    head: bytes = b""
    skipped_bytes: int = 0
    tail: bytes = b""


class Backlog:
    """Everything up to ``HEAD_BYTES`` since the last ``rewind``; of a flood after that only its end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        self._skipped_bytes = 0
        self._room_bytes = HEAD_BYTES

    def push(self, data: bytes, *, newline_returns: bool = False) -> None:
        """The next bytes. Never blocks for long. ``newline_returns``: a newline among them is a return, too."""
        with self._lock:
            if not self._tail:
                room = max(0, max(self._room_bytes, TAIL_BYTES) - len(self._head))
                self._head += returning(data[:room]) if newline_returns else data[:room]
                data = data[room:]
            if not data:
                return
            self._skipped_bytes += max(0, len(data) - TAIL_BYTES)
            end = data[-TAIL_BYTES:]
            self._tail.append(returning(end) if newline_returns else end)
            self._tail_bytes += len(self._tail[-1])
            while self._tail_bytes - len(self._tail[0]) >= TAIL_BYTES:
                gone = self._tail.popleft()
                self._tail_bytes -= len(gone)
                self._skipped_bytes += len(gone)

    def take(self) -> Batch:
        """All there is; empties it."""
        with self._lock:
            head, tail = bytes(self._head), b"".join(self._tail)
            skipped = self._skipped_bytes
            self._room_bytes = max(0, self._room_bytes - len(head))
            self._head.clear()
            self._tail.clear()
            self._tail_bytes = self._skipped_bytes = 0
        if skipped == 0:
            return Batch(head + tail)
        return Batch(head, skipped, tail)

    def rewind(self) -> None:
        """People look at what comes now as closely as at a beginning."""
        with self._lock:
            self._room_bytes = HEAD_BYTES

    @property
    def empty(self) -> bool:
        """Whether there is nothing to take."""
        return not self._head and not self._tail


def returning(data: bytes) -> bytes:
    """``data`` for a terminal that returns only when told to."""
    return data.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
