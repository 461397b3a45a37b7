"""The app's responses to a click or a command: in the ack, or through its response_url."""

from __future__ import annotations

import secrets

from msgspec import Struct

from codebutler.workspace import blocks as block_kit
from codebutler.workspace import render
from codebutler.workspace.call import WorkspaceContext
from codebutler.workspace.state import Channel, Json, Message, MethodError, User

MAX_USES = 5
LIFETIME_S = 30 * 60.0


class ResponseTarget(Struct, kw_only=True):
    """Where a response_url posts: to ``user`` in ``channel``, about ``message_ts`` after a click."""

    channel: str
    user: str
    message_ts: str = ""
    thread_ts: str | None = None
    uses_left: int = MAX_USES
    until_s: float


class Responses:
    """Stores the issued response_urls: each allows five uses within half an hour, as in Slack."""

    def __init__(self, context: WorkspaceContext) -> None:
        self._context = context
        self._workspace = context.workspace
        self._targets: dict[str, ResponseTarget] = {}

    def url(self, channel: Channel, user: User, message_ts: str = "", thread_ts: str | None = None) -> str:
        """A new URL that posts to ``user``, about a message if one is named."""
        now_s = self._workspace.clock.monotonic()
        self._forget_expired(now_s)
        key = secrets.token_urlsafe(24)
        self._targets[key] = ResponseTarget(
            channel=channel.id,
            user=user.id,
            message_ts=message_ts,
            thread_ts=thread_ts,
            until_s=now_s + LIFETIME_S,
        )
        return f"{self._context.url}/response/{key}"

    def respond(self, key: str, body: Json) -> None:
        """A post to a response_url. Raises MethodError expired_url, used_url, message_not_found."""
        target = self._targets.get(key)
        if target is None or self._workspace.clock.monotonic() > target.until_s:
            raise MethodError("expired_url")
        if target.uses_left == 0:
            raise MethodError("used_url")
        target.uses_left -= 1
        channel = self._workspace.channel(target.channel)
        if target.message_ts and (body.get("replace_original") or body.get("delete_original")):
            self._replace(channel, target, body)
            return
        self.post(channel, target.user, target.thread_ts, body)

    def post(self, channel: Channel, user: str, thread_ts: str | None, body: Json) -> None:
        """Visible only to the user unless it is ``in_channel``."""
        text, blocks = _content(body)
        if body.get("response_type") != "in_channel":
            self._context.ephemerals.post(channel, user, text, blocks, thread_ts)
            return
        bot = self._workspace.bot
        message = Message(
            ts=self._workspace.next_ts(),
            user=bot.id,
            text=text,
            by_app=True,
            blocks=blocks,
            thread_ts=thread_ts,
        )
        channel.add(message)
        self._context.announcer.message_posted(channel, message)

    def _replace(self, channel: Channel, target: ResponseTarget, body: Json) -> None:
        ephemerals = self._context.ephemerals
        ephemeral = ephemerals.find(target.user, target.message_ts)
        if body.get("delete_original"):
            if ephemeral is not None:
                ephemerals.delete(ephemeral)
                return
            message = channel.message(target.message_ts)
            previous = render.message(self._workspace, channel, message)
            channel.remove(message)
            self._context.announcer.message_deleted(channel, message.ts, previous)
            return
        text, blocks = _content(body)
        if ephemeral is not None:
            ephemerals.replace(ephemeral, text, blocks)
            return
        message = channel.message(target.message_ts)
        previous = render.message(self._workspace, channel, message)
        message.text, message.blocks = text, blocks
        self._context.announcer.message_changed(channel, message, previous)

    def _forget_expired(self, now_s: float) -> None:
        """Oldest first: all have the same lifetime."""
        while self._targets:
            oldest = next(iter(self._targets))
            if now_s <= self._targets[oldest].until_s:
                return
            del self._targets[oldest]


def _content(body: Json) -> tuple[str, list[Json]]:
    text, blocks = str(body.get("text") or ""), body.get("blocks") or []
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        raise MethodError("invalid_blocks")
    if not text and not blocks:
        raise MethodError("no_text")
    return text, block_kit.checked_blocks(blocks)
