"""Reads a chat's JSON field by field: a missing field or a wrong type is a PayloadError, never a crash. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeGuard

from msgspec import Struct

from codebutler.domain.errors import CodeButlerError

_SURROGATES = re.compile("[\ud800-\udfff]")


class PayloadError(CodeButlerError):
    """The chat sent data of an unknown shape."""


class Ignored(Struct, frozen=True):
    """Nothing for us, and why."""

    reason: str


def required(data: Mapping[str, Any], name: str) -> str:
    """The text under ``name``. Raises PayloadError if it is missing."""
    if not (value := optional(data, name)):
        raise PayloadError(f"a payload without {name}")
    return value


def optional(data: Mapping[str, Any], name: str) -> str:
    """The text under ``name``, cleaned; "" if it is missing. Raises PayloadError for another type."""
    value = data.get(name)
    if value is not None and not isinstance(value, str):
        raise PayloadError(f"a payload whose {name} is not text")
    if not value:
        return ""
    return value if value.isprintable() else clean(value)


def text_in(data: Mapping[str, Any], name: str) -> str:
    """The text under ``name``, cleaned; "" if it is missing."""
    value = data.get(name)
    if not isinstance(value, str):
        return ""
    return value if value.isprintable() else clean(value)


def mapping(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The object under ``name``. Raises PayloadError if it is missing."""
    value = data.get(name)
    if not isinstance(value, Mapping):
        raise PayloadError(f"a payload without {name}")
    return value


def section(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The object under ``name``; an empty one if it is missing."""
    value = data.get(name)
    return value if isinstance(value, Mapping) else {}


def mappings(data: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """The objects in the list under ``name``; none if there is no list."""
    found = data.get(name)
    return [each for each in found if isinstance(each, Mapping)] if isinstance(found, list) else []


def number(data: Mapping[str, Any], name: str) -> int:
    """The number under ``name``. Raises PayloadError if it is missing."""
    value = data.get(name)
    if not is_number(value):
        raise PayloadError(f"a payload without {name}")
    return value


def size(data: Mapping[str, Any], name: str) -> int:
    """The number under ``name``; 0 if it is missing."""
    value = data.get(name)
    return value if is_number(value) and value > 0 else 0


def is_number(value: object) -> TypeGuard[int]:
    """Whether it is a whole number that JSON carries exactly."""
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53


def clean(text: str) -> str:
    """NUL ends strings in the programs we start, and half a surrogate pair cannot be stored; neither is printable."""
    return _SURROGATES.sub("�", text.replace("\0", ""))
