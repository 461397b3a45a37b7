"""The workspace as a whole: its team, its tokens, its people, channels and files, all in memory.

Pure: no I/O, time comes from a Clock. Look-ups and additions cost O(1) or O(log n), whatever the history.
Refusals are MethodError with Slack's own error code.
"""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct

from codebutler.domain.clock import Clock
from codebutler.workspace.records import Channel, MethodError, StoredFile, User

CHANNEL_NAME = re.compile(r"[a-z0-9_\-\u00c0-\U0010ffff]{1,80}")
BOT_SCOPES = (
    "app_mentions:read,channels:history,channels:join,channels:manage,channels:read,chat:write,commands,"
    "files:read,files:write,groups:history,groups:read,im:history,im:read,im:write,reactions:read,"
    "reactions:write,users:read,users:read.email"
)


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
        self.bot = self._put(
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
        user = self._put(User(id=user_id, name=name, token=token, **foreign))
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
            id=self.next_id("D"),
            name="",
            creator=one,
            created_s=self.now_s(),
            is_im=True,
            members=members,
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

    def _put(self, user: User) -> User:
        self.users[user.id] = user
        self._tokens[user.token] = user
        return user

    def _new_id(self, prefix: str, name: str, taken: dict[str, Any]) -> str:
        readable = prefix + re.sub(r"[^A-Z0-9]", "", name.upper())[:12].ljust(10, "0")
        return self.next_id(prefix) if readable in taken else readable
