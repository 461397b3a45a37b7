"""The environment of a Web API method: the caller, the arguments and the workspace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from codebutler.platform.bounded import BoundedDict
from codebutler.workspace.events import Announcer
from codebutler.workspace.params import Params
from codebutler.workspace.records import Channel, Json, MethodError, StoredFile, User
from codebutler.workspace.socket import Hub
from codebutler.workspace.state import Workspace
from codebutler.workspace.views import Views
from codebutler.workspace.whispers import Whispers

MOST_SENT = 1000


class Status(Struct, frozen=True):
    """The app's status in a thread, until a moment of the monotonic clock."""

    text: str
    until_s: float


@dataclass
class House:
    """The running workspace's parts, shared by every call. ``url`` and ``socket_url`` have no final slash.

    ``sent``: the answers to people's newest posts, by user and client_msg_id. ``scheduled``: messages due
    later, by ID.
    """

    workspace: Workspace
    announcer: Announcer
    hub: Hub
    whispers: Whispers
    url: str
    socket_url: str
    uploads: dict[str, StoredFile] = field(default_factory=dict)
    statuses: dict[tuple[str, str], Status] = field(default_factory=dict)
    sent: BoundedDict[tuple[str, str], Json] = field(default_factory=lambda: BoundedDict(MOST_SENT))
    scheduled: dict[str, Any] = field(default_factory=dict)
    views: Views = field(init=False)

    def __post_init__(self) -> None:
        self.views = Views(self.workspace.clock, self.workspace.next_id)


@dataclass(frozen=True)
class Call:
    """One call. ``user`` is the token's owner; None for the app-level token."""

    house: House
    user: User | None
    params: Params

    @property
    def workspace(self) -> Workspace:
        """The people, channels and files that the call is about."""
        return self.house.workspace

    @property
    def actor(self) -> User:
        """The calling user. Raises MethodError not_allowed_token_type for the app-level token."""
        if self.user is None:
            raise MethodError("not_allowed_token_type")
        return self.user

    def channel(self, name: str = "channel") -> Channel:
        """The call's channel; a conversation hidden from the caller counts as missing."""
        channel = self.workspace.channel(self.params.needed(name, "channel_not_found"))
        if channel.is_hidden and self.actor.id not in channel.members:
            raise MethodError("channel_not_found")
        return channel

    def posting_channel(self) -> Channel:
        """The target of a message: a channel by ID or name, or a person for the direct conversation with
        them."""
        given = self.params.needed("channel", "channel_not_found")
        workspace = self.workspace
        if given in workspace.users:
            channel = workspace.open_im(self.actor.id, given)
            return Call(self.house, self.user, Params({"channel": channel.id})).joined_channel()
        name = given.removeprefix("#")
        for channel in workspace.channels.values():
            if not channel.is_im and channel.name == name and given not in workspace.channels:
                return Call(self.house, self.user, Params({"channel": channel.id})).joined_channel()
        return self.joined_channel()

    def joined_channel(self, name: str = "channel") -> Channel:
        """The same, with the caller as a member: people join automatically, the app gets not_in_channel.

        Nobody can act in an archived one.
        """
        channel = self.channel(name)
        if channel.is_archived:
            raise MethodError("is_archived")
        if self.actor.id not in channel.members:
            if self.actor.id == self.workspace.bot.id:
                raise MethodError("not_in_channel")
            channel.members.add(self.actor.id)
        return channel


Method = Callable[[Call], Json]
