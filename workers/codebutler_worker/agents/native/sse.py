"""Server-sent events, as far as chat completions use them: bytes in, the ``data`` of each event out. Pure.

Source: the HTML standard, "Interpreting an event stream": lines end with LF, CR LF or CR, a line that begins with a
colon is a comment, several data lines are joined, an empty line ends the event.
"""

from __future__ import annotations

MAX_EVENT_BYTES = 8 * 2**20


class EventTooLargeError(ValueError):
    """An event is larger than can be taken."""


class EventDecoder:
    """Takes chunks as they come, split anywhere."""

    def __init__(self, limit_bytes: int = MAX_EVENT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._line = bytearray()
        self._data: list[bytes] = []
        self._size = 0
        self._after_cr = False

    def feed(self, chunk: bytes) -> list[str]:
        """The data of the events that ``chunk`` completes. Raises EventTooLargeError."""
        if self._after_cr and chunk:
            chunk = chunk.removeprefix(b"\n")
            self._after_cr = False
        self._after_cr = chunk.endswith(b"\r")
        *lines, rest = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        events: list[str] = []
        for line in lines:
            self._line += line
            whole = bytes(self._line)
            self._line.clear()
            events += self._take(whole)
        self._line += rest
        if self._size + len(self._line) > self._limit_bytes:
            raise EventTooLargeError
        return events

    def _take(self, line: bytes) -> list[str]:
        if not line:
            data, self._data, self._size = self._data, [], 0
            return [b"\n".join(data).decode(errors="replace")] if data else []
        field, _, value = line.partition(b":")
        if field == b"data":
            self._data.append(value.removeprefix(b" "))
            self._size += len(value)
        return []
