"""The Web API as a ChatPort, with one method per Slack method, and Slack's rate limits. They apply per method,
workspace and app; chat.postMessage also has about one call a second per channel, with short bursts. Tier 2 = 20, tier
3 = 50, tier 4 = 100 calls a minute."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from types import MappingProxyType
from typing import Any, Self

import aiohttp
from yarl import URL

from codebutler.chat.layout import ReasonForm, Section
from codebutler.chat.payload import mappings, text_in
from codebutler.chat.people import Person
from codebutler.chat.port import Capabilities, Download, HistoryPage, Identity, Limit, Limits, OwnPage, Take
from codebutler.chat.slack.answers import (
    ChannelInfo,
    channel_of,
    cursor_in,
    identity_in,
    operation_metadata,
    own_in,
    person_of,
    shares_in,
    ts_at,
)
from codebutler.chat.slack.download import Downloads
from codebutler.chat.slack.forms import reason_view
from codebutler.chat.slack.history import page_in
from codebutler.chat.slack.http import ApiCall, ChatClock, SlackHttp, check_app_token
from codebutler.chat.slack.mrkdwn import neutralise
from codebutler.chat.slack.render import REACTIONS, blocks_of, rendered
from codebutler.domain.clock import Clock, SystemClock
from codebutler.domain.errors import ChatError
from codebutler.domain.message import Message
from codebutler.domain.model import Post, React, Update, Upload
from codebutler.domain.refs import NO_PERSON, ConversationRef, MessageRef, PersonRef
from codebutler.platform.kill_points import reached
from codebutler.text.redact import every_text

DEFAULT_BASE_URL = "https://slack.com/api/"
PAGE_SIZE = 200
# The maximum of conversations.history: each page costs one of 50 calls a minute.
HISTORY_PAGE_SIZE = 999
MAX_PAGES = 50
_TIER_2 = Limit(per_minute=18, burst=5)
_TIER_3 = Limit(per_minute=50, burst=10)
_TIER_4 = Limit(per_minute=100, burst=10)
SLACK_LIMITS = Limits(
    # Slightly below Slack's limits: calls sent a second apart may arrive closer together.
    channel=MappingProxyType({"post": Limit(per_minute=58, burst=5)}),
    workspace=MappingProxyType(
        {
            "post": Limit(per_minute=300, burst=50),
            "whisper": _TIER_4,
            "update": _TIER_3,
            "delete": _TIER_3,
            "start_stream": _TIER_2,
            "append_stream": Limit(per_minute=95, burst=10),
            "stop_stream": _TIER_2,
            "react": Limit(per_minute=50, burst=20),
            "unreact": Limit(per_minute=20, burst=10),
            "share": _TIER_4,
            "publish": _TIER_4,
            # Every channel is read at startup.
            "history": Limit(per_minute=50, burst=20),
            "replies": Limit(per_minute=50, burst=20),
        }
    ),
    closed=MappingProxyType(
        {
            "is_archived": "its channel is archived: unarchive it in Slack",
            "not_in_channel": "the app is not in its channel: write `/invite @CodeButler` there",
            "channel_not_found": (
                "its channel is gone, or private without the app: invite the app, or run `codebutler add-repo` again"
            ),
        }
    ),
)


class SlackApi:
    """The workspace of one bot token. An async context manager: leaving it closes its connections. ``clock`` gives
    Slack's time of day; ``redact`` sees rendered text. Raises ChatAuthError at once for a token of the wrong kind."""

    def __init__(
        self,
        token: str,
        base_url: str = DEFAULT_BASE_URL,
        timeout_s: float = 30.0,
        clock: Clock | None = None,
        redact: Callable[[str], str] = str,
    ) -> None:
        self._redact = redact
        self.limits = SLACK_LIMITS
        self.capabilities = Capabilities(
            history=self,
            look_up=self,
            streams=self,
            ephemeral=self,
            status_line=self,
            forms=self,
            home=self,
        )
        self.clock = ChatClock(clock or SystemClock())
        self._http = SlackHttp(token, base_url, timeout_s, self.clock.received)
        self._downloads = Downloads(self, self.clock)
        self._me: Identity | None = None

    async def __aenter__(self) -> Self:
        await self._http.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.__aexit__()

    def use_token(self, token: str) -> None:
        """Switch to another bot token. Raises ChatAuthError at once for one of the wrong kind."""
        self._http.use_token(token)
        self._me = None

    async def identity(self) -> Identity:
        """Slack: auth.test."""
        self._me = identity_in(await self._http.call(ApiCall("auth.test")))
        return self._me

    async def post(self, channel: ConversationRef, post: Post, op_id: str) -> MessageRef:
        """Slack: chat.postMessage, without unfurling links."""
        text, blocks = rendered(post.message, post.mention, self._redact)
        answer = await self._http.call(
            ApiCall("chat.postMessage", write=True),
            channel=channel,
            text=text,
            thread_ts=post.thread,
            blocks=blocks or None,
            metadata=operation_metadata(op_id),
            unfurl_links=False,
            unfurl_media=False,
        )
        return MessageRef(text_in(answer, "ts"))

    async def whisper(self, channel: ConversationRef, post: Post) -> MessageRef:
        """Slack: chat.postEphemeral."""
        text, blocks = rendered(post.message, post.mention, self._redact)
        answer = await self._http.call(
            ApiCall("chat.postEphemeral", write=True),
            channel=channel,
            user=post.only_for,
            text=text,
            thread_ts=post.thread,
            blocks=blocks or None,
        )
        return MessageRef(text_in(answer, "message_ts"))

    async def update(self, channel: ConversationRef, update: Update, op_id: str) -> None:  # noqa: ARG002 - see below
        """Slack: chat.update. Sends no metadata, which keeps that of the post: the post must stay findable, and an
        update may be repeated safely."""
        await self._edit(channel, update.target, update.message)

    async def _edit(
        self,
        channel: ConversationRef,
        ts: str,
        message: Message,
        mention: PersonRef = NO_PERSON,
        op_id: str = "",
    ) -> None:
        text, blocks = rendered(message, mention, self._redact)
        await self._http.call(
            ApiCall("chat.update", write=True),
            channel=channel,
            ts=ts,
            text=text,
            blocks=blocks or None,
            metadata=operation_metadata(op_id) if op_id else None,
        )

    async def react(self, channel: ConversationRef, react: React) -> None:
        """Slack: reactions.add, reactions.remove."""
        method, done = ("remove", "no_reaction") if react.remove else ("add", "already_reacted")
        try:
            await self._http.call(
                ApiCall(f"reactions.{method}", write=True),
                channel=channel,
                timestamp=react.target,
                name=REACTIONS[react.mark],
            )
        except ChatError as error:
            if error.code != done:
                raise

    async def upload(self, upload: Upload) -> str:
        """Slack: files.getUploadURLExternal and the upload. Nothing is visible yet, so a failure is always safe to
        retry."""
        begin = ApiCall("files.getUploadURLExternal")
        ticket = await self._http.call(begin, filename=upload.filename, length=len(upload.content))
        reached("upload.begun")
        await self._http.put(begin, text_in(ticket, "upload_url"), upload.content)
        return text_in(ticket, "file_id")

    async def share(self, channel: ConversationRef, upload: Upload, file_id: str) -> None:
        """Slack: files.completeUploadExternal, which "can only be called once"."""
        await self._http.call(
            ApiCall("files.completeUploadExternal", write=True),
            files=[{"id": file_id, "title": neutralise(upload.title or upload.filename)}],
            channel_id=channel,
            thread_ts=upload.thread,
            initial_comment=neutralise(upload.comment) or None,
        )

    async def shared_in(self, file_id: str) -> frozenset[str] | None:
        """Slack: files.info."""
        try:
            return shares_in(await self.file_info(file_id))
        except ChatError as error:
            if error.code == "file_not_found":
                return None
            if error.code == "file_deleted":
                return frozenset()
            raise

    async def show_status(self, channel: ConversationRef, thread_ts: str, text: str) -> None:
        """Slack: assistant.threads.setStatus (needs chat:write only); dropped after two minutes."""
        call = ApiCall("assistant.threads.setStatus")
        await self._http.call(call, channel_id=channel, thread_ts=thread_ts, status=neutralise(text))

    async def start_stream(self, channel: ConversationRef, thread_ts: str, text: str) -> MessageRef:
        """Slack: chat.startStream (chat:write). A stream ends automatically after about five minutes."""
        call = ApiCall("chat.startStream", write=True)
        answer = await self._http.call(
            call, channel=channel, thread_ts=thread_ts, markdown_text=neutralise(text)
        )
        return MessageRef(text_in(answer, "ts"))

    async def append_stream(self, channel: ConversationRef, ts: str, text: str) -> None:
        """Slack: chat.appendStream."""
        call = ApiCall("chat.appendStream", write=True)
        await self._http.call(call, channel=channel, ts=ts, markdown_text=neutralise(text))

    async def stop_stream(self, channel: ConversationRef, ts: str) -> None:
        """Slack: chat.stopStream."""
        await self._http.call(ApiCall("chat.stopStream", write=True), channel=channel, ts=ts)

    async def replace(self, channel: ConversationRef, ts: str, post: Post, op_id: str) -> None:
        """Slack: chat.update, with a post's metadata."""
        await self._edit(channel, ts, post.message, post.mention, op_id)

    async def delete(self, channel: ConversationRef, ts: str) -> None:
        """Slack: chat.delete."""
        await self._http.call(ApiCall("chat.delete", write=True), channel=channel, ts=ts)

    async def publish_home(self, user: PersonRef, parts: Sequence[Section]) -> None:
        """Slack: views.publish."""
        blocks = every_text(blocks_of(parts), self._redact)
        await self._http.call(ApiCall("views.publish"), user_id=user, view={"type": "home", "blocks": blocks})

    async def open_form(self, trigger_id: str, form: ReasonForm) -> None:
        """Slack: views.open."""
        await self._http.call(ApiCall("views.open"), trigger_id=trigger_id, view=reason_view(form))

    async def history(
        self,
        channel: ConversationRef,
        *,
        thread: MessageRef | None = None,
        since_s: float = 0.0,
        cursor: str = "",
    ) -> HistoryPage:
        """Slack: conversations.replies (oldest first) or conversations.history (newest first)."""
        answer = await self._http.call(
            ApiCall("conversations.history" if thread is None else "conversations.replies"),
            channel=channel,
            ts=thread,
            oldest=ts_at(since_s) if since_s else None,
            cursor=cursor or None,
            limit=HISTORY_PAGE_SIZE,
            include_all_metadata=True,
        )
        return page_in(answer)

    async def own(
        self,
        channel: ConversationRef,
        *,
        thread: MessageRef | None = None,
        since_s: float = 0.0,
        cursor: str = "",
    ) -> OwnPage:
        """Slack: the same. Anybody with a token can write metadata; only our own messages are accepted."""
        me = self._me or await self.identity()
        return own_in(await self.history(channel, thread=thread, since_s=since_s, cursor=cursor), me.bot_id)

    async def fetch(self, channel: ConversationRef, file_id: str, take: Take) -> Download:
        """Slack: files.info, then the file's own URL."""
        return await self._downloads.fetch(channel, file_id, take)

    async def open_connection(self, app_token: str) -> str:
        """A fresh Socket Mode URL; a secret, valid once. Slack: apps.connections.open."""
        token = check_app_token(app_token)
        answer = await self._http.call(ApiCall("apps.connections.open", key="slack.appToken"), bearer=token)
        return text_in(answer, "url")

    async def list_channels(self) -> list[ChannelInfo]:
        """Every channel the bot can see that is not archived. Slack: conversations.list."""
        found = await self._listed(
            ApiCall("conversations.list"),
            "channels",
            types="public_channel,private_channel",
            exclude_archived=True,
        )
        return [channel_of(channel) for channel in found]

    async def _listed(self, call: ApiCall, name: str, **arguments: Any) -> list[Mapping[str, Any]]:
        """The items under ``name`` on all pages."""
        found: list[Mapping[str, Any]] = []
        cursor = ""
        for _page in range(MAX_PAGES):
            answer = await self._http.call(call, limit=PAGE_SIZE, cursor=cursor or None, **arguments)
            found += mappings(answer, name)
            if not (cursor := cursor_in(answer)):
                break
        return found

    async def create_channel(self, name: str) -> ChannelInfo:
        """Raises ChatError with Slack's code (name_taken, invalid_name…). Slack: conversations.create."""
        return await self._channel(ApiCall("conversations.create", write=True), name=name)

    async def join_channel(self, channel: ConversationRef) -> ChannelInfo:
        """Public channels only; already being a member is success. Slack: conversations.join."""
        return await self._channel(ApiCall("conversations.join"), channel=channel)

    async def open_direct(self, user: PersonRef) -> ConversationRef:
        """The ID of our conversation with a user, created on first use; they do not see it until somebody writes.
        Slack: conversations.open."""
        return (await self._channel(ApiCall("conversations.open"), users=user)).id

    async def invite(self, channel: ConversationRef, users: Sequence[PersonRef]) -> None:
        """Invite people to a channel; at most 100. Slack: conversations.invite."""
        call = ApiCall("conversations.invite")
        try:
            await self._http.call(call, channel=channel, users=",".join(users))
        except ChatError as error:
            if error.code != "already_in_channel":
                raise

    async def describe_channel(self, channel: ConversationRef, topic: str, purpose: str) -> None:
        """Slack: conversations.setTopic, conversations.setPurpose."""
        await self._http.call(ApiCall("conversations.setTopic"), channel=channel, topic=topic)
        await self._http.call(ApiCall("conversations.setPurpose"), channel=channel, purpose=purpose)

    async def person(self, user: PersonRef) -> Person:
        """Raises ChatError user_not_found. Slack: users.info (users:read)."""
        return person_of((await self._http.call(ApiCall("users.info"), user=user)).get("user"))

    async def person_by_email(self, email: str) -> Person:
        """Raises ChatError users_not_found. Slack: users.lookupByEmail (users:read.email)."""
        return person_of((await self._http.call(ApiCall("users.lookupByEmail"), email=email)).get("user"))

    async def list_people(self) -> list[Person]:
        """Everybody in the workspace. Slack: users.list (users:read)."""
        found = await self._listed(ApiCall("users.list"), "members")
        return [person_of(member) for member in found]

    async def channel_info(self, channel: ConversationRef) -> ChannelInfo:
        """Slack: conversations.info."""
        return await self._channel(ApiCall("conversations.info"), channel=channel)

    async def _channel(self, call: ApiCall, **arguments: str) -> ChannelInfo:
        return channel_of((await self._http.call(call, **arguments)).get("channel"))

    @property
    def base_url(self) -> str:
        """The Web API's base URL."""
        return self._http.base_url

    async def file_info(self, file_id: str) -> Mapping[str, Any]:
        """What Slack knows of a file, {} if it says nothing. Slack: files.info."""
        found = (await self._http.call(ApiCall("files.info"), file=file_id)).get("file")
        return found if isinstance(found, Mapping) else {}

    def open(self, url: URL, *, with_token: bool) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """GET without following redirects. The caller decides whether the token may go there. Raises
        ChatUnreachableError for failures, also while reading the response."""
        return self._http.get(url, with_token=with_token)
