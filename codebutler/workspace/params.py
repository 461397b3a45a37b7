"""The arguments of a Web API call, from its query, form (nested values as JSON text) or JSON. Pure.

Slack's rate limits: always counted, and enforced on request. Pure.

Source: Slack's rate limit tiers: 1, 20, 50 and 100 calls a minute per method; one message a second and
channel for chat.postMessage, with short bursts, and several hundred a minute for the whole workspace.
"""

from __future__ import annotations

import base64
import binascii
from collections import Counter
from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec
from msgspec import Struct

from codebutler.domain.clock import Clock
from codebutler.workspace.state import Json, MethodError

T = TypeVar("T")


class Params:
    """Typed access to a call's arguments; an argument of the wrong form is ``invalid_arguments``."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values

    def has(self, name: str) -> bool:
        """Whether the argument was given at all; null does not count, an empty string does."""
        return self.values.get(name) is not None

    def text(self, name: str, default: str = "") -> str:
        """A string, or a number as one. Raises MethodError invalid_arguments for lists, objects and true/false."""
        value = self.values.get(name)
        if value is None:
            return default
        if isinstance(value, str):
            return value
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return str(value)
        raise MethodError("invalid_arguments", (f"{name} must be a string",))

    def required(self, name: str, code: str = "invalid_arguments") -> str:
        """Raises MethodError with ``code`` when it is missing or empty."""
        if found := self.text(name):
            return found
        raise MethodError(code, (f"[ERROR] missing required field: {name}",))

    def flag(self, name: str) -> bool:
        """True for true, "true" and "1", which forms can express; everything else is false."""
        return str(self.values.get(name)).lower() in ("true", "1")

    def number(self, name: str, default: int, maximum: int) -> int:
        """Between 1 and ``maximum``."""
        text = self.text(name)
        if not text:
            return default
        if not text.isdecimal():
            raise MethodError("invalid_limit" if name == "limit" else "invalid_arguments")
        return max(1, min(int(text), maximum))

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
        value = self.values.get(name)
        if not isinstance(value, str):
            return value
        if not value:
            return None
        try:
            return msgspec.json.decode(value)
        except msgspec.DecodeError:
            raise MethodError(code) from None


def parse_params(content_type: str, query: str, body: bytes) -> Params:
    """Body arguments win over the query's. Raises MethodError invalid_json, invalid_form_data."""
    values: Json = dict(parse_qsl(query, keep_blank_values=True))
    if not body:
        return Params(values)
    if content_type.startswith("application/json"):
        try:
            arguments = msgspec.json.decode(body)
        except msgspec.DecodeError:
            raise MethodError("invalid_json") from None
        if not isinstance(arguments, dict):
            raise MethodError("json_not_object")
        return Params({**values, **arguments})
    if content_type.startswith("application/x-www-form-urlencoded"):
        try:
            values.update(parse_qsl(body.decode(), keep_blank_values=True))
        except ValueError:
            raise MethodError("invalid_form_data") from None
        return Params(values)
    raise MethodError("invalid_post_type")


def decode_body(body: bytes, kind: type[T]) -> T:
    """A JSON body as ``kind``. Raises MethodError invalid_arguments, saying what was expected where."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise MethodError("invalid_arguments", (str(error),)) from None


def page(items: Sequence[T], params: Params) -> tuple[list[T], str]:
    """The page for ``cursor`` and ``limit``, and the next cursor ("" at the end)."""
    start = int(parse_cursor(params.text("cursor")) or "0")
    end = start + params.number("limit", 100, 999)
    return list(items[start:end]), make_cursor(str(end)) if end < len(items) else ""


def make_cursor(position: str) -> str:
    """A cursor in Slack's form: base64 of ``next:`` and the position."""
    return base64.urlsafe_b64encode(f"next:{position}".encode()).decode()


def parse_cursor(cursor: str) -> str:
    """The position of a cursor; "" for none. Raises MethodError invalid_cursor."""
    if not cursor:
        return ""
    try:
        kind, _, position = base64.urlsafe_b64decode(cursor.encode()).decode().partition(":")
    except (binascii.Error, ValueError):
        raise MethodError("invalid_cursor") from None
    if kind != "next" or not position.replace(".", "").isdecimal():
        raise MethodError("invalid_cursor")
    return position


PER_MINUTE = {
    "chat.update": 50,
    "chat.delete": 50,
    "reactions.add": 50,
    "reactions.get": 50,
    "reactions.remove": 20,
    "conversations.list": 20,
    "conversations.create": 20,
    "conversations.info": 50,
    "conversations.join": 50,
    "conversations.history": 50,
    "conversations.replies": 50,
    "apps.connections.open": 50,
    "chat.scheduleMessage": 50,
    "chat.deleteScheduledMessage": 50,
    "chat.scheduledMessages.list": 50,
    "chat.startStream": 20,
    "chat.stopStream": 20,
    "pins.add": 20,
    "pins.remove": 20,
    "pins.list": 20,
    "reactions.list": 20,
    "files.list": 50,
    "files.delete": 50,
    "users.lookupByEmail": 50,
    "assistant.threads.setStatus": 600,
    "users.list": 20,
}
DEFAULT_PER_MINUTE = 100
POST_BURST = 6
POSTS_PER_S, POSTS_BURST = 5.0, 60
"""For the whole workspace: the low end of "several hundred a minute"."""


class _Bucket(Struct):
    tokens: float
    filled_s: float


class RateLimits:
    """A token bucket for each method, and for each channel that gets posts.

    ``calls`` counts all by method, ``violations`` those that Slack would have refused, whether ``enforced``
    or not.
    """

    def __init__(self, clock: Clock, *, enforced: bool = True) -> None:
        self.enforced = enforced
        self.calls: Counter[str] = Counter()
        self.violations: Counter[str] = Counter()
        self._clock = clock
        self._buckets: dict[str, _Bucket] = {}

    def wait_s(self, method: str, channel: str) -> int:
        """0 if the call may pass (and is counted), else the Retry-After in whole seconds."""
        self.calls[method] += 1
        wait_s = self._retry_after_s(method, channel)
        if wait_s:
            self.violations[method] += 1
        return wait_s if self.enforced else 0

    def _retry_after_s(self, method: str, channel: str) -> int:
        if method == "chat.postMessage":
            wait_s = self._take_token(f"post {channel}", POST_BURST, 1.0)
            return wait_s or self._take_token(method, POSTS_BURST, POSTS_PER_S)
        per_minute = PER_MINUTE.get(method, DEFAULT_PER_MINUTE)
        return self._take_token(method, per_minute, per_minute / 60)

    def _take_token(self, key: str, burst: int, per_second: float) -> int:
        now_s = self._clock.monotonic()
        bucket = self._buckets.setdefault(key, _Bucket(float(burst), now_s))
        bucket.tokens = min(float(burst), bucket.tokens + (now_s - bucket.filled_s) * per_second)
        bucket.filled_s = now_s
        if bucket.tokens >= 1:
            bucket.tokens -= 1
            return 0
        return ceil((1 - bucket.tokens) / per_second)
