"""Find a text in a file although a model did not copy it exactly. Pure.

The rules, each tried only if the ones before find nothing:

1. exactly, with any line ends;
2. whole lines, ignoring white space at line ends and blank lines before and after;
3. whole lines with a consistently different indentation: equal depths stay equal, and deeper stays deeper;
4. the same three with typographic quotes, dashes and spaces read as plain ones;
5. all of that for a text copied with line numbers, or with line breaks and quotes escaped once too often.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice, pairwise

PLAIN: Mapping[int, str] = str.maketrans(
    {
        **dict.fromkeys("‘’‚‛′", "'"),
        **dict.fromkeys("“”„‟″", '"'),
        **dict.fromkeys("‐‑‒–—−", "-"),
        **dict.fromkeys("\u00a0\u2002\u2003\u2007\u2009\u202f\u3000", " "),
    }
)
"""One character for one, so that positions stay the same."""
TAB_COLUMNS = 4
_NUMBERED = re.compile(r"^[ ]*(\d{1,9})\t", re.MULTILINE)
_TOO_OFTEN = re.compile(r"\\([nt\"'\\])")
MOST = 50_000
_SEARCHED_LINES = 2000
"""Longer texts are matched exactly only."""


@dataclass(frozen=True, slots=True)
class Sought:
    """The text to replace and its replacement, with line feeds."""

    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Match:
    """The file from ``start`` to ``end`` matches ``wanted.old``. ``whole``: it is whole lines, without the last line
    end. ``depths``: each indentation of ``wanted.old`` -> the one in the file. ``rule``: what was ignored, in words, ""
    = nothing."""

    start: int
    end: int
    wanted: Sought
    rule: str = ""
    whole: bool = False
    depths: Mapping[str, str] = field(default_factory=dict)


def matches(text: str, old: str, new: str) -> tuple[Match, ...]:
    """All places found by the first rule that finds any, at most ``MOST``; they may overlap."""
    for wanted, slip in _spellings(old.replace("\r\n", "\n"), new.replace("\r\n", "\n")):
        for folded in (False, True):
            within, sought = (_plain(text), _plain(wanted.old)) if folded else (text, wanted.old)
            words = [slip] * bool(slip) + ["typographic characters"] * folded
            for found in (_exact(within, sought), _lines(within, sought), _shifted(within, sought)):
                if places := tuple(_match(place, wanted, words) for place in islice(found, MOST)):
                    return places
    return ()


@dataclass(frozen=True, slots=True)
class _Place:
    start: int
    end: int
    overlooked: str = ""
    depths: Mapping[str, str] = field(default_factory=dict)


def _match(place: _Place, wanted: Sought, words: list[str]) -> Match:
    rule = " and ".join([*words, *[place.overlooked] * bool(place.overlooked)])
    whole = bool(place.overlooked)
    if whole:
        wanted = _trimmed(wanted)
    return Match(place.start, place.end, wanted, rule, whole, place.depths)


def _spellings(old: str, new: str) -> Iterator[tuple[Sought, str]]:
    yield Sought(old, new), ""
    numbers = [int(number) for number in _NUMBERED.findall(old)]
    lines = [line for line in old.split("\n") if line.strip()]
    if (
        numbers
        and len(numbers) >= len(lines)
        and numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    ):
        yield Sought(_NUMBERED.sub("", old), _NUMBERED.sub("", new)), "line numbers"
    if _TOO_OFTEN.search(old):
        yield Sought(_unescaped(old), _unescaped(new)), "escapes"


def _exact(text: str, old: str) -> Iterator[_Place]:
    if "\r\n" not in text or "\n" not in old:
        at = text.find(old)
        while at >= 0:
            yield _Place(at, at + len(old))
            at = text.find(old, at + 1)
        return
    yield from _all(re.compile(r"\r?\n".join(map(re.escape, old.split("\n")))), text)


def _lines(text: str, old: str) -> Iterator[_Place]:
    lines = _trimmed(Sought(old, "")).old.split("\n")
    if any(line.strip() for line in lines) and len(lines) <= _SEARCHED_LINES:
        for place in _all(_spelled(re.escape(line.rstrip()) for line in lines), text):
            yield _Place(place.start, place.end, "white space at the end of lines")


def _shifted(text: str, old: str) -> Iterator[_Place]:
    lines = _trimmed(Sought(old, "")).old.split("\n")
    if not any(line.strip() for line in lines) or len(lines) > _SEARCHED_LINES:
        return
    pattern = _spelled((r"[ \t]*" if line.strip() else "") + re.escape(line.strip()) for line in lines)
    for place in _all(pattern, text):
        depths = _depths(lines, text[place.start : place.end].split("\n"))
        if depths is not None:
            yield _Place(place.start, place.end, "indentation", depths)


def _spelled(lines: Iterator[str]) -> re.Pattern[str]:
    return re.compile(r"(?m)^" + r"[ \t]*\r?\n".join(lines) + r"[ \t]*(?=\r?\n|\r?\Z)")


def _all(pattern: re.Pattern[str], text: str) -> Iterator[_Place]:
    found = pattern.search(text)
    while found is not None:
        yield _Place(*found.span())
        found = pattern.search(text, found.start() + 1)


def _depths(old: list[str], found: list[str]) -> dict[str, str] | None:
    """Each indentation of ``old`` -> the one in the file; None if they do not correspond consistently."""
    depths: dict[str, str] = {}
    for ours, theirs in zip(old, found, strict=True):
        if ours.strip() and depths.setdefault(indent(ours), indent(theirs)) != indent(theirs):
            return None
    by_depth = [columns(depths[each]) for each in sorted(depths, key=columns)]
    return depths if all(one < other for one, other in pairwise(by_depth)) else None


def _trimmed(wanted: Sought) -> Sought:
    """Strip blank lines at the edges of the old text, and the same number from the new one."""
    old, new = wanted.old.split("\n"), wanted.new.split("\n")
    for at in (0, -1):
        while len(old) > 1 and not old[at].strip():
            del old[at]
            if new and not new[at].strip():
                del new[at]
    return Sought("\n".join(old), "\n".join(new))


def indent(line: str) -> str:
    """The white space at the beginning of a line."""
    return line[: len(line) - len(line.lstrip(" \t"))]


def columns(white: str) -> int:
    """The width of white space in columns."""
    return len(white.expandtabs(TAB_COLUMNS))


def _plain(text: str) -> str:
    return text.translate(PLAIN)


def _unescaped(text: str) -> str:
    return _TOO_OFTEN.sub(lambda found: {"n": "\n", "t": "\t"}.get(found[1], found[1]), text)
