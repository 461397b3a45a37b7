"""The parent's interface to a chat service: ``ChatPort`` is what every chat has, ``Capabilities`` are
optional.

One contract suite tests every implementation. The code that uses a capability decides what to do without it,
in one place: delivery (``History``, ``LookUp``, ``Streams``, ``Ephemeral``), the status board, App Home, the
form for a reason. ``docs/explanation/chats.md`` documents it for users.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from random import Random
from types import MappingProxyType
from typing import Any, Literal, Protocol, TypeVar

from msgspec import Struct, field
from msgspec.structs import fields

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
from codebutler.domain.refs import NO_PERSON, ConversationRef, MessageRef, PersonRef
from codebutler.platform.tasks import full_jitter_s

IDENTIFY_BASE_S = 1.0
IDENTIFY_CAP_S = 60.0
ATTEMPTS = 3
RETRY_S = 2.0

T = TypeVar("T")
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
"""Kinds of calls with limits. A post for one person alone is a whisper; replacing a message is an update;
"publish" is a home page."""
ABOUT_A_PLACE = frozenset(
    {"channel_not_found", "invalid_thread_ts", "is_archived", "not_in_channel", "thread_not_found"}
)
"""Codes of refusals that concern one channel or thread, not our permissions in the chat."""
Take = Callable[[bytes], Awaitable[None]]
"""Takes a file, piece by piece."""
CLOSED = MappingProxyType(
    {
        "is_archived": "its channel is archived",
        "not_in_channel": "the app is not in its channel: add it there",
        "channel_not_found": "its channel is gone: run `codebutler add-repo` again",
    }
)


class Identity(Struct, frozen=True, kw_only=True):
    """Our identity in the workspace (``auth.test``)."""

    user_id: PersonRef
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
    """Ask who we are until the chat answers; ``troubled`` gets each failure. Raises ChatAuthError."""
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
    """The chat's record of a file; retries up to ATTEMPTS times. Raises ChatError."""
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
    """An earlier message. ``order`` sorts as text among those of its channel. ``user``: its author, or which
    bot; ``name``: the author's name in the history, "" if it has none. ``is_ours``: an operation of ours made
    it, and ``parts`` are all of it, as far as the chat still shows them. ``raw``: the chat's own message,
    which only its adapter reads."""

    ref: MessageRef
    order: str
    user: PersonRef = NO_PERSON
    name: str = ""
    text: str = ""
    is_person: bool = True
    is_ours: bool = False
    parts: tuple[Section, ...] = ()
    raw: Mapping[str, Any] = MappingProxyType({})


class HistoryPage(Struct, frozen=True, kw_only=True):
    """Messages in the chat's order, oldest or newest first, and where to continue."""

    messages: tuple[HistoryMessage, ...] = ()
    next_cursor: str = ""


class Own(Struct, frozen=True, kw_only=True):
    """A message of ours. ``op_id``: the operation that made it; "" if it carries none: it is a file, or was
    streamed."""

    ref: MessageRef
    op_id: str = ""
    is_file: bool = False


class OwnPage(Struct, frozen=True, kw_only=True):
    """Messages of ours, and where to continue."""

    messages: tuple[Own, ...] = ()
    next_cursor: str = ""


class Download(Struct, frozen=True, kw_only=True):
    """The result of a download: the file's record, and a voice clip's transcript (then it has no content)."""

    file: File
    transcript: str = ""


class Limit(Struct, frozen=True):
    """A rate limit: ``per_minute`` calls on average, ``burst`` of them at once."""

    per_minute: float
    burst: int


class Limits(Struct, frozen=True):
    """How often a chat allows calls, over all channels and in each. A kind that is in neither has no limit. If private
    chats allow more, ``private`` says how much, and ``is_private`` which channels they are.

    ``closed``: codes of refusals that mean that a channel is closed to us, each with what to do: its
    operations wait. An adapter uses these names, whatever its platform calls them. ``kept``: how long it
    keeps undelivered events; None = for good. ``presses_kept``: the same for button presses; None also if the
    person who presses learns that nobody took it.
    """

    workspace: Mapping[Call, Limit]
    channel: Mapping[Call, Limit]
    private: Mapping[Call, Limit] = field(default_factory=dict)
    is_private: Callable[[ConversationRef], bool] | None = None
    closed: Mapping[str, str] = field(default_factory=lambda: CLOSED)
    kept: timedelta | None = None
    presses_kept: timedelta | None = None


class ChannelMoved(Struct, frozen=True):
    """What happened to a channel: ``archived``, ``left`` (we were removed), ``back``."""

    channel: ConversationRef
    how: str


class History(Protocol):
    """Earlier messages, a page at a time."""

    async def history(
        self,
        channel: ConversationRef,
        *,
        thread: MessageRef | None = None,
        since_s: float = 0.0,
        cursor: str = "",
    ) -> HistoryPage:
        """A page of the messages after ``since_s`` (Unix seconds): of a thread, oldest first, or of the
        channel, newest first."""


class LookUp(Protocol):
    """Finds out which of our operations took effect."""

    async def own(
        self,
        channel: ConversationRef,
        *,
        thread: MessageRef | None = None,
        since_s: float = 0.0,
        cursor: str = "",
    ) -> OwnPage:
        """Our messages on the same page of ``History``. Nobody else's can pass for ours."""

    async def shared_in(self, file_id: str) -> frozenset[str] | None:
        """The channels that show a file; None if there is no such file."""


class Streams(Protocol):
    """Messages that grow while they are written, in direct conversations."""

    async def start_stream(self, channel: ConversationRef, thread: MessageRef, text: str) -> MessageRef:
        """Start a growing message; returns its ref. It carries no operation ID."""

    async def append_stream(self, channel: ConversationRef, ref: MessageRef, text: str) -> None:
        """Append text."""

    async def stop_stream(self, channel: ConversationRef, ref: MessageRef) -> None:
        """From now on it is an ordinary message."""

    async def replace(self, channel: ConversationRef, ref: MessageRef, post: Post, op_id: str) -> None:
        """Turn our message ``ref``, of another operation or none, into ``post``, as if that had made it."""

    async def delete(self, channel: ConversationRef, ref: MessageRef) -> None:
        """Delete one of our messages."""


class Ephemeral(Protocol):
    """Messages that only one person sees."""

    async def whisper(self, channel: ConversationRef, post: Post) -> MessageRef:
        """Show ``post`` to ``post.only_for``, and to nobody else. The result cannot be edited or found again."""


class StatusLine(Protocol):
    """A status under a thread, which is not a message."""

    async def show_status(self, channel: ConversationRef, thread: MessageRef, text: str) -> None:
        """Show the current activity in a thread; "" clears it. Our next message there clears it, too."""


class Forms(Protocol):
    """Forms that open over the chat."""

    async def open_form(self, press: str, form: ReasonForm) -> None:
        """Show it to the person who pressed a button; ``press`` came with that, works once, and only for a
        moment."""


class HomePage(Protocol):
    """A page of ours for each person."""

    async def publish_home(self, user: PersonRef, parts: Sequence[Section]) -> None:
        """Show ``parts`` to one person, replacing the earlier ones."""


class Capabilities(Struct, frozen=True, kw_only=True):
    """The optional capabilities of a chat; None = it lacks this one."""

    history: History | None = None
    look_up: LookUp | None = None
    streams: Streams | None = None
    ephemeral: Ephemeral | None = None
    status_line: StatusLine | None = None
    forms: Forms | None = None
    home: HomePage | None = None


CAPABILITIES = frozenset(each.name for each in fields(Capabilities))


class ChatPort(Protocol):
    """What every chat has; events come by the adapter's own connection.

    Every call, of the capabilities too, raises ChatRateLimitedError, ChatAuthError, ChatUnreachableError,
    ChatOutcomeUnknownError or ChatError (refused for good). Delivery understands some codes of the last, in
    every chat: a closed channel (``Limits.closed``), a message that is too large (``delivery.outgoing``),
    message_not_found and file_not_found.
    """

    @property
    def limits(self) -> Limits:
        """How often it allows calls."""

    @property
    def capabilities(self) -> Capabilities:
        """Its capabilities; they never change."""

    async def identity(self) -> Identity:
        """The identity behind the token."""

    async def post(self, channel: ConversationRef, post: Post, op_id: str) -> MessageRef:
        """Returns the new message's ref, which sorts among the ``order`` of its channel. ``LookUp`` finds it
        by ``op_id``. Never called with ``only_for``."""

    async def update(self, channel: ConversationRef, update: Update, op_id: str) -> None:
        """Replace the content of one of our messages; repeating it changes nothing."""

    async def react(self, channel: ConversationRef, react: React) -> None:
        """Success if it is already there (or already gone)."""

    async def upload(self, upload: Upload) -> str:
        """Upload a file; returns its ID. Nobody sees it until it is shared. If a chat uploads and shows a
        file in one call, ``share`` makes that call, and this returns any name for it but ""."""

    async def share(self, channel: ConversationRef, upload: Upload, file_id: str) -> None:
        """Show an uploaded file. Works once per file: file_not_found if it was shared, or discarded, before."""

    async def fetch(self, channel: ConversationRef, file_id: str, take: Take) -> Download:
        """Pass the content of a file that somebody sent in ``channel`` to ``take``; or return the chat's own
        transcript of a voice clip instead. ChatError has a code: file_not_found (also for a file that
        ``channel`` does not show), untrusted_host, login_page, too_large, refused, unreachable, or the chat's
        own."""


class EnteredChat(ChatPort, Protocol):
    """A chat as an async context manager: enter it before use."""

    async def __aenter__(self) -> object: ...

    async def __aexit__(self, *exc: object) -> bool | None: ...
