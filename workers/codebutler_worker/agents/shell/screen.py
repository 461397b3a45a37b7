"""Terminal: a program's bytes to the lines that a terminal would show. No I/O.

The terminal is pyte's. Lines that scroll off its top are final ("settled"); those on it may still change. Text without
control sequences, most of all output, bypasses it: pyte processes only some hundred kilobytes a second.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from collections.abc import Iterator
from typing import Any

import pyte
import pyte.modes
from msgspec import Struct
from pyte.screens import Char, Margins
from wcwidth import wcwidth

COLUMNS = 220
ROWS = 50
BULK_CHARS = 4096
STUCK_CHARS = 64 * 2**10
LONGEST_HELD = 64

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# What pyte would show instead of ignoring it: private sequences (xterm's, kitty's), colours with colons (ISO 8613-6,
# systemctl's), and strings (ECMA-48: DCS, SOS, PM, APC) as far as they arrive in one piece.
_UNKNOWN = re.compile(r"\x1b(?:\[(?:[<=>][0-9;:]*|[0-9;]*:[0-9;:]*)[ -/]*[@-~]|[PX^_][^\x07]*\x07?)")
_UNFINISHED = re.compile(r"\x1b(?:\[[<=>]?[0-9;:]*[ -/]*)?\Z")

LONGEST_LINE_CHARS = 8 * 2**10
REVERSED = 5
"""DECSCNM, the screen's colours exchanged: we show none, and pyte would visit every cell."""
OTHER_SCREEN = frozenset({47, 1047, 1049})
"""xterm's modes for the alternate screen, which full-screen programs draw on and leave without a trace."""
_BLANK = Char(" ")


class ScreenLines(Struct, frozen=True):
    """What the terminal shows. ``settled``: lines that are final, after those taken before. ``live``: those that may
    still change."""

    settled: tuple[str, ...] = ()
    live: tuple[str, ...] = ()


class TerminalScreen:
    """Feed it bytes in pieces of any size; ``take`` returns what there is to show.

    A line that was wrapped at the right edge becomes one line again: a long URL stays whole.
    """

    def __init__(self, columns: int = COLUMNS, rows: int = ROWS) -> None:
        self._screen = Grid(columns, rows)
        self._stream = pyte.Stream(self._screen)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._unfinished_chars = 0
        self._held = ""

    def feed(self, data: bytes) -> None:
        """Process the program's next output."""
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
        """Something was left out here: keep what is shown, and start a new screen."""
        self._screen.settle_all()
        self._screen.reset()
        self._decoder.reset()
        self._restart()

    def turn_page(self) -> None:
        """Show only what comes from now on, and the line with the cursor (the prompt)."""
        self._screen.turn_page()

    def take(self) -> ScreenLines:
        """The new lines since the last call, and the current screen."""
        screen = self._screen
        settled, screen.settled = tuple(screen.settled), []
        return ScreenLines(settled, tuple(screen.live()))

    @property
    def _grounded(self) -> bool:
        """Whether no control sequence is in progress."""
        return bool(self._stream._taking_plain_text)  # noqa: SLF001 - pyte is pinned, and says it nowhere else

    def _feed(self, text: str) -> None:
        text, self._held = self._held + text, ""
        if (cut := _UNFINISHED.search(text, max(0, len(text) - LONGEST_HELD))) is not None:
            text, self._held = text[: cut.start()], text[cut.start() :]
        # A sequence on which pyte fails costs the text up to the next one, not all of it.
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
    """The text, split before each escape character."""
    start = 0
    while (end := text.find("\x1b", start + 1)) >= 0:
        yield text[start:end]
        start = end
    if start < len(text):
        yield text[start:]


def _split_before_last_lines(text: str, count: int) -> tuple[str, str]:
    """All lines but the last ``count``, and the rest."""
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


class _Aside(Struct):
    """The main screen, while a program draws on the alternate one."""

    buffer: Any
    cursor: tuple[int, int]
    margins: Margins | None
    wrapped: set[int]
    first: int
    carry: str


class Grid(pyte.Screen):
    """pyte's screen, extended to hand over the lines that scroll off. Text only: no colours."""

    def __init__(self, columns: int, rows: int) -> None:
        self.settled: list[str] = []
        self._wrapped: set[int] = set()
        self._carry = ""
        self._first = 0
        self._cells: dict[str, Char] = {}
        self._aside: _Aside | None = None
        super().__init__(columns, rows)

    def reset(self) -> None:
        """Reset: an empty screen, no alternate screen, nothing wrapped."""
        super().reset()
        self._aside = None
        self._wrapped.clear()
        self._first = 0

    def set_mode(self, *modes: int, **kwargs: Any) -> None:
        """As in pyte; the alternate screen (DECSET 47, 1047, 1049) starts empty, and the main one is saved."""
        super().set_mode(*(mode for mode in modes if mode != REVERSED), **kwargs)
        if kwargs.get("private") and self._aside is None and not OTHER_SCREEN.isdisjoint(modes):
            at = (self.cursor.x, self.cursor.y)
            self._aside = _Aside(self.buffer, at, self.margins, self._wrapped, self._first, self._carry)
            self.buffer = self.buffer.copy()
            self.buffer.clear()
            self.margins, self._wrapped, self._first, self._carry = None, set(), 0, ""

    def reset_mode(self, *modes: int, **kwargs: Any) -> None:
        """As in pyte; the saved screen is shown again."""
        super().reset_mode(*(mode for mode in modes if mode != REVERSED), **kwargs)
        if kwargs.get("private") and not OTHER_SCREEN.isdisjoint(modes):
            self._put_back()

    def _put_back(self) -> None:
        """Restore the main screen."""
        aside, self._aside = self._aside, None
        if aside is not None:
            self.buffer, self.margins, self._wrapped = aside.buffer, aside.margins, aside.wrapped
            self.cursor.x, self.cursor.y = aside.cursor
            self._first, self._carry = aside.first, aside.carry

    def draw(self, data: str) -> None:
        """pyte's own method stops at the first character without width, and is slow."""
        self._first = min(self._first, self.cursor.y)
        insert = pyte.modes.IRM in self.mode
        for char in data.translate(self.g1_charset if self.charset else self.g0_charset):
            width = int(char.isprintable()) if char.isascii() else wcwidth(char)
            if width <= 0:
                self._combine(char)
                continue
            if self.cursor.x >= self.columns:
                self._wrap(width)
            if insert:
                self.insert_characters(width)
            line = self.buffer[self.cursor.y]
            line[self.cursor.x] = self._cell(char)
            if width == 2 and self.cursor.x + 1 < self.columns:
                line[self.cursor.x + 1] = self._cell("")
            self.cursor.x = min(self.cursor.x + width, self.columns)

    def index(self) -> None:
        """Scroll; the line that leaves the top of the screen is final."""
        top, bottom = self.margins or Margins(0, self.lines - 1)
        if self.cursor.y != bottom:
            self.cursor_down()
            return
        if top == 0:
            self._settle_row(0)
        for y in range(top, bottom):
            self.buffer[y] = self.buffer[y + 1]
        self.buffer.pop(bottom, None)
        self._wrapped = {y - 1 if top < y <= bottom else y for y in self._wrapped if y != top}
        if top == 0:
            self._first = max(0, self._first - 1)

    def erase_in_line(self, how: int = 0, private: bool = False) -> None:
        """As in pyte; a cut line is no longer joined with the next."""
        self._wrapped.discard(self.cursor.y)
        super().erase_in_line(how, private)

    def erase_in_display(self, how: int = 0, *_args: Any, **_kwargs: Any) -> None:
        """As in pyte, which visits every cell; clearing the whole screen starts a new one."""
        self._wrapped.clear()
        if how in (2, 3):
            self._first = 0
            self.buffer.clear()
        elif how in (0, 1):
            for y in range(self.cursor.y) if how else range(self.cursor.y + 1, self.lines):
                self.buffer.pop(y, None)
            self.erase_in_line(how)

    def alignment_display(self) -> None:
        """Does nothing: a test picture (DECALN) takes three bytes, and the time of eleven thousand characters."""

    @property
    def at_end(self) -> bool:
        """Whether the cursor is where the next line of plain text belongs, and the screen has no special state."""
        below = (y for y, line in self.buffer.items() if y >= self.cursor.y and line)
        plain = self.margins is None and self._aside is None
        return plain and self.cursor.x == 0 and next(below, None) is None

    def settle_all(self) -> None:
        """Make everything shown final, and clear the screen."""
        self._put_back()
        for y in range(self._used()):
            self._settle_row(y)
        if self._carry:
            self._emit(self._carry)
        self.buffer.clear()
        self._wrapped.clear()
        self._first = 0
        self.cursor.x = self.cursor.y = 0

    def turn_page(self) -> None:
        """Show everything from the cursor's line on. If a program draws above it, show the whole screen."""
        self._first = self.cursor.y
        self._carry = ""
        if self._aside is not None:
            self._aside.first, self._aside.carry = self._aside.cursor[1], ""

    def live(self) -> Iterator[str]:
        """The lines on the screen, without empty ones at the end."""
        text = self._carry
        for y in range(self._first, self._used()):
            text += self._row(y)
            if y not in self._wrapped:
                yield text
                text = ""
        if text:
            yield text

    def _used(self) -> int:
        """The number of rows in use."""
        return max((y + 1 for y, line in self.buffer.items() if line and self._row(y)), default=0)

    def _row(self, y: int) -> str:
        line = self.buffer[y]
        if not line:
            return ""
        row = "".join(line.get(x, _BLANK).data for x in range(max(line) + 1))
        return row if y in self._wrapped else row.rstrip()

    def _settle_row(self, y: int) -> None:
        if y < self._first or self._aside is not None:
            return
        text = self._carry + self._row(y)
        if y in self._wrapped and len(text) < LONGEST_LINE_CHARS:
            self._carry = text
        else:
            self._emit(text)

    def _emit(self, text: str) -> None:
        self.settled.append(text)
        self._carry = ""

    def _wrap(self, width: int) -> None:
        if pyte.modes.DECAWM not in self.mode:
            self.cursor.x = max(0, self.cursor.x - width)
            return
        self._wrapped.add(self.cursor.y)
        self.carriage_return()
        self.linefeed()

    def _combine(self, char: str) -> None:
        """An accent joins the character before it; other characters without width are left out."""
        if not unicodedata.combining(char) or self.cursor.x == 0:
            return
        line = self.buffer[self.cursor.y]
        before = line.get(self.cursor.x - 1, _BLANK)
        if len(before.data) < 8:
            line[self.cursor.x - 1] = self._cell(unicodedata.normalize("NFC", before.data + char))

    def _cell(self, data: str) -> Char:
        if (cell := self._cells.get(data)) is None:
            if len(self._cells) > 4096:
                self._cells.clear()
            cell = self._cells[data] = Char(data)
        return cell
