"""The output of a terminal program: kept until it is rendered or searched for envelopes. Written on the reader's
thread, read on the event loop."""

from __future__ import annotations

import codecs
import re
import threading
from collections import deque

from msgspec import Struct

from codebutler.text.envelopes import Envelope, EnvelopeParser, Part, enveloped

HEAD_BYTES = 256 * 2**10
TAIL_BYTES = 24 * 2**10

MAX_WAITING = 200
INCOMPLETE = "⚠️ (incomplete) "
LONGEST_SEQUENCE_CHARS = 4096

# ECMA-48 control sequences, strings (OSC, DCS, SOS, PM, APC) and two-character escapes.
_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-OQ-WYZ`-~])")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


class Batch(Struct, frozen=True):
    """A part of the output: ``head``, then ``skipped_bytes`` that were dropped, then ``tail`` (empty if nothing was
    dropped)."""

    head: bytes = b""
    skipped_bytes: int = 0
    tail: bytes = b""


class OutputBacklog:
    """Everything up to ``HEAD_BYTES`` since the last ``rewind``; of a flood after that only its end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        self._skipped_bytes = 0
        self._room_bytes = HEAD_BYTES

    def push(self, data: bytes, *, newline_returns: bool = False) -> None:
        """Add bytes. Never blocks for long. ``newline_returns``: a newline among them also returns the cursor."""
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
        """Return everything and empty the backlog."""
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
        """Treat what comes now like a beginning: people look at it just as closely."""
        with self._lock:
            self._room_bytes = HEAD_BYTES

    @property
    def empty(self) -> bool:
        """Whether there is nothing to take."""
        return not self._head and not self._tail


def returning(data: bytes) -> bytes:
    """``data`` for a terminal where a newline does not return the cursor by itself."""
    return data.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")


class Stripper:
    """Pure: terminal output in, plain text out. A sequence may be split anywhere."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    def feed(self, data: bytes) -> str:
        """The text that is certain now."""
        text = self._rest + self._decoder.decode(data)
        self._rest = ""
        if "\x1b" in text:
            text = _SEQUENCE.sub("", text)
            cut = text.find("\x1b")
            if cut >= 0 and len(text) - cut <= LONGEST_SEQUENCE_CHARS:
                text, self._rest = text[:cut], text[cut:]
        if "\r" in text:
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        return _CONTROL.sub("", text)


class EnvelopeReader:
    """The envelopes in a program's output. Output before ``ignore_until_s`` is the echo of what was typed."""

    def __init__(self, unclosed_s: float) -> None:
        self.ignore_until_s = 0.0
        self._lock = threading.Lock()
        self._stripper = Stripper()
        self._parser = EnvelopeParser(unclosed_s)
        self._waiting: deque[Envelope] = deque(maxlen=MAX_WAITING)

    def feed(self, data: bytes, now_s: float) -> None:
        """Read the program's next output."""
        with self._lock:
            text = self._stripper.feed(data)
            if now_s >= self.ignore_until_s:
                self._keep(self._parser.feed(text, now_s))

    def heard(self, now_s: float, *, over: bool) -> list[str]:
        """The envelopes since the last call, written as envelopes. ``over``: nothing more will come."""
        with self._lock:
            self._keep(self._parser.close() if over else self._parser.overdue(now_s))
            found = [_written(envelope) for envelope in self._waiting]
            self._waiting.clear()
        return found

    def _keep(self, parts: list[Part]) -> None:
        self._waiting.extend(part for part in parts if isinstance(part, Envelope))


def _written(envelope: Envelope) -> str:
    body = envelope.body if envelope.complete else INCOMPLETE + envelope.body
    return enveloped(body, envelope.type)
