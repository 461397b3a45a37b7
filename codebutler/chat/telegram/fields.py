"""Reading Telegram's JSON field by field: what is missing or of another type is an error, never a crash. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeGuard

from codebutler.domain.errors import CodeButlerError

_UNKEEPABLE = re.compile("[\ud800-\udfff\x00]")


class PayloadError(CodeButlerError):
    """Telegram sent an update of an unknown shape."""


def mapping(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The object under ``name``. Raises PayloadError where there is none."""
    value = data.get(name)
    if not isinstance(value, Mapping):
        raise PayloadError(f"an update without {name}")
    return value


def section(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The object under ``name``; an empty one where there is none."""
    value = data.get(name)
    return value if isinstance(value, Mapping) else {}


def text_in(data: Mapping[str, Any], name: str) -> str:
    """The text under ``name``, cleaned; "" where there is none."""
    value = data.get(name)
    return clean(value) if isinstance(value, str) else ""


def number(data: Mapping[str, Any], name: str) -> int:
    """The number under ``name``. Raises PayloadError where there is none."""
    value = data.get(name)
    if not is_number(value):
        raise PayloadError(f"an update without {name}")
    return int(value)


def size(data: Mapping[str, Any], name: str) -> int:
    """The number under ``name``; 0 where there is none."""
    value = data.get(name)
    return int(value) if is_number(value) and value > 0 else 0


def is_number(value: object) -> TypeGuard[int]:
    """Whether it is one that Telegram counts with."""
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53


def clean(text: str) -> str:
    """NUL ends strings in the programs we start, and half a surrogate pair cannot be stored."""
    return _UNKEEPABLE.sub("�", text)
