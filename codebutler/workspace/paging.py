"""Slack's cursor paging. Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import TypeVar

from codebutler.workspace.params import Params
from codebutler.workspace.records import MethodError

T = TypeVar("T")


def page(items: Sequence[T], params: Params, *, default: int = 100, most: int = 999) -> tuple[list[T], str]:
    """The page ``cursor`` and ``limit`` ask for, and the next cursor ("" at the end)."""
    start = int(open_cursor(params.text("cursor")) or "0")
    end = start + params.number("limit", default, most)
    return list(items[start:end]), make_cursor(str(end)) if end < len(items) else ""


def make_cursor(place: str) -> str:
    """A cursor in Slack's form: base64 of ``next:`` and the place to go on from."""
    return base64.urlsafe_b64encode(f"next:{place}".encode()).decode()


def open_cursor(cursor: str) -> str:
    """The place a cursor stands for; "" for none. Raises MethodError invalid_cursor."""
    if not cursor:
        return ""
    try:
        kind, _, place = base64.urlsafe_b64decode(cursor.encode()).decode().partition(":")
    except (binascii.Error, ValueError):
        raise MethodError("invalid_cursor") from None
    if kind != "next" or not place.replace(".", "").isdecimal():
        raise MethodError("invalid_cursor")
    return place
