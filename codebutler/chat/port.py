"""What the parent asks of a chat service: ``ChatPort`` is what every chat has, ``Capabilities`` what some have beside.

One contract suite holds every implementation to it. What is done where a capability is missing is decided by whoever
uses it, in one place: delivery (``History``, ``LookUp``, ``Streams``, ``Ephemeral``), the status board, App Home, the
form that asks why not. ``docs/explanation/chats.md`` tells it to users.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import timedelta
from random import Random
from types import MappingProxyType
from typing import Any, Literal, Protocol, TypeVar

from msgspec import Struct

from codebutler.chat.layout import ReasonForm, Section
from codebutler.domain.clock import Clock
from codebutler.domain.errors import (
    ChatAuthError,
    ChatError,
    ChatRateLimitedError,
    ChatUnreachableError,
    CodeButlerError,
    StoreError,
)
from codebutler.domain.model import File, Post, React, Update, Upload
from codebutler.platform.tasks import full_jitter_s

IDENTIFY_BASE_S = 1.0
IDENTIFY_CAP_S = 60.0
ATTEMPTS = 3
RETRY_S = 2.0

T = TypeVar("T")


class Identity(Struct, frozen=True, kw_only=True):
    """Who we are in the workspace (``auth.test``)."""

    user_id: str
    bot_id: str
    team_id: str
    team: str = ""
    url: str = ""


async def identified(
    ask: Callable[[], Awaitable[Identity]],
    clock: Clock,
    rng: Random,
    troubled: Callable[[CodeButlerError], None],
) -> Identity:
    """Ask until the chat tells who we are; ``troubled`` hears of each failure. Raises ChatAuthError."""
    failures = 0
    while True:
        try:
            return await ask()
        except ChatAuthError:
            raise
        except (ChatError, StoreError) as error:
            failures += 1
            troubled(error)
            await clock.sleep(full_jitter_s(rng, failures, IDENTIFY_BASE_S, IDENTIFY_CAP_S))


async def file_details(ask: Callable[[], Awaitable[T]], clock: Clock) -> T:
    """What a chat knows of a file, asked for ATTEMPTS times where it cannot answer. Raises ChatError."""
    for attempt in range(1, ATTEMPTS + 1):
        wait_s = RETRY_S
        try:
            return await ask()
        except ChatRateLimitedError as error:
            wait_s = error.retry_after_s
        except ChatUnreachableError:
            pass
        if attempt < ATTEMPTS:
            await clock.sleep(wait_s)
    raise ChatError(code="unreachable")


class HistoryMessage(Struct, frozen=True, kw_only=True):
    """What was written once. ``order`` sorts as text among what was written there. ``user``: who wrote it, or which
    bot; ``name``: what the history calls them, "" if it does not. ``is_ours``: an operation of ours made it, and
    ``parts`` are all of it, as far as the chat still shows them. ``raw``: the message as the chat tells it, which only
    its own adapter reads."""

    ts: str
    order: str
    user: str = ""
    name: str = ""
    text: str = ""
    is_person: bool = True
    is_ours: bool = False
    parts: tuple[Section, ...] = ()
    raw: Mapping[str, Any] = MappingProxyType({})


class HistoryPage(Struct, frozen=True, kw_only=True):
    """Messages, oldest or newest first as the chat tells them, and where to go on."""

    messages: tuple[HistoryMessage, ...] = ()
    next_cursor: str = ""


class Own(Struct, frozen=True, kw_only=True):
    """A message of ours. ``op_id``: the operation that made it; "" if it bears none: it is a file, or was streamed."""

    ts: str
    op_id: str = ""
    is_file: bool = False


class OwnPage(Struct, frozen=True, kw_only=True):
    """Messages of ours, and where to go on."""

    messages: tuple[Own, ...] = ()
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
    "publish",
]
"""What may be limited. A post for one person alone is a whisper; what replaces a message is an update; "publish" is a
home page."""

ABOUT_A_PLACE = frozenset(
    {"channel_not_found", "invalid_thread_ts", "is_archived", "not_in_channel", "thread_not_found"}
)
"""Codes of refusals that are about one channel or thread, not about what we may do in this chat."""

Take = Callable[[bytes], Awaitable[None]]
"""Takes a file, piece by piece."""


CLOSED = MappingProxyType(
    {
        "is_archived": "its channel is archived",
        "not_in_channel": "the app is not in its channel: add it there",
        "channel_not_found": "its channel is gone: run `codebutler add-repo` again",
    }
)


@dataclass(frozen=True, slots=True)
class Limit:
    """``per_minute`` calls on average, of which ``burst`` may come at once."""

    per_minute: float
    burst: int


@dataclass(frozen=True, slots=True)
class Limits:
    """How often a chat lets us call, over all channels and in each. What is in neither has no limit.

    ``closed``: codes of refusals that say that a channel is closed to us, each with what to do: what is to be said
    there waits. An adapter gives them these names, whatever its platform calls them. ``kept``: how long it keeps what
    nobody took, from its own date on; None = for good.
    """

    workspace: Mapping[Call, Limit]
    channel: Mapping[Call, Limit]
    closed: Mapping[str, str] = field(default_factory=lambda: CLOSED)
    kept: timedelta | None = None

    def within(self, channel: str) -> Mapping[Call, Limit]:  # noqa: ARG002 - a chat may have several kinds of them
        """How often it lets us call in that channel."""
        return self.channel


@dataclass(frozen=True, slots=True)
class ChannelMoved:
    """What the chat says has become of a channel: ``archived``, ``left`` (we were taken out), ``back``."""

    channel: str
    how: str


class History(Protocol):
    """What was said, a page at a time."""

    async def history(
        self, channel: str, *, thread_ts: str | None = None, since_s: float = 0.0, cursor: str = ""
    ) -> HistoryPage:
        """A page of what was written after ``since_s`` (Unix seconds): of a thread, oldest first, or of the channel,
        newest first."""


class LookUp(Protocol):
    """Which of our operations were done."""

    async def own(
        self, channel: str, *, thread_ts: str | None = None, since_s: float = 0.0, cursor: str = ""
    ) -> OwnPage:
        """The messages of ours on the same page of ``History``. Nobody else's pass for ours, whatever they claim."""

    async def shared_in(self, file_id: str) -> frozenset[str] | None:
        """The channels that show a file; None if there is no such file."""


class Streams(Protocol):
    """Messages that grow while they are written, in direct conversations."""

    async def start_stream(self, channel: str, thread_ts: str, text: str) -> str:
        """Begin a message that grows; returns its ts. It bears no operation."""

    async def append_stream(self, channel: str, ts: str, text: str) -> None:
        """More text at its end."""

    async def stop_stream(self, channel: str, ts: str) -> None:
        """From now on it is a message like any other."""

    async def replace(self, channel: str, ts: str, post: Post, op_id: str) -> None:
        """Have the message ``ts`` of ours, of another operation or none, be ``post``, as if that had made it."""

    async def delete(self, channel: str, ts: str) -> None:
        """Take a message of ours away."""


class Ephemeral(Protocol):
    """Messages that one person alone sees."""

    async def whisper(self, channel: str, post: Post) -> str:
        """Show ``post`` to ``post.only_for``, and to nobody else. What is returned cannot be edited or found again."""


class StatusLine(Protocol):
    """A line under a thread that is no message."""

    async def show_status(self, channel: str, thread_ts: str, text: str) -> None:
        """Show what is done in a thread; "" shows nothing any more. Our next message there ends it."""


class Forms(Protocol):
    """Forms that open over the chat."""

    async def open_form(self, trigger_id: str, form: ReasonForm) -> None:
        """Show it to whoever pressed a button; ``trigger_id`` came with that, works once, and only for a moment."""


class HomePage(Protocol):
    """A page of ours that each person has to themselves."""

    async def publish_home(self, user: str, parts: Sequence[Section]) -> None:
        """Show ``parts`` to one person, in place of what was there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a chat has beside what all have; None = it has not."""

    history: History | None = None
    look_up: LookUp | None = None
    streams: Streams | None = None
    ephemeral: Ephemeral | None = None
    status_line: StatusLine | None = None
    forms: Forms | None = None
    home: HomePage | None = None


CAPABILITIES = frozenset(each.name for each in fields(Capabilities))


class ChatPort(Protocol):
    """What every chat has; what comes in comes by the adapter's own connection.

    Every call, of the capabilities too, raises ChatRateLimitedError, ChatAuthError, ChatUnreachableError,
    ChatOutcomeUnknownError or ChatError (refused for good). Delivery understands some codes of the last, in every chat:
    a channel that is closed to us (``Limits.closed``), a message that is too much (``delivery.outgoing``),
    message_not_found and file_not_found.
    """

    @property
    def limits(self) -> Limits:
        """How often it lets us call."""

    @property
    def capabilities(self) -> Capabilities:
        """What else it has; the same for as long as it lives."""

    async def identity(self) -> Identity:
        """Whose token it is."""

    async def post(self, channel: str, post: Post, op_id: str) -> str:
        """Returns the new message's ts, which sorts among the ``order`` of what is written there. ``LookUp`` finds it
        by ``op_id``. Never called with ``only_for``."""

    async def update(self, channel: str, update: Update, op_id: str) -> None:
        """Other content for a message of ours; attempted twice, it is the same."""

    async def react(self, channel: str, react: React) -> None:
        """Already there (or already gone) is success."""

    async def upload(self, upload: Upload) -> str:
        """Bring a file's bytes to the chat; returns the file's id. Nobody sees it until it is shared. Where a chat
        brings and shows a file in one call, ``share`` makes that call, and this returns any name for it but ""."""

    async def share(self, channel: str, upload: Upload, file_id: str) -> None:
        """Show an uploaded file. Works once for each: file_not_found if it was shared, or discarded, before."""

    async def fetch(self, channel: str, file_id: str, take: Take) -> Download:
        """Give the content of a file that somebody sent in ``channel`` to ``take``; or return the chat's own transcript
        of a voice clip instead. ChatError has a code: file_not_found (also for a file that ``channel`` does not show),
        untrusted_host, login_page, too_large, refused, unreachable, or the chat's own."""
