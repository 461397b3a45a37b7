"""Turns changes in the workspace into events for the app (Socket Mode) and for the page: its live feed is a bounded
ring of events, sent as Server-Sent Events. Ephemeral messages are such events alone: shown to one person only, and gone
when the page that showed them is closed."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator

import msgspec
from msgspec import Struct

from codebutler.platform.tasks import BoundedDict
from codebutler.workspace import render
from codebutler.workspace.connections import Signal
from codebutler.workspace.manifest import Subscriptions
from codebutler.workspace.socket import Hub
from codebutler.workspace.state import Channel, Json, Message, User, Workspace
from codebutler.workspace.views import View, Views

# Enough for the buttons on them to work while somebody looks at them.
MAX_EPHEMERALS = 500
RING_EVENTS = 2000
KEEP_ALIVE_S = 15.0


class Announcer:
    """Sends each change to the page and, if the bot is a member, to the app."""

    def __init__(
        self, workspace: Workspace, hub: Hub, stream: Stream, subscriptions: Subscriptions | None = None
    ) -> None:
        self._subscriptions = subscriptions or Subscriptions()
        self._workspace = workspace
        self._hub = hub
        self._stream = stream

    def message_posted(self, channel: Channel, message: Message) -> None:
        """A new message or reply; for a mention of the bot the app gets a second event, app_mention."""
        rendered = render.message(self._workspace, channel, message)
        event = {**rendered, "channel": channel.id, "event_ts": message.ts, "channel_type": channel.kind}
        self._publish(channel, event)
        if self._mentions_bot(channel, message):
            mention = {**event, "type": "app_mention"}
            mention.pop("channel_type")
            self._deliver(channel, mention)

    def message_changed(self, channel: Channel, message: Message, previous: Json) -> None:
        """A message was edited; ``previous`` is its earlier JSON in Slack's form."""
        rendered = render.message(self._workspace, channel, message)
        self._publish_hidden(channel, "message_changed", message=rendered, previous_message=previous)

    def message_deleted(self, channel: Channel, ts: str, previous: Json) -> None:
        """A message was deleted; ``previous`` is its JSON in Slack's form."""
        self._publish_hidden(channel, "message_deleted", deleted_ts=ts, previous_message=previous)

    def reaction_changed(
        self, channel: Channel, message: Message, user: User, reaction: str, *, added: bool
    ) -> None:
        """Somebody's reaction, by its name without colons, was added (``added``) or removed."""
        self.channel_event(
            channel,
            {
                "type": "reaction_added" if added else "reaction_removed",
                "user": user.id,
                "reaction": reaction,
                "item": {"type": "message", "channel": channel.id, "ts": message.ts},
                "item_user": message.user,
            },
        )

    def read_marked(self, channel: Channel, user: User, ts: str) -> None:
        """How far somebody has read; for their own pages only."""
        event: Json = {
            "type": "im_marked" if channel.is_im else "channel_marked",
            "channel": channel.id,
            "ts": ts,
            **render.unread(channel, user),
        }
        self._stream.publish(event, frozenset({user.id}))

    def channel_created(self, channel: Channel) -> None:
        """A new channel: the app gets an event for a public one though it is no member, never for a private
        one."""
        event: Json = {
            "type": "channel_created",
            "channel": {
                "id": channel.id,
                "name": channel.name,
                "created": channel.created_s,
                "creator": channel.creator,
                "topic": channel.topic,
            },
            "event_ts": self._workspace.next_ts(),
        }
        self._stream.publish(event, _audience(channel))
        if not channel.is_hidden:
            self._send_to_app(channel, event)

    def channel_event(self, channel: Channel, event: Json, *, to_nonmember: bool = False) -> None:
        """A change of a channel, or in it. ``to_nonmember``: the app gets it though it is no member."""
        stamped = {**event, "event_ts": self._workspace.next_ts()}
        self._stream.publish(stamped, _audience(channel))
        if to_nonmember or self._workspace.bot.id in channel.members:
            self._send_to_app(channel, stamped)

    def home_opened(self, channel: Channel, user: str, tab: str, view: View | None) -> None:
        """A person opens the app's home or its messages; ``channel`` is their direct conversation."""
        event: Json = {
            "type": "app_home_opened",
            "user": user,
            "channel": channel.id,
            "tab": tab,
            "event_ts": self._workspace.next_ts(),
        }
        if view is not None:
            event["view"] = render.view(self._workspace, view)
        self._send_to_app(channel, event)

    def views_changed(self, user: str, views: Views) -> None:
        """Tell a person's page what it shows now."""
        shown = render.views(self._workspace, views, user)
        self._stream.publish({"type": "views", **shown}, frozenset({user}))

    def team_joined(self, user: User) -> None:
        """Somebody new in the workspace."""
        self._stream.publish({"type": "team_join", "user": render.person(user)})
        event = {"type": "team_join", "user": render.user(self._workspace, user)}
        self._send_to_app(None, {**event, "event_ts": self._workspace.next_ts()})

    def file_shared(self, channel: Channel, user: User, file_id: str) -> None:
        """A file is in a channel now."""
        event: Json = {
            "type": "file_shared",
            "channel_id": channel.id,
            "file_id": file_id,
            "user_id": user.id,
        }
        self._deliver(channel, {**event, "file": {"id": file_id}, "event_ts": self._workspace.next_ts()})

    def file_deleted(self, file_id: str) -> None:
        """A file was deleted."""
        self._send_to_app(
            None, {"type": "file_deleted", "file_id": file_id, "event_ts": self._workspace.next_ts()}
        )

    def status_changed(self, channel: Channel, thread_ts: str, status: str, lasts_s: float) -> None:
        """The app's status in a thread; "" clears it."""
        self._stream.publish(
            {
                "type": "assistant_status",
                "channel": channel.id,
                "thread_ts": thread_ts,
                "status": status,
                "lasts_s": lasts_s,
            },
            _audience(channel),
        )

    def _publish(self, channel: Channel, event: Json) -> None:
        self._stream.publish(event, _audience(channel))
        self._deliver(channel, event)

    def _deliver(self, channel: Channel, event: Json) -> None:
        if self._workspace.bot.id in channel.members:
            self._send_to_app(channel, event)

    def _send_to_app(self, channel: Channel | None, event: Json) -> None:
        if self._subscriptions.includes(event, channel.kind if channel else ""):
            self._hub.deliver("events_api", self._event_callback(event, channel.id if channel else ""))

    def _mentions_bot(self, channel: Channel, message: Message) -> bool:
        """Slack: no app_mention for direct conversations, the app's own posts and join notices."""
        if channel.is_im or message.user == self._workspace.bot.id or message.subtype == "channel_join":
            return False
        return f"<@{self._workspace.bot.id}>" in message.text

    def _publish_hidden(self, channel: Channel, subtype: str, **fields: object) -> None:
        ts = self._workspace.next_ts()
        event: Json = {"type": "message", "subtype": subtype, "hidden": True, "channel": channel.id, "ts": ts}
        self._publish(channel, {**event, "event_ts": ts, "channel_type": channel.kind, **fields})

    def _event_callback(self, event: Json, channel_id: str) -> Json:
        workspace = self._workspace
        return {
            "token": "verification-token",
            "team_id": workspace.team_id,
            "api_app_id": workspace.app_id,
            "type": "event_callback",
            "event_id": workspace.next_id("Ev"),
            "event_time": workspace.now_s(),
            "authorizations": [
                {
                    "enterprise_id": None,
                    "team_id": workspace.team_id,
                    "user_id": workspace.bot.id,
                    "is_bot": True,
                    "is_enterprise_install": False,
                }
            ],
            "is_ext_shared_channel": False,
            "event_context": f"1-{event['type']}-{workspace.team_id}-{channel_id}",
            "event": event,
        }


def _audience(channel: Channel) -> frozenset[str] | None:
    return frozenset(channel.members) if channel.is_hidden else None


class EphemeralMessage(Struct, kw_only=True):
    """One ephemeral message of the app to ``user``."""

    ts: str
    channel: str
    user: str
    text: str
    blocks: list[Json]
    thread_ts: str | None = None


class EphemeralMessages:
    """Shows them, and finds them again while their buttons may be pressed."""

    def __init__(self, workspace: Workspace, stream: Stream) -> None:
        self._workspace = workspace
        self._stream = stream
        self._messages: BoundedDict[str, EphemeralMessage] = BoundedDict(MAX_EPHEMERALS)

    def post(
        self, channel: Channel, user: str, text: str, blocks: list[Json], thread_ts: str | None = None
    ) -> str:
        """Returns its ts."""
        message = EphemeralMessage(
            ts=self._workspace.next_ts(),
            channel=channel.id,
            user=user,
            text=text,
            blocks=blocks,
            thread_ts=thread_ts,
        )
        self._messages[message.ts] = message
        self._publish(message, {**self._render(message), "channel": channel.id})
        return message.ts

    def find(self, user: str, ts: str) -> EphemeralMessage | None:
        """The person's own only."""
        message = self._messages.get(ts)
        return message if message is not None and message.user == user else None

    def replace(self, message: EphemeralMessage, text: str, blocks: list[Json]) -> None:
        """Other content in the same place."""
        message.text, message.blocks = text, blocks
        self._publish(
            message, self._hidden_event(message.channel, "message_changed", message=self._render(message))
        )

    def delete(self, message: EphemeralMessage) -> None:
        """Nobody sees it any more, and its buttons cannot be pressed."""
        del self._messages[message.ts]
        self._publish(message, self._hidden_event(message.channel, "message_deleted", deleted_ts=message.ts))

    def _render(self, message: EphemeralMessage) -> Json:
        rendered: Json = {
            "type": "message",
            "user": self._workspace.bot.id,
            "bot_id": self._workspace.bot.bot_id,
            "text": message.text,
            "ts": message.ts,
            "is_ephemeral": True,
        }
        if message.blocks:
            rendered["blocks"] = message.blocks
        if message.thread_ts:
            rendered["thread_ts"] = message.thread_ts
        return rendered

    def _hidden_event(self, channel_id: str, subtype: str, **fields: object) -> Json:
        ts = self._workspace.next_ts()
        event: Json = {"type": "message", "subtype": subtype, "hidden": True, "channel": channel_id, "ts": ts}
        return {**event, **fields}

    def _publish(self, message: EphemeralMessage, event: Json) -> None:
        self._stream.publish(event, frozenset({message.user}))


class StreamEntry(Struct, frozen=True):
    """An event with its number; ``audience`` None means everybody."""

    number: int
    event: Json
    audience: frozenset[str] | None


class Stream:
    """The ring and its subscribers."""

    def __init__(self, signal: Signal) -> None:
        self._signal = signal
        self._ring: deque[StreamEntry] = deque(maxlen=RING_EVENTS)
        self._last = 0
        self._closed = False

    def publish(self, event: Json, audience: frozenset[str] | None = None) -> None:
        """Publish an event to the users of ``audience`` (None: everybody), including those who connect shortly
        after."""
        self._last += 1
        self._ring.append(StreamEntry(self._last, event, audience))
        self._signal.notify()

    def close(self) -> None:
        """End all streams."""
        self._closed = True
        self._signal.notify()

    async def follow(self, user: str, after: int | None) -> AsyncIterator[str]:
        """SSE frames from now on, or those after number ``after``; "reset" if they are no longer in the ring."""
        at = self._last if after is None else after
        yield ": hello\n\n"
        while not self._closed:
            if at > self._last or at < self._last - len(self._ring):
                at = self._last
                yield f"event: reset\nid: {at}\ndata: {{}}\n\n"
            for entry in self._after(at):
                at = entry.number
                if entry.audience is None or user in entry.audience:
                    yield f"id: {at}\ndata: {msgspec.json.encode(entry.event).decode()}\n\n"
            if not await self._wait_for_more(at):
                yield ": still here\n\n"

    def _after(self, number: int) -> list[StreamEntry]:
        count = min(len(self._ring), max(0, self._last - number))
        first = len(self._ring) - count
        return [self._ring[index] for index in range(first, len(self._ring))]

    async def _wait_for_more(self, number: int) -> bool:
        try:
            return await self._signal.until(lambda: self._closed or self._last > number, KEEP_ALIVE_S)
        except TimeoutError:
            return False
