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
from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import Any, NoReturn

import msgspec

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


DEEPEST = 40
_FENCE = "```"
_LANGUAGE = re.compile(r"\w*")
_BARE_KEY = re.compile(r"[A-Za-z_$-][\w$-]*")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?(?=[\s,}\]])")
_WORD = re.compile(r"[A-Za-z]+")
_SPACE = re.compile(r"\s*")
_AFTER = re.compile(r"[\s}\]`]*\Z")
_CLOSING = {'"': '"', "'": "'", "“": "”", "‘": "’"}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_ESCAPED = re.compile(r'\\(u[0-9A-Fa-f]{4}|[ntrbf"\'/\\]|\n)')
_WORDS = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}


class UnreadableError(ValueError):
    """Not JSON, not even with these repairs; one line that says where it goes wrong."""


def lenient(text: str) -> Any:
    """Parse the text. Raises UnreadableError."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        return _Reader(_unfenced(text.strip())).whole()


def _unfenced(text: str) -> str:
    if not text.startswith(_FENCE):
        return text
    inside = text.removeprefix(_FENCE).removesuffix(_FENCE)
    return _LANGUAGE.sub("", inside, count=1).strip()


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def whole(self) -> Any:
        value = self._value()
        if not _AFTER.match(self._text, self._at):
            self._give_up("there is something after it")
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
            self._give_up("a value is missing")
        self._at = word.end()
        return _WORDS[word[0]]

    def _nested(self, read: Callable[[], Any]) -> Any:
        self._depth += 1
        if self._depth > DEEPEST:
            self._give_up("it is nested too deep")
        self._at += 1
        value = read()
        self._depth -= 1
        return value

    def _object(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while self._next() != "}":
            key = self._key()
            if self._next() != ":":
                self._give_up("a colon is missing")
            self._at += 1
            found[key] = self._value()
            if self._ends("}"):
                return found
        self._at += 1
        return found

    def _array(self) -> list[Any]:
        found: list[Any] = []
        while self._next() != "]":
            found.append(self._value())
            if self._ends("]"):
                return found
        self._at += 1
        return found

    def _ends(self, bracket: str) -> bool:
        """After a value: whether it was the last one. The end of the input counts as the closing bracket."""
        char = self._next()
        if char == ",":
            self._at += 1
            if not self._next():
                self._give_up("it is cut off")
            return False
        if char not in ("", bracket):
            self._give_up("a comma is missing")
        self._at += len(char)
        return True

    def _key(self) -> str:
        if self._next() in _CLOSING:
            return self._string()
        bare = _BARE_KEY.match(self._text, self._at)
        if bare is None:
            self._give_up("a key is missing")
        self._at = bare.end()
        return bare[0]

    def _string(self) -> str:
        closing = _CLOSING[self._text[self._at]]
        at = begin = self._at + 1
        while at < len(self._text) and self._text[at] != closing:
            at += 2 if self._text[at] == "\\" else 1
        if at >= len(self._text):
            self._give_up("a text has no end")
        self._at = at + 1
        plain = _ESCAPED.sub(_unescaped_json, self._text[begin:at])
        # A surrogate pair is written as two escapes.
        return plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")

    def _next(self) -> str:
        found = _SPACE.match(self._text, self._at)
        self._at = found.end() if found else self._at
        return self._text[self._at : self._at + 1]

    def _give_up(self, why: str) -> NoReturn:
        raise UnreadableError(f"not valid JSON: {why} (character {self._at + 1} of {len(self._text)})")


def _unescaped_json(found: re.Match[str]) -> str:
    word = found[1]
    return chr(int(word[1:], 16)) if len(word) > 1 else _ESCAPES.get(word, word)
