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
from itertools import islice, pairwise

from msgspec import Struct, field

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
_OVERESCAPED = re.compile(r"\\([nt\"'\\])")
MAX_MATCHES = 50_000
MAX_STEPS = 2_000_000
_SEARCHED_LINES = 2000
"""Longer texts are matched exactly only."""


class Wording(Struct, frozen=True):
    """The text to replace and its replacement, with line feeds."""

    old: str
    new: str


class Match(Struct, frozen=True):
    """The file from ``start`` to ``end`` matches ``wording.old``. ``whole``: it is whole lines, without the last line
    end. ``depths``: each indentation of ``wording.old`` -> the one in the file. ``rule``: what was ignored, ""
    = nothing."""

    start: int
    end: int
    wording: Wording
    rule: str = ""
    whole: bool = False
    depths: Mapping[str, str] = field(default_factory=dict)


def find_matches(text: str, old: str, new: str) -> tuple[Match, ...]:
    """All places found by the first rule that finds any, at most ``MAX_MATCHES``; they may overlap."""
    for wording, mistake in _wordings(old.replace("\r\n", "\n"), new.replace("\r\n", "\n")):
        for is_folded in (False, True):
            searched, sought = (_fold(text), _fold(wording.old)) if is_folded else (text, wording.old)
            ignored = [mistake] * bool(mistake) + ["typographic characters"] * is_folded
            for find in (_exact_places, _line_places, _reindented_places):
                found = islice(find(searched, sought), MAX_MATCHES)
                if places := tuple(_as_match(place, wording, ignored) for place in found):
                    return places
    return ()


class _Place(Struct, frozen=True):
    start: int
    end: int
    ignored: str = ""
    depths: Mapping[str, str] = field(default_factory=dict)


def _as_match(place: _Place, wording: Wording, ignored: list[str]) -> Match:
    rule = " and ".join([*ignored, *[place.ignored] * bool(place.ignored)])
    whole = bool(place.ignored)
    if whole:
        wording = _without_blank_edges(wording)
    return Match(place.start, place.end, wording, rule, whole, place.depths)


def _wordings(old: str, new: str) -> Iterator[tuple[Wording, str]]:
    yield Wording(old, new), ""
    numbers = [int(number) for number in _NUMBERED.findall(old)]
    lines = [line for line in old.split("\n") if line.strip()]
    if (
        numbers
        and len(numbers) >= len(lines)
        and numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    ):
        yield Wording(_NUMBERED.sub("", old), _NUMBERED.sub("", new)), "line numbers"
    if _OVERESCAPED.search(old):
        yield Wording(_unescape(old), _unescape(new)), "escapes"


def _exact_places(text: str, old: str) -> Iterator[_Place]:
    if "\r\n" not in text or "\n" not in old:
        at = text.find(old)
        while at >= 0:
            yield _Place(at, at + len(old))
            at = text.find(old, at + 1)
        return
    if _is_quick(text, lines := old.split("\n")):
        yield from _all_places(re.compile(r"\r?\n".join(map(re.escape, lines))), text)


def _is_quick(text: str, lines: list[str]) -> bool:
    """Whether looking for the lines takes no longer than people wait: each place that looks like the first one may
    look like them for a while. Nobody else runs while a pattern is searched for."""
    return text.count(lines[0].strip() or "\n") * len(lines) <= MAX_STEPS


def _line_places(text: str, old: str) -> Iterator[_Place]:
    lines = _without_blank_edges(Wording(old, "")).old.split("\n")
    if any(line.strip() for line in lines) and len(lines) <= _SEARCHED_LINES and _is_quick(text, lines):
        for place in _all_places(_lines_pattern(re.escape(line.rstrip()) for line in lines), text):
            yield _Place(place.start, place.end, "white space at the end of lines")


def _reindented_places(text: str, old: str) -> Iterator[_Place]:
    lines = _without_blank_edges(Wording(old, "")).old.split("\n")
    if not any(line.strip() for line in lines) or len(lines) > _SEARCHED_LINES or not _is_quick(text, lines):
        return
    pattern = _lines_pattern((r"[ \t]*" if line.strip() else "") + re.escape(line.strip()) for line in lines)
    for place in _all_places(pattern, text):
        depths = _depths(lines, text[place.start : place.end].split("\n"))
        if depths is not None:
            yield _Place(place.start, place.end, "indentation", depths)


def _lines_pattern(lines: Iterator[str]) -> re.Pattern[str]:
    return re.compile(r"(?m)^" + r"[ \t]*\r?\n".join(lines) + r"[ \t]*(?=\r?\n|\r?\Z)")


def _all_places(pattern: re.Pattern[str], text: str) -> Iterator[_Place]:
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


def _without_blank_edges(wording: Wording) -> Wording:
    """Strip blank lines at the edges of the old text, and the same number from the new one."""
    old, new = wording.old.split("\n"), wording.new.split("\n")
    for at in (0, -1):
        while len(old) > 1 and not old[at].strip():
            del old[at]
            if new and not new[at].strip():
                del new[at]
    return Wording("\n".join(old), "\n".join(new))


def indent(line: str) -> str:
    """The white space at the beginning of a line."""
    return line[: len(line) - len(line.lstrip(" \t"))]


def columns(white: str) -> int:
    """The width of white space in columns."""
    return len(white.expandtabs(TAB_COLUMNS))


def _fold(text: str) -> str:
    return text.translate(PLAIN)


def _unescape(text: str) -> str:
    return _OVERESCAPED.sub(lambda found: {"n": "\n", "t": "\t"}.get(found[1], found[1]), text)
