"""Secret values in disguise, or only in part. Pure.

With gaps: wrapped over lines, as `base64` and `xxd -p` write them, with spaces between the bytes, or with invisible
characters. With every character escaped, as programs write what they do not print. As the bytes of a dump, as `hexdump
-C` and `xxd` print a file. In part: where a text was cut, where a message ends and the next one continues, or where a
terminal has not shown the rest yet.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable
from functools import partial
from itertools import chain
from typing import Any

from msgspec import Struct

LEAST_CHARS = 12
"""Shorter values would match by chance once all gaps are closed."""
# White space, control characters (NUL is UTF-16's), quotes, and Markdown's marks for words.
_SIGNS = bytes((*range(1, 33), 127)) + b"\"'`*~>|\\"
# Characters without a width, and other spaces: Unicode's format characters, fillers and variation selectors.
_UNSEEN = (
    *range(0x80, 0xA1), 0xAD, 0x34F, 0x61C, 0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810),
    *range(0x2000, 0x2010), *range(0x2028, 0x2030), *range(0x205F, 0x2070), 0x2800, 0x3000, 0x3164,
    *range(0xFE00, 0xFE10), 0xFEFF, 0xFFA0, *range(0xFFF0, 0xFFFC),
)  # fmt: skip
_TAGS = range(0xE0000, 0xE1000)
_GAPS = frozenset((*_SIGNS, *_UNSEEN, *_TAGS))
_UNSEEN_BYTES = re.compile(
    b"|".join((rb"\xf3\xa0[\x80-\xbf]{2}", *(re.escape(chr(code).encode()) for code in _UNSEEN)))
)


_NARROW_GAPS = _SIGNS + bytes(code for code in _UNSEEN if code < 256)
PIECE_CHARS = 65_536
"""A long text is searched in pieces of this size: each call of ``re`` or RE2 blocks all other threads."""
LEAST_ESCAPES = 6
"""Shorter runs of escapes are covered by the spellings of the whole value."""
_HEX = "[0-9A-Fa-f]"
# An address, up to sixteen bytes singly or in pairs, and the same bytes as text.
_ADDRESS = rf"^{_HEX}{{6,10}}:?[ \t]{{1,4}}"
_GROUP = rf"(?:{_HEX}{{2}}){{1,2}}"
_LINE = rf"{_ADDRESS}{_GROUP}(?: {{1,2}}{_GROUP}){{0,15}}(?: [^\n]{{0,80}})?$"
_DUMP = re.compile(rf"{_LINE}(?:\n{_LINE})*", re.MULTILINE)
_BYTES = re.compile(rf"{_ADDRESS}({_GROUP}(?: {{1,2}}{_GROUP}){{0,15}})(?=[ \n]|$)", re.MULTILINE)
CUT = "…"
"""The sign that a text was cut short."""
BEGUN_CHARS = 8
"""Fewer characters of a secret than this are not searched for."""
# Beginnings that are unique to tokens; and others, which need a digit in what follows.
_CLEAR = (
    r"xox[a-z](?:\.xox[a-z])?-|xapp-\d|gh[pousr]_|github_pat_|glpat-|sk-(?:ant|proj|or|svcacct)-|AKIA|ASIA|AIza|GOCSPX-"
    r"|[rs]k_(?:live|test)_|whsec_|dop_v1_|dckr_pat_|shp(?:at|ca|pa|ss)_|eyJ"
)
_DOUBTFUL = r"(?:sk-|tvly-|gsk_|xai-|ya29\.|npm_|pypi-|hf_|SG\.)(?=[\w-]{0,80}\d)"
_TOKEN = re.compile(rf"(?<![A-Za-z0-9])(?:{_CLEAR}|{_DOUBTFUL})[\w.-]{{4,300}}\Z")
_LONGEST_TOKEN = 320


def first_match(pattern: Any, data: bytes, at: int, overlap: int) -> Any:
    """RE2's first match from ``at`` on, None if there is none; searched piece by piece. ``overlap``: no match that
    counts is longer."""
    while True:
        end = at + PIECE_CHARS + overlap
        found = pattern.search(data, at, end)
        if found is not None or end >= len(data):
            return found
        at = end - overlap


def _closed(text: str) -> bytes:
    """``text`` without gaps, as UTF-8."""
    pieces = []
    for at in range(0, len(text), PIECE_CHARS):
        piece = text[at : at + PIECE_CHARS]
        try:
            # The decoding for any file's bytes: hundreds of times faster than the pattern.
            closed = piece.encode("latin-1").translate(None, _NARROW_GAPS).decode("latin-1").encode()
        except UnicodeEncodeError:
            data = piece.encode("utf-8", "surrogatepass").translate(None, _SIGNS)
            closed = _UNSEEN_BYTES.sub(b"", data)
        pieces.append(closed)
    return b"".join(pieces)


class Gaps:
    """Finds values with gaps. ``spellings`` are exact values; from ``long_chars`` on RE2 searches for them, which is
    larger and faster."""

    def __init__(self, spellings: Iterable[str] = (), long_chars: int = 32_768) -> None:
        closed = {_closed(spelling) for spelling in spellings}
        self._values = sorted(value for value in closed if len(value) >= LEAST_CHARS)
        self._long_chars = long_chars
        self._long: Any = None

    def hide(self, text: str, mark: str) -> str:
        """``text`` with ``mark`` in place of each value in it, with or without gaps."""
        if not self.shows(text):
            return text
        # An array: for a large file, a list would take hundreds of megabytes.
        kept = array("I", (place for place, sign in enumerate(text) if ord(sign) not in _GAPS))
        parts = (kept[at : at + PIECE_CHARS] for at in range(0, len(kept), PIECE_CHARS))
        closed = "".join(["".join([text[place] for place in part]) for part in parts])
        pieces, done = [], 0
        for start, end in self._found(closed):
            pieces += [text[done : kept[start]], mark]
            done = kept[end - 1] + 1
        return "".join([*pieces, text[done:]])

    def shows(self, text: str) -> bool:
        """Whether a value is in ``text``, with or without gaps."""
        closed = _closed(text) if self._values else b""
        if len(closed) < self._long_chars:
            return any(value in closed for value in self._values)
        if self._long is None:
            import re2  # a few MB, not needed for short texts

            self._long = re2.compile(b"|".join(map(re2.escape, self._values)))
        return first_match(self._long, closed, 0, max(map(len, self._values))) is not None

    def _found(self, closed: str) -> list[tuple[int, int]]:
        """(start, end) of every value, merged and in order."""
        found = (re.finditer(re.escape(value.decode()), closed) for value in self._values)
        return merged(sorted(match.span() for match in chain.from_iterable(found)))


def merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans ordered by their starts, without overlaps."""
    found: list[tuple[int, int]] = []
    for start, end in spans:
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


class EscapeKind(Struct, frozen=True):
    """One way to write a byte, or a character (``wide``): its signs (each contains one of ``signs``), the expressions
    for all of it, for its number, and for the last of several, which may be written differently."""

    signs: tuple[str, ...]
    each: str
    number: str
    base: int = 16
    last: str = ""
    wide: bool = False

    @property
    def run(self) -> str:
        """The expression for a run of them."""
        return rf"(?:{self.each}){{{LEAST_ESCAPES},}}{self.last}"


ESCAPE_KINDS = (
    EscapeKind(("%",), rf"%{_HEX}{{2}}", "%(..)"),
    EscapeKind(("\\x",), rf"\\x{_HEX}{{2}}", "x(..)"),
    EscapeKind(("\\u",), rf"\\u{_HEX}{{4}}", "u(....)", wide=True),
    EscapeKind(("\\",), r"\\[0-3][0-7]{2}", r"\\(...)", base=8),
    EscapeKind(("&#x",), rf"&#x{_HEX}{{2,4}};", "x([^;]+)", wide=True),
    EscapeKind(("&#",), "&#[0-9]{2,5};", "#([^;]+)", base=10, wide=True),
    EscapeKind(("0x",), rf"0x{_HEX}{{1,2}}[,; ]{{1,3}}", rf"x({_HEX}+)", last=rf"(?:0x{_HEX}{{1,2}})?"),
    EscapeKind((":", "-"), rf"{_HEX}{{2}}[:-]", rf"({_HEX}{{2}})", last=rf"(?:{_HEX}{{2}})?"),
    EscapeKind((",",), "[0-9]{2,3}, ?", "([0-9]+)", base=10, last="(?:[0-9]{2,3})?"),
)

ESCAPE_SIGNS = "|".join(
    (*(rf"(?:{kind.each}){{{LEAST_ESCAPES}}}" for kind in ESCAPE_KINDS), rf"(?m:{_LINE})")
)
"""What a text must contain to be searched, as RE2 reads it."""


class Escapes:
    """Finds escaped and dumped values. ``values`` are exact values."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._values = tuple(value.encode() for value in values)
        self._runs = [(re.compile(kind.run), re.compile(kind.number), kind) for kind in ESCAPE_KINDS]

    def hide(self, text: str, mark: str) -> str:
        """``text`` with ``mark`` in place of each run of escapes or dump that contains a value."""
        if not self._values:
            return text
        for run, number, kind in self._runs:
            if not any(text.count(sign) >= LEAST_ESCAPES for sign in kind.signs):
                continue  # it costs a hundredth of a full search
            text = run.sub(partial(self._without, mark, number, kind), text)
        return _DUMP.sub(partial(self._undumped, mark), text)

    def _without(self, mark: str, number: re.Pattern[str], kind: EscapeKind, run: re.Match[str]) -> str:
        return mark if self._holds(_read(number.findall(run[0]), kind)) else run[0]

    def _undumped(self, mark: str, dump: re.Match[str]) -> str:
        data = b"".join(map(bytes.fromhex, _BYTES.findall(dump[0])))
        return mark if self._holds(data) else dump[0]

    def _holds(self, data: bytes) -> bool:
        return any(value in data for value in self._values)


def _read(numbers: Iterable[str], kind: EscapeKind) -> bytes:
    codes = (int(number, kind.base) for number in numbers)
    if kind.wide:
        return b"".join(chr(code).encode("utf-8", "surrogatepass") for code in codes)
    return bytes(code for code in codes if code < 256)


class PartialSecrets:
    """Finds parts of values. ``spellings`` are exact values. Linear in the length of a text, whatever it contains."""

    def __init__(self, spellings: Iterable[str] = ()) -> None:
        self._heads: dict[str, list[str]] = {}
        self._tails: dict[str, list[str]] = {}
        self._longest = 0
        for spelling in spellings:
            if len(spelling) > BEGUN_CHARS:
                self._heads.setdefault(spelling[:BEGUN_CHARS], []).append(spelling)
                self._tails.setdefault(spelling[-BEGUN_CHARS:], []).append(spelling)
                self._longest = max(self._longest, len(spelling))

    def hide(self, text: str, mark: str, *, cut: bool = False) -> str:
        """``text`` with ``mark`` in place of the end of a value at its start, the start of a value at its end, and the
        start of a value or token before each ``…``. ``cut``: treat the end as if it were one."""
        if CUT not in text:
            shown = self._without_start(text, mark, cut=cut)
        else:
            *cut_off, rest = text.split(CUT)
            ends = [self._without_start(piece, mark, cut=True) for piece in cut_off]
            shown = CUT.join([*ends, self._without_start(rest, mark, cut=cut)])
        return self._without_end(shown, mark)

    def _without_start(self, text: str, mark: str, *, cut: bool) -> str:
        """``text`` without the start of a value at its end, or (``cut``) of what looks like a token."""
        if len(text) < BEGUN_CHARS:
            return text
        first = max(0, len(text) - self._longest)
        for place in range(first, len(text) - BEGUN_CHARS + 1):
            for spelling in self._heads.get(text[place : place + BEGUN_CHARS], ()):
                if spelling.startswith(text[place:]):
                    return text[:place] + mark
        token = _TOKEN.search(text, max(0, len(text) - _LONGEST_TOKEN)) if cut else None
        return text if token is None else text[: token.start()] + mark

    def _without_end(self, text: str, mark: str) -> str:
        """``text`` without the end of a value at its start."""
        for place in range(min(self._longest, len(text)), BEGUN_CHARS - 1, -1):
            for spelling in self._tails.get(text[place - BEGUN_CHARS : place], ()):
                if spelling.endswith(text[:place]):
                    return mark + text[place:]
        return text
