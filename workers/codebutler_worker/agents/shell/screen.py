"""Terminal: the bytes of a program to the lines that a terminal would show. No I/O.

The terminal is pyte's. What scrolls off its top is final ("settled"); what is on it may still change. Text without
any control sequence, the bulk of all output, goes past it: pyte takes some hundred kilobytes a second.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass

import pyte

from codebutler_worker.agents.shell.grid import LONGEST_LINE_CHARS, Grid

COLUMNS = 220
ROWS = 50
BULK_CHARS = 4096
STUCK_CHARS = 64 * 2**10
LONGEST_HELD = 64

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# What pyte would show instead of swallowing it: private sequences (xterm's, kitty's), and strings (ECMA-48: DCS, SOS,
# PM, APC) as far as they come in one piece.
_UNKNOWN = re.compile(r"\x1b(?:\[[<=>][0-9;:]*[ -/]*[@-~]|[PX^_][^\x07]*\x07?)")
_UNFINISHED = re.compile(r"\x1b(?:\[[<=>]?[0-9;:]*[ -/]*)?\Z")


@dataclass(frozen=True, slots=True)
class Shown:
    """``settled``: lines that are final, after those taken before. ``live``: those that may still change."""

    settled: tuple[str, ...] = ()
    live: tuple[str, ...] = ()


class Terminal:
    """Feed it bytes in pieces of any size; ``take`` what there is to show.

    A line that was wrapped at the right edge is one line again: a long address stays whole.
    """

    def __init__(self, columns: int = COLUMNS, rows: int = ROWS) -> None:
        self._screen = Grid(columns, rows)
        self._stream = pyte.Stream(self._screen)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._unfinished_chars = 0
        self._held = ""

    def feed(self, data: bytes) -> None:
        """The next output of the program."""
        text = self._decoder.decode(data)
        if len(text) < BULK_CHARS or self._held or not self._grounded:
            self._feed(text)
            return
        head, newline, rest = text.partition("\n")
        self._feed(head + newline)
        plain, last = _split_before_last_lines(rest, self._screen.lines)
        if plain and not _CONTROL.search(plain.replace("\r\n", "\n")) and self._screen.at_end:
            self._screen.settle_all()
            self._screen.settled += _lines(plain)
            self._feed(last)
        else:
            self._feed(rest)

    def skip(self) -> None:
        """Something was left out here: what is shown stays as it is, and what comes begins on a new screen."""
        self._screen.settle_all()
        self._screen.reset()
        self._decoder.reset()
        self._restart()

    def turn_page(self) -> None:
        """From now on show what comes, and of what is there only the cursor's own line (the prompt)."""
        self._screen.turn_page()

    def take(self) -> Shown:
        """What is new since the last time, and what is on the screen now."""
        screen = self._screen
        settled, screen.settled = tuple(screen.settled), []
        return Shown(settled, tuple(screen.live()))

    @property
    def _grounded(self) -> bool:
        """No control sequence is under way."""
        return bool(self._stream._taking_plain_text)  # noqa: SLF001 - pyte is pinned, and says it nowhere else

    def _feed(self, text: str) -> None:
        text, self._held = self._held + text, ""
        if (cut := _UNFINISHED.search(text, max(0, len(text) - LONGEST_HELD))) is not None:
            text, self._held = text[: cut.start()], text[cut.start() :]
        # A sequence that pyte trips over costs the text up to the next one, not all of it.
        for piece in _pieces(text):
            try:
                self._stream.feed(_UNKNOWN.sub("", piece, count=1) if piece[0] == "\x1b" else piece)
            except Exception:  # noqa: BLE001 - hostile bytes; pyte raises whatever its handlers happen to raise
                self._restart()
        self._unfinished_chars = 0 if self._grounded else self._unfinished_chars + len(text)
        if self._unfinished_chars > STUCK_CHARS:
            # A title without an end: a terminal would swallow everything after it, and keep it in memory.
            self._restart()

    def _restart(self) -> None:
        self._held = ""
        self._unfinished_chars = 0
        self._stream._initialize_parser()  # noqa: SLF001 - as pyte itself does after an error


def _pieces(text: str) -> Iterator[str]:
    """The text, cut before each escape character."""
    start = 0
    while (end := text.find("\x1b", start + 1)) >= 0:
        yield text[start:end]
        start = end
    if start < len(text):
        yield text[start:]


def _split_before_last_lines(text: str, count: int) -> tuple[str, str]:
    """The whole lines before the last ``count`` ones, and the rest."""
    end = len(text)
    for _ in range(count + 1):
        end = text.rfind("\n", 0, end)
        if end < 0:
            return "", text
    return text[: end + 1], text[end + 1 :]


def _lines(text: str) -> list[str]:
    found = []
    for line in text.removesuffix("\n").split("\n"):
        shown = line.removesuffix("\r").expandtabs(8).rstrip()
        while len(shown) > LONGEST_LINE_CHARS:
            found.append(shown[:LONGEST_LINE_CHARS])
            shown = shown[LONGEST_LINE_CHARS:]
        found.append(shown)
    return found
