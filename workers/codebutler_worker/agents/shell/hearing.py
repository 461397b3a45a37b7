"""Hearing: the envelopes in what a terminal program writes. Fed on the reader's thread, asked on the loop."""

from __future__ import annotations

import codecs
import re
import threading
from collections import deque

from codebutler.text.envelope import CLOSING, Envelope, EnvelopeParser, Part

MAX_WAITING = 200
INCOMPLETE = "⚠️ (incomplete) "
LONGEST_SEQUENCE_CHARS = 4096

# ECMA-48 control sequences, strings (OSC, DCS, SOS, PM, APC) and two-character escapes.
_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-OQ-WYZ`-~])")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


class Stripper:
    """Pure: bytes of a terminal in, their plain text out. A sequence may be cut anywhere."""

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


class Hearing:
    """Nothing that comes before ``deaf_until_s`` is heard: it is the echo of what was typed."""

    def __init__(self, unclosed_s: float) -> None:
        self.deaf_until_s = 0.0
        self._lock = threading.Lock()
        self._stripper = Stripper()
        self._parser = EnvelopeParser(unclosed_s)
        self._waiting: deque[Envelope] = deque(maxlen=MAX_WAITING)

    def feed(self, data: bytes, now_s: float) -> None:
        """The next output of the program."""
        with self._lock:
            text = self._stripper.feed(data)
            if now_s >= self.deaf_until_s:
                self._keep(self._parser.feed(text, now_s))

    def heard(self, now_s: float, *, over: bool) -> list[str]:
        """The envelopes since the last time, written as envelopes. ``over``: nothing more will come."""
        with self._lock:
            self._keep(self._parser.close() if over else self._parser.overdue(now_s))
            found = [_written(envelope) for envelope in self._waiting]
            self._waiting.clear()
        return found

    def _keep(self, parts: list[Part]) -> None:
        self._waiting.extend(part for part in parts if isinstance(part, Envelope))


def _written(envelope: Envelope) -> str:
    kind = f":{envelope.type}" if envelope.type else ""
    body = envelope.body if envelope.complete else INCOMPLETE + envelope.body
    return f"<<<SLACK{kind}>>>{body}{CLOSING}"
