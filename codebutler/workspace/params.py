"""The arguments of a Web API call, from its query, form (nested values as JSON text) or JSON. Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec

from codebutler.workspace.records import Json, MethodError

T = TypeVar("T")


class Params:
    """Typed access to a call's arguments; an argument of the wrong form is ``invalid_arguments``."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    @property
    def values(self) -> Mapping[str, Any]:
        """All arguments as given."""
        return self._values

    def has(self, name: str) -> bool:
        """Whether the argument was given at all; null does not count, an empty string does."""
        return self._values.get(name) is not None

    def text(self, name: str, default: str = "") -> str:
        """A string, or a number as one. Raises MethodError invalid_arguments for lists, objects and true/false."""
        value = self._values.get(name)
        if value is None:
            return default
        if isinstance(value, str):
            return value
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return str(value)
        raise MethodError("invalid_arguments", (f"{name} must be a string",))

    def needed(self, name: str, code: str = "invalid_arguments") -> str:
        """Raises MethodError with ``code`` when it is missing or empty."""
        if found := self.text(name):
            return found
        raise MethodError(code, (f"[ERROR] missing required field: {name}",))

    def flag(self, name: str, *, default: bool = False) -> bool:
        """True for true, "true" and "1", which forms can express; any other given value is false."""
        value = self._values.get(name)
        if value is None:
            return default
        return value is True or str(value).lower() in ("true", "1")

    def number(self, name: str, default: int, most: int) -> int:
        """Between 1 and ``most``."""
        text = self.text(name)
        if not text:
            return default
        if not text.isdecimal():
            raise MethodError("invalid_limit" if name == "limit" else "invalid_arguments")
        return max(1, min(int(text), most))

    def objects(self, name: str, code: str = "invalid_arguments") -> list[Json] | None:
        """A list of JSON objects; None when the argument is absent."""
        value = self._nested(name, code)
        if value is None:
            return None
        if isinstance(value, list) and all(isinstance(item, dict) for item in value):
            return value
        raise MethodError(code)

    def object(self, name: str, code: str = "invalid_arguments") -> Json | None:
        """A JSON object; None when the argument is absent. Raises MethodError with ``code`` for anything else."""
        value = self._nested(name, code)
        if value is None or isinstance(value, dict):
            return value
        raise MethodError(code)

    def _nested(self, name: str, code: str) -> Any:
        value = self._values.get(name)
        if not isinstance(value, str):
            return value
        if not value:
            return None
        try:
            return msgspec.json.decode(value)
        except msgspec.DecodeError:
            raise MethodError(code) from None


def decode(content_type: str, query: str, body: bytes) -> Params:
    """Body arguments win over the query's. Raises MethodError invalid_json, invalid_form_data."""
    values: Json = dict(parse_qsl(query, keep_blank_values=True))
    if not body:
        return Params(values)
    if content_type.startswith("application/json"):
        try:
            given = msgspec.json.decode(body)
        except msgspec.DecodeError:
            raise MethodError("invalid_json") from None
        if not isinstance(given, dict):
            raise MethodError("json_not_object")
        return Params({**values, **given})
    if content_type.startswith("application/x-www-form-urlencoded"):
        try:
            values.update(parse_qsl(body.decode(), keep_blank_values=True))
        except ValueError:
            raise MethodError("invalid_form_data") from None
        return Params(values)
    raise MethodError("invalid_post_type")


def decoded(body: bytes, kind: type[T]) -> T:
    """A JSON body as ``kind``. Raises MethodError invalid_arguments, saying what was expected where."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise MethodError("invalid_arguments", (str(error),)) from None


def page(items: Sequence[T], params: Params, *, default: int = 100, most: int = 999) -> tuple[list[T], str]:
    """The page for ``cursor`` and ``limit``, and the next cursor ("" at the end)."""
    start = int(open_cursor(params.text("cursor")) or "0")
    end = start + params.number("limit", default, most)
    return list(items[start:end]), make_cursor(str(end)) if end < len(items) else ""


def make_cursor(place: str) -> str:
    """A cursor in Slack's form: base64 of ``next:`` and the position."""
    return base64.urlsafe_b64encode(f"next:{place}".encode()).decode()


def open_cursor(cursor: str) -> str:
    """The position of a cursor; "" for none. Raises MethodError invalid_cursor."""
    if not cursor:
        return ""
    try:
        kind, _, place = base64.urlsafe_b64decode(cursor.encode()).decode().partition(":")
    except (binascii.Error, ValueError):
        raise MethodError("invalid_cursor") from None
    if kind != "next" or not place.replace(".", "").isdecimal():
        raise MethodError("invalid_cursor")
    return place
