"""A call of the Web API: its arguments (from its query, form with nested values as JSON text, or JSON), the caller, and
the workspace."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec
from msgspec import Struct

from codebutler.platform.tasks import BoundedDict
from codebutler.workspace.events import Announcer, EphemeralMessages
from codebutler.workspace.socket import Hub
from codebutler.workspace.state import Channel, Json, MethodError, StoredFile, User, Workspace
from codebutler.workspace.views import Views

T = TypeVar("T")

MAX_SENT = 1000


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


class Status(Struct, frozen=True):
    """The app's status in a thread, until a moment of the monotonic clock."""

    text: str
    until_s: float


@dataclass
class WorkspaceContext:
    """The running workspace's parts, shared by every call. ``url`` and ``socket_url`` have no final slash.

    ``sent``: the answers to people's newest posts, by user and client_msg_id. ``scheduled``: messages due
    later, by ID.
    """

    workspace: Workspace
    announcer: Announcer
    hub: Hub
    ephemerals: EphemeralMessages
    url: str
    socket_url: str
    uploads: dict[str, StoredFile] = field(default_factory=dict)
    statuses: dict[tuple[str, str], Status] = field(default_factory=dict)
    sent: BoundedDict[tuple[str, str], Json] = field(default_factory=lambda: BoundedDict(MAX_SENT))
    scheduled: dict[str, Any] = field(default_factory=dict)
    views: Views = field(init=False)

    def __post_init__(self) -> None:
        self.views = Views(self.workspace.clock, self.workspace.next_id)


class Call(Struct, frozen=True):
    """One call. ``user`` is the token's owner; None for the app-level token."""

    context: WorkspaceContext
    user: User | None
    params: Params

    @property
    def workspace(self) -> Workspace:
        """The people, channels and files that the call is about."""
        return self.context.workspace

    @property
    def actor(self) -> User:
        """The calling user. Raises MethodError not_allowed_token_type for the app-level token."""
        if self.user is None:
            raise MethodError("not_allowed_token_type")
        return self.user

    def channel(self, name: str = "channel") -> Channel:
        """The call's channel; a conversation hidden from the caller counts as missing."""
        return self._visible(self.workspace.channel(self.params.required(name, "channel_not_found")))

    def posting_channel(self) -> Channel:
        """The target of a message: a channel by ID or name, or a person for the direct conversation with
        them."""
        target = self.params.required("channel", "channel_not_found")
        workspace = self.workspace
        if target in workspace.users:
            return self._joined(workspace.open_im(self.actor.id, target))
        name = target.removeprefix("#")
        for channel in workspace.channels.values():
            if not channel.is_im and channel.name == name and target not in workspace.channels:
                return self._joined(self._visible(channel))
        return self.joined_channel()

    def joined_channel(self, name: str = "channel") -> Channel:
        """The same, with the caller as a member: people join automatically, the app gets not_in_channel.

        Nobody can act in an archived one.
        """
        return self._joined(self.channel(name))

    def _visible(self, channel: Channel) -> Channel:
        if channel.is_hidden and self.actor.id not in channel.members:
            raise MethodError("channel_not_found")
        return channel

    def _joined(self, channel: Channel) -> Channel:
        if channel.is_archived:
            raise MethodError("is_archived")
        if self.actor.id not in channel.members:
            if self.actor.id == self.workspace.bot.id:
                raise MethodError("not_in_channel")
            channel.members.add(self.actor.id)
        return channel


Method = Callable[[Call], Json]
