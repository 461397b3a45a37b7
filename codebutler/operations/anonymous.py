"""Text for a bug report: text from our own source stays, everything else becomes a pseudonym.

A list of what to remove could always miss something, so this lists what may stay: the fixed parts of the sentences in
our own source, small numbers, versions, and our own words (modes, states, names of errors). Names, identifiers, paths,
addresses and secrets are none of these, wherever they appear.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field

from codebutler.text.redact import REDACTED

MIN_LETTERS = 8
"""A sentence with fewer fixed letters is not used: it would match anything."""
MAX_CHARS = 2_000
MAX_DEPTH = 4
SEPARATORS = ("; ", ": ", ", ")
_PLACEHOLDER = re.compile(r"%(?:\([a-z_]+\))?[-0-9.]*[sdrgfx]|\{[^{}]*\}")
_NUMBER = re.compile(r"[-+$]?\d{1,4}(?:\.\d{1,6})?(?: ?(?:s|ms|h|min|days?|GB|MB|KB|%))?")
_VERSION = re.compile(r"\d{1,3}\.\d{1,3}\.\d{1,4}")
_ERROR = re.compile(r"([A-Za-z]+)\(.*\)", re.DOTALL)
_FINDING_FUNCTIONS = frozenset(("ok", "warn", "fail"))
"""The functions that make findings: constants in their arguments are our own words."""


class Phrasebook(Struct, frozen=True):
    """The sentences and words in our source. ``sentences``: the fixed parts around each one's placeholders, most
    specific first."""

    sentences: tuple[tuple[str, ...], ...]
    words: frozenset[str]


def read_source(packages: Iterable[Path], words: Iterable[str]) -> Phrasebook:
    """Our sentences and words. Blocking, and takes a second or two."""
    sentences: set[tuple[str, ...]] = set()
    known = {name for name in vars(builtins) if name.endswith(("Error", "Exception", "Interrupt"))} | set(
        words
    )
    for package in packages:
        for file in package.rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                sentences.update(_sentences(node))
                known.update(_words(node))
    usable = (each for each in sentences if sum(map(str.isalpha, "".join(each))) >= MIN_LETTERS)
    return Phrasebook(tuple(sorted(usable, key=lambda each: (-sum(map(len, each)), each))), frozenset(known))


def _sentences(node: ast.AST) -> Iterator[tuple[str, ...]]:
    if isinstance(node, ast.JoinedStr):
        parts = [""]
        for value in node.values:
            if isinstance(value, ast.Constant):
                parts[-1] += str(value.value)
            else:
                parts.append("")
        yield tuple(parts)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
        yield tuple(_PLACEHOLDER.split(node.value))


def _words(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.ClassDef) and node.name.endswith("Error"):
        yield node.name
    elif (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _FINDING_FUNCTIONS
    ):
        yield from (
            each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)
        )
    elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == "Literal":
        yield from (
            each.value
            for each in ast.walk(node)
            if isinstance(each, ast.Constant) and isinstance(each.value, str)
        )


class Anonymizer(Struct):
    """Pseudonyms that stay the same within one report; ``names`` are pseudonyms given beforehand, by what they
    replace."""

    book: Phrasebook
    names: Mapping[str, str] = field(default_factory=dict)
    _pseudonyms: dict[str, str] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)

    def pseudonym(self, text: str) -> str:
        """The pseudonym for a text: always the same one, and unrelated to its content."""
        if (known := self.names.get(text) or self._pseudonyms.get(text)) is not None:
            return known
        kind = _kind(text)
        self._counts[kind] = self._counts.get(kind, 0) + 1
        self._pseudonyms[text] = f"<{kind}-{self._counts[kind]}>"
        return self._pseudonyms[text]

    def anonymize(self, text: str, depth: int = 0) -> str:
        """The text with everything replaced that is not ours."""
        stripped = text.strip()
        if not stripped or self._is_ours(stripped):
            return text
        if stripped in self.names:
            return self.names[stripped]
        if depth < MAX_DEPTH and len(stripped) <= MAX_CHARS:
            if (found := _ERROR.fullmatch(stripped)) and found[1] in self.book.words:
                return f"{found[1]}(…)"
            for parts in self.book.sentences:
                if (holes := _holes(stripped, parts)) is not None:
                    pairs = zip(holes, parts[1:], strict=True)
                    return parts[0] + "".join(self.anonymize(hole, depth + 1) + part for hole, part in pairs)
            for separator in SEPARATORS:
                if separator in stripped and depth < MAX_DEPTH - 1:
                    return separator.join(
                        self.anonymize(each, depth + 1) for each in stripped.split(separator)
                    )
        return self.pseudonym(stripped)

    def _is_ours(self, text: str) -> bool:
        fixed = text in self.book.words or text == REDACTED
        return fixed or bool(_NUMBER.fullmatch(text) or _VERSION.fullmatch(text))


def _holes(text: str, parts: Sequence[str]) -> list[str] | None:
    """The values of the sentence's placeholders, None if the text does not match. Linear: the first match counts."""
    if len(parts) == 1:
        return [] if text == parts[0].strip() else None
    first, *middle, last = (parts[0].lstrip(), *parts[1:-1], parts[-1].rstrip())
    if not text.startswith(first) or not text.endswith(last) or len(text) < len(first) + len(last):
        return None
    at, end, holes = len(first), len(text) - len(last), []
    for part in middle:
        found = text.find(part, at, end) if part else at
        if found < 0:
            return None
        holes.append(text[at:found])
        at = found + len(part)
    return [*holes, text[at:end]]


def _kind(text: str) -> str:
    if "@" in text or "://" in text:
        return "address"
    if text.startswith(("/", "~", "./")) or text.count("/") > 1:
        return "path"
    if re.fullmatch(r"[\d.,:+-]+", text):
        return "number"
    return "text" if " " in text else "name"
