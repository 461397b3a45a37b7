"""JSON as models write it. Pure.

Strict JSON first. Otherwise whatever has only one meaning: a code fence around it, single or typographic quotes, bare
keys, Python's True, False and None, line breaks inside strings, a surplus comma, closing brackets missing at the end
after a complete string, list or object. A value that was cut off in the middle is never guessed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, NoReturn

import msgspec

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


def parse_message(data: str | bytes) -> Any:
    """Parse JSON that a program wrote, with U+FFFD for whatever is no character: bytes that are not UTF-8, and half a
    surrogate pair, which JavaScript leaves where it cuts a text. Raises UnreadableError."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass
    try:
        text = data if isinstance(data, str) else data.decode(errors="replace")
        return msgspec.json.decode(_whole(json.dumps(json.loads(text), ensure_ascii=False)))
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise UnreadableError("not valid JSON") from error


def _whole(text: str) -> str:
    """The text with its surrogate pairs joined, and U+FFFD for a half."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


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
        # A surrogate pair is written as two escapes.
        return _whole(_ESCAPED.sub(_unescape_json, self._text[start:at]))

    def _next(self) -> str:
        found = _SPACE.match(self._text, self._at)
        self._at = found.end() if found else self._at
        return self._text[self._at : self._at + 1]

    def _fail(self, why: str) -> NoReturn:
        raise UnreadableError(f"not valid JSON: {why} (character {self._at + 1} of {len(self._text)})")


def _unescape_json(found: re.Match[str]) -> str:
    word = found[1]
    return chr(int(word[1:], 16)) if len(word) > 1 else _ESCAPES.get(word, word)
