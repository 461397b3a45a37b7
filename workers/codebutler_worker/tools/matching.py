"""Find a text in a file although a model did not copy it exactly. Pure.

The rules, each tried only if the ones before find nothing:

1. exactly, with any line ends;
2. whole lines, ignoring white space at line ends and blank lines before and after;
3. whole lines with a consistently different indentation: equal depths stay equal, and deeper stays deeper;
4. the same three with typographic quotes, dashes and spaces read as plain ones;
5. all of that for a text copied with line numbers, or with line breaks and quotes escaped once too often.

JSON as models write it. Pure.

Strict JSON first. Otherwise whatever has only one meaning: a code fence around it, single or typographic quotes, bare
keys, Python's True, False and None, line breaks inside strings, a surplus comma, closing brackets missing at the end
after a complete string, list or object. A value that was cut off in the middle is never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice, pairwise
from typing import Any, NoReturn

import msgspec
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
    yield from _all_places(re.compile(r"\r?\n".join(map(re.escape, old.split("\n")))), text)


def _line_places(text: str, old: str) -> Iterator[_Place]:
    lines = _without_blank_edges(Wording(old, "")).old.split("\n")
    if any(line.strip() for line in lines) and len(lines) <= _SEARCHED_LINES:
        for place in _all_places(_lines_pattern(re.escape(line.rstrip()) for line in lines), text):
            yield _Place(place.start, place.end, "white space at the end of lines")


def _reindented_places(text: str, old: str) -> Iterator[_Place]:
    lines = _without_blank_edges(Wording(old, "")).old.split("\n")
    if not any(line.strip() for line in lines) or len(lines) > _SEARCHED_LINES:
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


MAX_DEPTH = 40
_FENCE = "```"
_LANGUAGE = re.compile(r"\w*")
_BARE_KEY = re.compile(r"[A-Za-z_$-][\w$-]*")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?(?=[\s,}\]])")
_WORD = re.compile(r"[A-Za-z]+")
_SPACE = re.compile(r"\s*")
_TRAILING = re.compile(r"[\s}\]`]*\Z")
_CLOSING = {'"': '"', "'": "'", "“": "”", "‘": "’"}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_ESCAPED = re.compile(r'\\(u[0-9A-Fa-f]{4}|[ntrbf"\'/\\]|\n)')
_WORDS = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}


class UnreadableError(ValueError):
    """Not JSON, not even with these repairs; one line that says where it goes wrong."""


def parse_lenient(text: str) -> Any:
    """Parse the text. Raises UnreadableError."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        return _JsonReader(_strip_fence(text.strip())).read()


def _strip_fence(text: str) -> str:
    if not text.startswith(_FENCE):
        return text
    inside = text.removeprefix(_FENCE).removesuffix(_FENCE)
    return _LANGUAGE.sub("", inside, count=1).strip()


class _JsonReader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def read(self) -> Any:
        value = self._value()
        if not _TRAILING.match(self._text, self._at):
            self._fail("there is something after it")
        return value

    def _value(self) -> Any:
        char = self._next()
        if char == "{":
            return self._nested(self._object)
        if char == "[":
            return self._nested(self._array)
        if char in _CLOSING:
            return self._string()
        if number := _NUMBER.match(self._text, self._at):
            self._at = number.end()
            return msgspec.json.decode(number[0])
        word = _WORD.match(self._text, self._at)
        if word is None or word[0] not in _WORDS:
            self._fail("a value is missing")
        self._at = word.end()
        return _WORDS[word[0]]

    def _nested(self, read: Callable[[], Any]) -> Any:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._fail("it is nested too deep")
        self._at += 1
        value = read()
        self._depth -= 1
        return value

    def _object(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while self._next() != "}":
            key = self._key()
            if self._next() != ":":
                self._fail("a colon is missing")
            self._at += 1
            found[key] = self._value()
            if self._ends_container("}"):
                return found
        self._at += 1
        return found

    def _array(self) -> list[Any]:
        found: list[Any] = []
        while self._next() != "]":
            found.append(self._value())
            if self._ends_container("]"):
                return found
        self._at += 1
        return found

    def _ends_container(self, bracket: str) -> bool:
        """After a value: whether it was the last one. The end of the input counts as the closing bracket."""
        char = self._next()
        if char == ",":
            self._at += 1
            if not self._next():
                self._fail("it is cut off")
            return False
        if char not in ("", bracket):
            self._fail("a comma is missing")
        self._at += len(char)
        return True

    def _key(self) -> str:
        if self._next() in _CLOSING:
            return self._string()
        bare = _BARE_KEY.match(self._text, self._at)
        if bare is None:
            self._fail("a key is missing")
        self._at = bare.end()
        return bare[0]

    def _string(self) -> str:
        closing = _CLOSING[self._text[self._at]]
        at = start = self._at + 1
        while at < len(self._text) and self._text[at] != closing:
            at += 2 if self._text[at] == "\\" else 1
        if at >= len(self._text):
            self._fail("a text has no end")
        self._at = at + 1
        plain = _ESCAPED.sub(_unescape_json, self._text[start:at])
        # A surrogate pair is written as two escapes.
        return plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")

    def _next(self) -> str:
        found = _SPACE.match(self._text, self._at)
        self._at = found.end() if found else self._at
        return self._text[self._at : self._at + 1]

    def _fail(self, why: str) -> NoReturn:
        raise UnreadableError(f"not valid JSON: {why} (character {self._at + 1} of {len(self._text)})")


def _unescape_json(found: re.Match[str]) -> str:
    word = found[1]
    return chr(int(word[1:], 16)) if len(word) > 1 else _ESCAPES.get(word, word)
