"""Values that are shown with every character escaped, or as the bytes of a dump: as `hexdump -C` and `xxd` print a
file, and as programs write what they will not show. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

LEAST = 6
"""A run of fewer escapes is left to the spellings of the whole value."""

_HEX = "[0-9A-Fa-f]"


@dataclass(frozen=True, slots=True)
class Kind:
    """One way to write a byte, or a character (``wide``): what stands in each (one of ``signs``), the expressions for
    all of it, for its number, and for the last of several, which may be written otherwise."""

    signs: tuple[str, ...]
    each: str
    number: str
    base: int = 16
    last: str = ""
    wide: bool = False

    @property
    def run(self) -> str:
        """The expression for several."""
        return rf"(?:{self.each}){{{LEAST},}}{self.last}"


KINDS = (
    Kind(("%",), rf"%{_HEX}{{2}}", "%(..)"),
    Kind(("\\x",), rf"\\x{_HEX}{{2}}", "x(..)"),
    Kind(("\\u",), rf"\\u{_HEX}{{4}}", "u(....)", wide=True),
    Kind(("\\",), r"\\[0-3][0-7]{2}", r"\\(...)", base=8),
    Kind(("&#x",), rf"&#x{_HEX}{{2,4}};", "x([^;]+)", wide=True),
    Kind(("&#",), "&#[0-9]{2,5};", "#([^;]+)", base=10, wide=True),
    Kind(("0x",), rf"0x{_HEX}{{1,2}}[,; ]{{1,3}}", rf"x({_HEX}+)", last=rf"(?:0x{_HEX}{{1,2}})?"),
    Kind((":", "-"), rf"{_HEX}{{2}}[:-]", rf"({_HEX}{{2}})", last=rf"(?:{_HEX}{{2}})?"),
    Kind((",",), "[0-9]{2,3}, ?", "([0-9]+)", base=10, last="(?:[0-9]{2,3})?"),
)
# An address, up to sixteen bytes singly or in twos, and the same bytes as they look.
_ADDRESS = rf"^{_HEX}{{6,10}}:?[ \t]{{1,4}}"
_GROUP = rf"(?:{_HEX}{{2}}){{1,2}}"
_LINE = rf"{_ADDRESS}{_GROUP}(?: {{1,2}}{_GROUP}){{0,15}}(?: [^\n]{{0,80}})?$"
_DUMP = re.compile(rf"{_LINE}(?:\n{_LINE})*", re.MULTILINE)
_BYTES = re.compile(rf"{_ADDRESS}({_GROUP}(?: {{1,2}}{_GROUP}){{0,15}})(?=[ \n]|$)", re.MULTILINE)

SIGNS = "|".join((*(rf"(?:{kind.each}){{{LEAST}}}" for kind in KINDS), rf"(?m:{_LINE})"))
"""What a text has to contain, as RE2 reads it."""


class Escapes:
    """``values`` are exact values."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._values = tuple(value.encode() for value in values)
        self._runs = [(re.compile(kind.run), re.compile(kind.number), kind) for kind in KINDS]

    def hide(self, text: str, mark: str) -> str:
        """``text`` with ``mark`` in the place of each run of escapes or dump that holds a value."""
        if not self._values:
            return text
        for run, number, kind in self._runs:
            if not any(text.count(sign) >= LEAST for sign in kind.signs):
                continue  # which costs a hundredth of a look
            text = run.sub(partial(self._without, mark, number, kind), text)
        return _DUMP.sub(partial(self._undumped, mark), text)

    def _without(self, mark: str, number: re.Pattern[str], kind: Kind, run: re.Match[str]) -> str:
        return mark if self._holds(_read(number.findall(run[0]), kind)) else run[0]

    def _undumped(self, mark: str, dump: re.Match[str]) -> str:
        data = b"".join(map(bytes.fromhex, _BYTES.findall(dump[0])))
        return mark if self._holds(data) else dump[0]

    def _holds(self, data: bytes) -> bool:
        return any(value in data for value in self._values)


def _read(numbers: Iterable[str], kind: Kind) -> bytes:
    codes = (int(number, kind.base) for number in numbers)
    if kind.wide:
        return b"".join(chr(code).encode("utf-8", "surrogatepass") for code in codes)
    return bytes(code for code in codes if code < 256)
