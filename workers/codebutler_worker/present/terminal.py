"""A program's terminal as messages. Pure.

Settled lines fill pages; a full page never changes again. The last pages show what may still change, and are
edited. Beyond ``MAX_PAGES`` only the end is shown: the session's log has the rest.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from codebutler.domain.message import STOP_ACTION, Button, Message, said
from codebutler.text.markup import fence, plain
from codebutler.text.redact import Redactor
from codebutler.text.wording import format_size, one_line, span
from codebutler_worker.agents.backend import Finished, Output
from codebutler_worker.present.lines import code, cost

MAX_PAGES = 10
PAGE_CHARS = 3500
"""With its surroundings below the 4,000 characters that a chat allows for an edited message."""
BUTTON_CHARS = 2800
RUNNING = "⏳ Running…"
EMPTY = "⋯"
HIDDEN_KEY = "[redacted]"

_KEY_BEGINS = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")
_KEY_ENDS = re.compile(r"-----END [A-Z ]*PRIVATE KEY-----")


class TerminalPage(Struct, frozen=True):
    """One message: lines, and whether they may still change. ``number`` counts all pages from 0."""

    number: int
    lines: tuple[str, ...]
    final: bool = False
    left_out_bytes: int = 0


class Secrets(Struct):
    """Redacts line by line; a private key is a secret of several lines."""

    redactor: Redactor = field(default_factory=Redactor)
    in_key: bool = False

    def hide(self, lines: Iterable[str], *, cut: bool = False) -> list[str]:
        """The lines without secrets. ``cut``: each may still grow."""
        return [self._line(line, cut=cut) for line in lines]

    def copy(self) -> Secrets:
        """A copy in the same state, independent from here on."""
        return Secrets(self.redactor, self.in_key)

    def _line(self, line: str, *, cut: bool) -> str:
        if self.in_key:
            self.in_key = _KEY_ENDS.search(line) is None
            return HIDDEN_KEY
        if _KEY_BEGINS.search(line):
            self.in_key = _KEY_ENDS.search(line) is None
            return HIDDEN_KEY
        return self.redactor.redact(line, cut=cut)


class TerminalPages:
    """Takes Outputs as they come; ``due`` is what to show now."""

    def __init__(self, limit: int, redactor: Redactor | None = None) -> None:
        self.note = ""
        self._limit = min(limit, PAGE_CHARS)
        self._secrets = Secrets(redactor or Redactor())
        self._first = 0  # the number of the first page that is open
        self._since = 0  # the number of the page that was begun afresh last
        self._open: deque[str] = deque()  # settled lines from there on
        self._open_chars = 0
        self._live: tuple[str, ...] = ()
        self._final: list[TerminalPage] = []
        self._left_out_chars = 0
        self._skipped_bytes = 0
        self._last = -1  # the number of the last page there has been

    def take(self, output: Output) -> None:
        """What the terminal shows now."""
        if output.fresh:
            self._begin_afresh()
        self.note = output.note
        self._skipped_bytes = output.skipped_bytes
        for line in self._secrets.hide(output.settled):
            self._settle(line)
        self._live = tuple(self._secrets.copy().hide(output.live, cut=True))

    def due(self) -> list[TerminalPage]:
        """The pages not known to be final, in order; each newly final page is returned once."""
        final, self._final = self._final, []
        return [*final, *self._opened()]

    def _opened(self) -> list[TerminalPage]:
        live = (piece for line in self._live for piece in _fitting(line, self._limit))
        packed = _pack([*self._open, *live], self._limit) or [()]
        if self._capped:
            packed = packed[-1:]
        pages = [TerminalPage(self._first + at, lines) for at, lines in enumerate(packed)]
        pages[0] = replace(pages[0], left_out_bytes=self._skipped_bytes + self._left_out_chars)
        self._last = max(self._last, pages[-1].number)
        # A page may have shown lines that are gone now.
        return [*pages, *(TerminalPage(number, ()) for number in range(pages[-1].number + 1, self._last + 1))]

    @property
    def _capped(self) -> bool:
        return self._first - self._since >= MAX_PAGES - 1

    def _begin_afresh(self) -> None:
        pages = [page for page in self._opened() if page.lines]
        self._final += [replace(page, final=True) for page in pages]
        self._first = self._since = self._last + 1 if pages else self._first
        self._open.clear()
        self._open_chars = 0
        self._live = ()

    def _settle(self, line: str) -> None:
        for piece in _fitting(line, self._limit):
            size_chars = cost(piece) + 1
            if self._open_chars + size_chars > self._limit:
                self._turn()
            self._open.append(piece)
            self._open_chars += size_chars

    def _turn(self) -> None:
        """The open page is full."""
        if not self._capped:
            self._final.append(TerminalPage(self._first, tuple(self._open), final=True))
            self._last = max(self._last, self._first)
            self._first += 1
            self._open.clear()
            self._open_chars = 0
            return
        while self._open and self._open_chars > self._limit // 2:
            gone = cost(self._open.popleft()) + 1
            self._open_chars -= gone
            self._left_out_chars += gone


def _fitting(line: str, limit: int) -> list[str]:
    """The line in pieces that each fit a page."""
    if cost(line) < limit:
        return [line]
    middle = len(line) // 2
    return [*_fitting(line[:middle], limit), *_fitting(line[middle:], limit)]


def _pack(lines: Sequence[str], limit: int) -> list[tuple[str, ...]]:
    pages: list[tuple[str, ...]] = []
    page: list[str] = []
    chars = 0
    for line in lines:
        if page and chars + cost(line) + 1 > limit:
            pages.append(tuple(page))
            page, chars = [], 0
        page.append(line)
        chars += cost(line) + 1
    return [*pages, tuple(page)] if page else pages


def shown(page: TerminalPage, session: str, *below: str) -> str:
    """A page as Markdown, with the lines ``below`` it."""
    parts = []
    if page.left_out_bytes:
        parts.append(f"… {format_size(page.left_out_bytes)} left out: `!logs {session}` has everything")
    body = "\n".join(page.lines).strip("\n")
    if body.strip():
        parts.append(fence(body))
    return "\n".join([*parts, *(line for line in below if line)]) or EMPTY


def running(text: str, turn_id: str) -> Message:
    """A message about a running program, with a stop button if there is room for one."""
    if len(text) > BUTTON_CHARS:
        return said(text)
    return said(text, Button("Stop", STOP_ACTION, turn_id, "danger"))


def began(name: str, session: str) -> str:
    """The first message of a session that people type into."""
    return (
        f"🚀 Session {code(name)} started. Reply here to type; `!stop` sends Ctrl-C, a second one ends it. "
        f"Log: `!logs {session}`"
    )


def ended(finished: Finished, elapsed_s: float, session: str, *, interactive: bool) -> str:
    """The last line: the exit status, or why it failed."""
    if finished.exit_code is None and finished.reason != "stopped":
        return f"❌ {plain(one_line(finished.text, 500))}"
    what = "Session ended" if interactive else ""
    code_shown = f"exit code {finished.exit_code}" if finished.exit_code is not None else ""
    sign = {"done": "✅", "stopped": "🛑", "timeout": "⏱️"}.get(finished.reason, "❌")
    why = {"stopped": "stopped", "timeout": "timed out (session.timeoutMinutes)"}.get(finished.reason, "")
    parts = [part for part in (what, why, code_shown, span(elapsed_s), f"`!logs {session}`") if part]
    return f"{sign} {' · '.join(parts)}"
