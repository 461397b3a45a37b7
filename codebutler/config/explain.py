"""A refusal in one line: which key, what was expected. Pure. Never shows a value: it may be a secret."""

from __future__ import annotations

import difflib
import re
from typing import Any

import msgspec
import msgspec.inspect as shapes

from codebutler.config.schema import HOST, USER_ID, Config

_AT = re.compile(r"^(?P<what>.*?)(?: - at `\$\.?(?P<where>.*)`)?$", re.DOTALL)
_UNKNOWN = re.compile(r"unknown field `(.*)`", re.DOTALL)
_MISSING = re.compile(r"missing required field `(.*)`", re.DOTALL)
_STEP = re.compile(r"[^.\[\]]+|\[\d*(?:\.\.\.)?\]")
_PATTERNS = {
    r"^https?://": "a URL that begins with http:// or https://",
    r"^(?!/|[.]?/*$|.*[.][.]).+\Z": "a path below the home directory such as .gemini",
    r"^([CGD][A-Z0-9]{2,})?\Z": "a Slack channel ID such as C0123ABCD",
    USER_ID: "a Slack user ID such as U0123ABCD",
    HOST: "a host such as example.org, *.example.org or example.org:8443",
    r"^([a-z]{2})?\Z": "two letters such as en",
    r"^[a-z0-9][a-z0-9-]*\Z": "the name of a skill",
    r"^[a-z][a-z0-9_-]*\Z": "a lower-case word",
}
_MAX_KEY_CHARS = 40


def explain(error: msgspec.ValidationError) -> tuple[str, str]:
    """(dotted key, what is wrong and what was expected); the key is "" for the document as a whole."""
    match = _AT.match(str(error))
    what, where = (match["what"], match["where"] or "") if match else (str(error), "")
    if unknown := _UNKNOWN.search(what):
        return join(where, shown_key(unknown[1])), "unknown key" + _suggestion(where, unknown[1])
    if missing := _MISSING.search(what):
        return join(where, missing[1]), "is missing"
    return where, _expectation(where, what)


def expected_words(where: str) -> tuple[str, ...]:
    """The words the key ``where`` allows; empty if it is no choice of words."""
    shape = _shape_at(where)
    return tuple(str(value) for value in shape.values) if isinstance(shape, shapes.LiteralType) else ()


def known_keys(where: str) -> tuple[str, ...]:
    """The keys of the section at ``where`` ("" = the document)."""
    shape = _shape_at(where)
    return tuple(f.encode_name for f in shape.fields) if isinstance(shape, shapes.StructType) else ()


def join(where: str, key: str) -> str:
    """The path of a key below ``where``."""
    return f"{where}.{key}" if where else key


def shown_key(key: str) -> str:
    """A key as an error may show it: short, and printable on one line."""
    plain = "".join(c if c.isprintable() else "?" for c in key)
    return plain if len(plain) <= _MAX_KEY_CHARS else plain[:_MAX_KEY_CHARS] + "…"


def _expectation(where: str, what: str) -> str:
    if what.startswith("Invalid enum value"):
        return "expected one of " + ", ".join(expected_words(where))
    for pattern, words in _PATTERNS.items():
        if repr(pattern) in what:  # so msgspec quotes it
            return f"expected {words}"
    plain = what.replace("`", "")
    return plain[:1].lower() + plain[1:]


def _suggestion(where: str, key: str) -> str:
    close = difflib.get_close_matches(key, known_keys(where), 1)
    return f" (did you mean {close[0]}?)" if close else ""


def _shape_at(where: str) -> Any:
    shape: Any = shapes.type_info(Config)
    for step in _STEP.findall(where):
        if isinstance(shape, shapes.UnionType):
            shape = next((t for t in shape.types if not isinstance(t, shapes.NoneType)), None)
        if step.startswith("["):
            shape = getattr(shape, "item_type", None)
        else:
            fields = getattr(shape, "fields", ())
            shape = next((f.type for f in fields if f.encode_name == step), None)
    return shape
