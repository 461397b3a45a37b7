"""The workspace as data: people, messages, channels and files.

Refusals are MethodError with Slack's own error code.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

from msgspec import Struct, field

from codebutler.domain.errors import CodeButlerError

Json = dict[str, Any]


class MethodError(CodeButlerError):
    """A Web API call was refused; ``code`` is Slack's error code."""

    def __init__(self, code: str, details: tuple[str, ...] = ()) -> None:
        super().__init__(code)
        self.code = code
        self.details = details


class User(Struct, kw_only=True):
    """A user: a person, the app's bot, or another app's bot (``bot_id`` is set)."""

    id: str
    name: str
    token: str
    bot_id: str = ""
    app_id: str = ""
    here_since: str = ""  # the ts from which on what others say is news to them

    @property
    def is_bot(self) -> bool:
        """Whether it is a program: the app's own bot or another app's."""
        return bool(self.bot_id)


class StoredFile(Struct, kw_only=True):
    """An uploaded file. ``content`` is None until the bytes arrive; ``shared_in`` holds channel IDs."""

    id: str
    owner: str
    name: str
    title: str
    length_bytes: int
    url: str
    created_s: int
    mimetype: str
    content: bytes | None = None
    completed: bool = False
    shared_in: set[str] = field(default_factory=set)


class Message(Struct, kw_only=True):
    """One stored message; ``render`` converts it to Slack's form.

    ``stream``: the text so far of a growing message. ``username`` and ``icons``: a bot under another name.
    """

    ts: str
    user: str
    text: str
    by_app: bool = False  # by a bot: the app's own or a foreign one
    subtype: str = ""
    client_msg_id: str = ""
    inviter: str = ""
    thread_ts: str | None = None
    blocks: list[Json] = field(default_factory=list)
    attachments: list[Json] = field(default_factory=list)
    files: list[Json] = field(default_factory=list)
    metadata: Json | None = None
    stream: Json | None = None
    username: str = ""
    icons: Json = field(default_factory=dict)
    edited: Json | None = None
    reactions: dict[str, list[str]] = field(default_factory=dict)
    replies: list[str] = field(default_factory=list)

    @property
    def is_reply(self) -> bool:
        """Whether it is a reply; a thread's first message is not."""
        return self.thread_ts is not None and self.thread_ts != self.ts

    @property
    def is_tombstone(self) -> bool:
        """Whether it is the placeholder of a deleted message whose thread remains."""
        return self.subtype == "tombstone"


class Channel(Struct, kw_only=True):
    """A channel or, with ``is_im``, a direct conversation. ``timeline``: the ts of the history, sorted.

    ``read``: how far each person has read it, as a ts. ``pins``: ts -> who pinned it, and when in seconds.
    """

    id: str
    name: str
    creator: str
    created_s: int
    topic: str = ""
    purpose: str = ""
    is_im: bool = False
    is_private: bool = False
    is_archived: bool = False
    members: set[str] = field(default_factory=set)
    read: dict[str, str] = field(default_factory=dict)
    pins: dict[str, tuple[str, int]] = field(default_factory=dict)
    messages: dict[str, Message] = field(default_factory=dict)
    timeline: list[str] = field(default_factory=list)

    @property
    def kind(self) -> str:
        """The ``channel_type`` of its events."""
        return "im" if self.is_im else "group" if self.is_private else "channel"

    @property
    def is_hidden(self) -> bool:
        """Whether only its members see it."""
        return self.is_im or self.is_private

    def message(self, ts: str) -> Message:
        """Raises MethodError message_not_found for an unknown or deleted message."""
        found = self.messages.get(ts)
        if found is None or found.is_tombstone:
            raise MethodError("message_not_found")
        return found

    def add(self, message: Message) -> None:
        """Add a message: to the timeline, or, if it is a reply that is not broadcast, only to its thread."""
        self.messages[message.ts] = message
        if message.thread_ts is None or message.subtype == "thread_broadcast":
            self.timeline.append(message.ts)
        if message.is_reply and message.thread_ts is not None:
            self.messages[message.thread_ts].replies.append(message.ts)

    def remove(self, message: Message) -> None:
        """A deleted message leaves a tombstone, which the history shows while the thread has replies."""
        if not message.replies:
            discard(self.timeline, message.ts)
        if message.is_reply and message.thread_ts is not None:
            discard(self.messages[message.thread_ts].replies, message.ts)
        self.messages[message.ts] = Message(
            ts=message.ts,
            user="USLACKBOT",
            text="This message was deleted.",
            subtype="tombstone",
            replies=message.replies,
        )

    def unread(self, user: str, since: str) -> list[str]:
        """The ts of others' messages since this person has read it, or at all since ``since``, newest first."""
        read = max(since, self.read.get(user, ""))
        found = []
        for ts in reversed(self.messages):
            if ts <= read:
                break
            message = self.messages[ts]
            if message.user != user and not message.is_tombstone:
                found.append(ts)
        return found

    def thread_root(self, ts: str) -> str:
        """The thread a reply to ``ts`` belongs to; raises MethodError thread_not_found."""
        found = self.messages.get(ts)
        if found is None:
            raise MethodError("thread_not_found")
        return found.thread_ts if found.is_reply and found.thread_ts else ts


def normal_ts(text: str) -> str:
    """A caller's ``oldest``/``latest`` in the form of stored ts, so that text order is time order."""
    seconds, _, micros = text.partition(".")
    if not seconds.isdecimal() or (micros and not micros.isdecimal()):
        raise MethodError("invalid_ts_oldest" if text else "invalid_arguments")
    return f"{seconds:0>10}.{micros[:6]:0<6}"


def discard(sorted_items: list[str], item: str) -> None:
    """Remove an item from a sorted list, if it is in it."""
    at = bisect_left(sorted_items, item)
    if at < len(sorted_items) and sorted_items[at] == item:
        del sorted_items[at]
