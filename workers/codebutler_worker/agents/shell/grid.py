"""Grid: the cells of a terminal, and the lines that they are. No I/O.

pyte's screen, but for what is said at each method here.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyte
import pyte.modes
from pyte.screens import Char, Margins
from wcwidth import wcwidth

LONGEST_LINE_CHARS = 8 * 2**10
OTHER_SCREEN = frozenset({47, 1047, 1049})
"""xterm's modes for a second screen, which full-screen programs draw on and leave as if they had never been."""
_BLANK = Char(" ")


@dataclass(slots=True)
class _Aside:
    """The first screen, while a program draws on the second one."""

    buffer: Any
    cursor: tuple[int, int]
    margins: Margins | None
    wrapped: set[int]
    first: int
    carry: str


class Grid(pyte.Screen):
    """pyte's screen, which hands over the lines that scroll off, and draws text only: no colours."""

    def __init__(self, columns: int, rows: int) -> None:
        self.settled: list[str] = []
        self._wrapped: set[int] = set()
        self._carry = ""
        self._first = 0
        self._cells: dict[str, Char] = {}
        self._aside: _Aside | None = None
        super().__init__(columns, rows)

    def reset(self) -> None:
        """Begin anew: an empty screen, no other screen aside, nothing wrapped."""
        super().reset()
        self._aside = None
        self._wrapped.clear()
        self._first = 0

    def set_mode(self, *modes: int, **kwargs: Any) -> None:
        """As pyte does; the other screen (DECSET 47, 1047, 1049) is empty, and the one that was shown is put aside."""
        super().set_mode(*modes, **kwargs)
        if kwargs.get("private") and self._aside is None and not OTHER_SCREEN.isdisjoint(modes):
            at = (self.cursor.x, self.cursor.y)
            self._aside = _Aside(self.buffer, at, self.margins, self._wrapped, self._first, self._carry)
            self.buffer = self.buffer.copy()
            self.buffer.clear()
            self.margins, self._wrapped, self._first, self._carry = None, set(), 0, ""

    def reset_mode(self, *modes: int, **kwargs: Any) -> None:
        """As pyte does; the screen that was put aside is shown again."""
        super().reset_mode(*modes, **kwargs)
        if kwargs.get("private") and not OTHER_SCREEN.isdisjoint(modes):
            self._put_back()

    def _put_back(self) -> None:
        """Show the first screen again."""
        aside, self._aside = self._aside, None
        if aside is not None:
            self.buffer, self.margins, self._wrapped = aside.buffer, aside.margins, aside.wrapped
            self.cursor.x, self.cursor.y = aside.cursor
            self._first, self._carry = aside.first, aside.carry

    def draw(self, data: str) -> None:
        """pyte's own ends at the first character without width, and is slow."""
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
        """Scroll; what leaves the top of the screen is final."""
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
        """As pyte does; the line ends where it is cut off, so it is no longer one with the next."""
        self._wrapped.discard(self.cursor.y)
        super().erase_in_line(how, private)

    def erase_in_display(self, how: int = 0, *args: Any, **kwargs: Any) -> None:
        """As pyte does; a screen that is cleared as a whole begins anew."""
        self._wrapped.clear()
        if how in (2, 3):
            self._first = 0
        super().erase_in_display(how, *args, **kwargs)

    @property
    def at_end(self) -> bool:
        """The cursor is where the next line of plain text belongs, and nothing is odd about the screen."""
        below = (y for y, line in self.buffer.items() if y >= self.cursor.y and line)
        plain = self.margins is None and self._aside is None
        return plain and self.cursor.x == 0 and next(below, None) is None

    def settle_all(self) -> None:
        """Everything shown is final; an empty screen."""
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
        """Show from the cursor's line on. A program that draws above it shows all it has there."""
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
        """How many rows are in use."""
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
        """An accent joins the character before it; what shows nothing is left out."""
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
