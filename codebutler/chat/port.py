"""ChatPort: what the parent asks of a chat service. One contract suite holds every implementation to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from msgspec import Struct

from codebutler.chat.layout import Section
from codebutler.model import File, Post, React, Update, Upload


class Identity(Struct, frozen=True, kw_only=True):
    """Who we are in the workspace (``auth.test``)."""

    user_id: str
    bot_id: str
    team_id: str
    team: str = ""
    url: str = ""


class Page(Struct, frozen=True, kw_only=True):
    """Messages as Slack tells them, oldest or newest first as Slack sends them, and where to go on."""

    messages: tuple[dict[str, Any], ...]
    next_cursor: str = ""


class Download(Struct, frozen=True, kw_only=True):
    """What came of a download: what is known of the file, and what a voice clip says (then it has no content)."""

    file: File
    transcript: str = ""


Call = Literal[
    "post",
    "whisper",
    "update",
    "delete",
    "react",
    "unreact",
    "share",
    "history",
    "replies",
    "start_stream",
    "append_stream",
    "stop_stream",
]
"""What may be limited. A post for one person alone is a whisper; what replaces a message is an update."""


@dataclass(frozen=True, slots=True)
class Limit:
    """``per_minute`` calls on average, of which ``burst`` may come at once."""

    per_minute: float
    burst: int


@dataclass(frozen=True, slots=True)
class Limits:
    """How often a chat lets us call, over all channels and in each. What is in neither has no limit."""

    workspace: Mapping[Call, Limit]
    channel: Mapping[Call, Limit]


@dataclass(frozen=True, slots=True)
class ChannelMoved:
    """What the chat says has become of a channel: ``archived``, ``left`` (we were taken out), ``back``."""

    channel: str
    how: str


class History(Protocol):
    """What was said, a page at a time, within the rate limits."""

    async def history(
        self, channel: str, *, thread_ts: str | None = None, since_s: float = 0.0, cursor: str = ""
    ) -> Page:
        """A page of what was written after ``since_s`` (Unix seconds): of a thread, oldest first, or of the channel,
        newest first; with metadata."""


class ChatPort(History, Protocol):
    """Every call raises ChatRateLimitedError, ChatAuthError, ChatUnreachableError, ChatOutcomeUnknownError or
    ChatError (refused for good). ``op_id`` travels in the message's metadata."""

    limits: Limits

    async def identity(self) -> Identity:
        """Whose token it is."""

    async def post(self, channel: str, post: Post, op_id: str) -> str:
        """Returns the new message's ts, which sorts among the ``order`` of what is written there."""

    async def update(self, channel: str, update: Update, op_id: str) -> None:
        """Other content for a message of ours; attempted twice, it is the same."""

    async def react(self, channel: str, react: React) -> None:
        """Already there (or already gone) is success."""

    async def upload(self, upload: Upload) -> str:
        """Bring a file's bytes to the chat; returns the file's id. Nobody sees it until it is shared."""

    async def share(self, channel: str, upload: Upload, file_id: str) -> None:
        """Show an uploaded file. Works once for each: file_not_found if it was shared, or discarded, before."""

    async def shared_in(self, file_id: str) -> frozenset[str] | None:
        """The channels that show a file; None if there is no such file."""

    async def show_status(self, channel: str, thread_ts: str, text: str) -> None:
        """Show what is done in a thread, under it; "" shows nothing any more. Our next message there ends it."""

    async def start_stream(self, channel: str, thread_ts: str, text: str) -> str:
        """Begin a message that grows; returns its ts. In direct conversations only. It bears no operation."""

    async def append_stream(self, channel: str, ts: str, text: str) -> None:
        """More text at the end of a message that grows."""

    async def stop_stream(self, channel: str, ts: str) -> None:
        """From now on it is a message like any other."""

    async def replace(self, channel: str, ts: str, post: Post, op_id: str) -> None:
        """Have the message ``ts`` of ours, of another operation or none, be ``post``, as if that had made it."""

    async def delete(self, channel: str, ts: str) -> None:
        """Take a message of ours away."""

    async def publish_home(self, user: str, parts: Sequence[Section]) -> None:
        """Show ``parts`` as the app's home to one person, in place of what was there."""

    async def open_form(self, trigger_id: str, view: dict[str, Any]) -> None:
        """Show a modal to whoever did what ``trigger_id`` came with; it lives three seconds and works once."""
