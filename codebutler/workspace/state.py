"""The workspace: its team, its tokens, its people, messages, channels and files, all in memory.

Pure: no I/O, time comes from a Clock. Look-ups and additions cost O(1) or O(log n), whatever the history.
Refusals are MethodError with Slack's own error code.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from typing import Any

from msgspec import Struct, field

from codebutler.domain.clock import Clock
from codebutler.domain.errors import CodeButlerError

Json = dict[str, Any]
CHANNEL_NAME = re.compile(r"[a-z0-9_\-\u00c0-\U0010ffff]{1,80}")
BOT_SCOPES = (
    "app_mentions:read,channels:history,channels:join,channels:manage,channels:read,chat:write,commands,"
    "files:read,files:write,groups:history,groups:read,im:history,im:read,im:write,reactions:read,"
    "reactions:write,users:read,users:read.email"
)


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


def normalize_ts(text: str) -> str:
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


class Tokens(Struct, frozen=True, kw_only=True):
    """The workspace's credentials; made anew for each server unless given."""

    bot: str
    app: str
    user: str


class Workspace:
    """One team with one app, its bot "CodeButler", and the person "you".

    ``files_url`` is where file downloads are served. Everybody is a member of the channels given here;
    later ones are joined. People join a public channel by writing in it, the bot only when asked to.
    """

    def __init__(self, clock: Clock, tokens: Tokens, channels: tuple[str, ...], files_url: str = "") -> None:
        self.clock = clock
        self.team_id = "TWORKSPACE0"
        self.team_name = "Workspace"
        self.app_id = "ACODEBUTLER"
        self.app_token = tokens.app
        self.files_url = files_url
        self.users: dict[str, User] = {}
        self.channels: dict[str, Channel] = {}
        self.files: dict[str, StoredFile] = {}
        self._tokens: dict[str, User] = {}
        self._last_us = 0
        self._serial = 0
        self.bot = self._store_user(
            User(
                id="UCODEBUTLER",
                name="CodeButler",
                token=tokens.bot,
                bot_id="BCODEBUTLER",
                app_id=self.app_id,
            )
        )
        self.person = self.add_user("you", tokens.user)
        for name in channels:
            self.create_channel(name, self.person.id).members.update((self.bot.id, self.person.id))

    def add_user(self, name: str, token: str, *, is_bot: bool = False) -> User:
        """Another person, or another app's bot; joined to every public channel there is."""
        user_id = self._new_id("U", name, self.users)
        foreign = {"bot_id": f"B{user_id[1:]}", "app_id": f"A{user_id[1:]}"} if is_bot else {}
        user = self._store_user(User(id=user_id, name=name, token=token, **foreign))
        for channel in self.channels.values():
            if not channel.is_hidden:
                channel.members.add(user.id)
        return user

    def create_channel(self, name: str, creator: str, *, is_private: bool = False) -> Channel:
        """Raises MethodError invalid_name_specials, name_taken."""
        self.check_name(name)
        channel = Channel(
            id=self._new_id("C", name, self.channels),
            name=name,
            creator=creator,
            created_s=self.now_s(),
            is_private=is_private,
            members={creator},
        )
        self.channels[channel.id] = channel
        return channel

    def check_name(self, name: str) -> None:
        """Whether a channel may be called so. Raises MethodError invalid_name_specials, name_taken."""
        if not CHANNEL_NAME.fullmatch(name):
            raise MethodError("invalid_name_specials" if name else "invalid_name_required")
        if any(channel.name == name for channel in self.channels.values()):
            raise MethodError("name_taken")

    def open_im(self, one: str, other: str) -> Channel:
        """The direct conversation of two users, made on first use."""
        members = {one, other}
        for channel in self.channels.values():
            if channel.is_im and channel.members == members:
                return channel
        channel = Channel(
            id=self.next_id("D"), name="", creator=one, created_s=self.now_s(), is_im=True, members=members
        )
        self.channels[channel.id] = channel
        return channel

    def renew_tokens(self, bot: str, app: str) -> None:
        """Replace the app's tokens; the old ones are invalid from now on."""
        del self._tokens[self.bot.token]
        self.bot.token, self.app_token = bot, app
        self._tokens[bot] = self.bot

    def by_token(self, token: str) -> User | None:
        """The token's user; None for an invalid token and for the app-level token."""
        return self._tokens.get(token)

    def user(self, user_id: str) -> User:
        """Raises MethodError user_not_found."""
        if found := self.users.get(user_id):
            return found
        raise MethodError("user_not_found")

    def channel(self, channel_id: str) -> Channel:
        """Raises MethodError channel_not_found."""
        if found := self.channels.get(channel_id):
            return found
        raise MethodError("channel_not_found")

    def may_read(self, user: User, stored: StoredFile) -> bool:
        """Whether the user may read the file: its owner and the members of the channels it was shared in may."""
        return stored.owner == user.id or any(
            user.id in self.channels[channel_id].members for channel_id in stored.shared_in
        )

    def next_ts(self) -> str:
        """A message timestamp later than every one before."""
        now_us = int(self.clock.now().timestamp() * 1_000_000)
        self._last_us = max(self._last_us + 1, now_us)
        return f"{self._last_us // 1_000_000:010d}.{self._last_us % 1_000_000:06d}"

    def next_id(self, prefix: str) -> str:
        """An ID that was not given before: the prefix, then ten digits."""
        self._serial += 1
        return f"{prefix}{self._serial:010d}"

    def now_s(self) -> int:
        """Whole seconds of the epoch, as Slack's ``created`` and ``updated`` fields have them."""
        return int(self.clock.now().timestamp())

    def _store_user(self, user: User) -> User:
        self.users[user.id] = user
        self._tokens[user.token] = user
        return user

    def _new_id(self, prefix: str, name: str, existing: dict[str, Any]) -> str:
        readable = prefix + re.sub(r"[^A-Z0-9]", "", name.upper())[:12].ljust(10, "0")
        return self.next_id(prefix) if readable in existing else readable
