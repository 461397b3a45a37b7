"""The Web API as a ChatPort: each call is made once, and every outcome is one of our errors.

The SDK's own retries are off: it would post twice after a lost answer. Who retries is decided by the sender.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self

import aiohttp
from msgspec import Struct
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient
from yarl import URL

from codebutler.errors import ChatError, ChatUnreachableError
from codebutler.model import Post, React, Update, Upload
from codebutler.slack.endpoint import check_app_token, check_bot_token, proxy_for
from codebutler.slack.metadata import operation_metadata
from codebutler.slack.outcomes import Call, interrupted, refusal, unreachable
from codebutler.slack.port import Identity, Page

DEFAULT_BASE_URL = "https://slack.com/api/"
PAGE_SIZE = 200
MAX_CHANNEL_PAGES = 50
UPLOAD_TIMEOUT_S = 300.0
DOWNLOAD_TIMEOUT_S = 150.0
SILENCE_S = 30.0


class ChannelInfo(Struct, frozen=True, kw_only=True):
    """A channel as the bot sees it."""

    id: str
    name: str
    is_private: bool = False
    is_member: bool = False
    is_archived: bool = False


class SlackApi:
    """The workspace behind one bot token. An async context manager: closing it closes its connections.

    Raises ChatAuthError at once for a token of the wrong kind.
    """

    def __init__(self, token: str, base_url: str = DEFAULT_BASE_URL, timeout_s: float = 30.0) -> None:
        self._token = check_bot_token(token)
        self._base_url = base_url
        self._timeout = aiohttp.ClientTimeout(total=timeout_s, connect=min(10.0, timeout_s))
        self._session: aiohttp.ClientSession | None = None
        self._client: AsyncWebClient | None = None

    async def __aenter__(self) -> Self:
        # At DEBUG the SDK writes whole answers, the secret socket URL among them.
        quiet = logging.getLogger("codebutler.slack.web")
        quiet.setLevel(logging.WARNING)
        self._session = aiohttp.ClientSession(timeout=self._timeout)
        client = AsyncWebClient(
            self._token, base_url=self._base_url, session=self._session, retry_handlers=[], logger=quiet
        )
        # The constructor takes any proxy of the environment, for this machine too.
        client.proxy = proxy_for(self._base_url)
        self._client = client
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    def use_token(self, token: str) -> None:
        """Go on with another bot token. Raises ChatAuthError at once for one of the wrong kind."""
        self._token = check_bot_token(token)
        if self._client is not None:
            self._client.token = self._token

    async def identity(self) -> Identity:
        """Slack: auth.test."""
        answer = await self._call(Call("auth.test"))
        return Identity(
            user_id=_text(answer, "user_id"),
            bot_id=_text(answer, "bot_id"),
            team_id=_text(answer, "team_id"),
            team=_text(answer, "team"),
            url=_text(answer, "url"),
        )

    async def post(self, channel: str, post: Post, op_id: str) -> str:
        """Slack: chat.postMessage, without unfurling links; chat.postEphemeral for one user alone."""
        if post.only_for:
            return await self._whisper(channel, post)
        answer = await self._call(
            Call("chat.postMessage", write=True),
            channel=channel,
            text=post.text,
            thread_ts=post.thread_ts,
            blocks=list(post.blocks) or None,
            metadata=operation_metadata(op_id),
            unfurl_links=False,
            unfurl_media=False,
        )
        return _text(answer, "ts")

    async def _whisper(self, channel: str, post: Post) -> str:
        answer = await self._call(
            Call("chat.postEphemeral", write=True),
            channel=channel,
            user=post.only_for,
            text=post.text,
            thread_ts=post.thread_ts,
            blocks=list(post.blocks) or None,
        )
        return _text(answer, "message_ts")

    async def update(self, channel: str, update: Update, op_id: str) -> None:  # noqa: ARG002 - see below
        """Slack: chat.update. Sends no metadata, which keeps that of the post: the post must stay findable,
        and an update may be repeated without harm."""
        await self._call(
            Call("chat.update", write=True),
            channel=channel,
            ts=update.target_ts,
            text=update.text,
            blocks=list(update.blocks) or None,
        )

    async def react(self, channel: str, react: React) -> None:
        """Slack: reactions.add, reactions.remove."""
        method, done = ("remove", "no_reaction") if react.remove else ("add", "already_reacted")
        try:
            await self._call(
                Call(f"reactions.{method}", write=True),
                channel=channel,
                timestamp=react.target_ts,
                name=react.name,
            )
        except ChatError as error:
            if error.code != done:
                raise

    async def reactions(self, channel: str, ts: str) -> dict[str, frozenset[str]]:
        """Slack: reactions.get, the complete list."""
        answer = await self._call(Call("reactions.get"), channel=channel, timestamp=ts, full=True)
        message = answer.get("message")
        listed = message.get("reactions") if isinstance(message, Mapping) else None
        rows = [row for row in listed if isinstance(row, Mapping)] if isinstance(listed, list) else []
        return {_text(row, "name"): frozenset(map(str, row.get("users") or ())) for row in rows}

    async def upload(self, channel: str, upload: Upload) -> str:
        """Slack: files.getUploadURLExternal, the bytes, files.completeUploadExternal. Nothing shows before
        the last of the three, so a failure of the first two never leaves the outcome open."""
        begin = Call("files.getUploadURLExternal")
        ticket = await self._call(begin, filename=upload.filename, length=len(upload.content))
        await self._put(begin, _text(ticket, "upload_url"), upload.content)
        file_id = _text(ticket, "file_id")
        await self._call(
            Call("files.completeUploadExternal", write=True),
            files=[{"id": file_id, "title": upload.title or upload.filename}],
            channel_id=channel,
            thread_ts=upload.thread_ts,
            initial_comment=upload.comment or None,
        )
        return file_id

    async def show_status(self, channel: str, thread_ts: str, text: str) -> None:
        """Slack: assistant.threads.setStatus (needs chat:write only); dropped after two minutes."""
        call = Call("assistant.threads.setStatus")
        await self._call(call, channel_id=channel, thread_ts=thread_ts, status=text)

    async def publish_home(self, user: str, blocks: list[dict[str, Any]]) -> None:
        """Slack: views.publish."""
        await self._call(Call("views.publish"), user_id=user, view={"type": "home", "blocks": blocks})

    async def open_form(self, trigger_id: str, view: dict[str, Any]) -> None:
        """Slack: views.open."""
        await self._call(Call("views.open"), trigger_id=trigger_id, view=view)

    async def history(
        self, channel: str, *, thread_ts: str | None = None, oldest: str = "", cursor: str = ""
    ) -> Page:
        """Slack: conversations.replies (oldest first) or conversations.history (newest first)."""
        answer = await self._call(
            Call("conversations.history" if thread_ts is None else "conversations.replies"),
            channel=channel,
            ts=thread_ts,
            oldest=oldest or None,
            cursor=cursor or None,
            limit=PAGE_SIZE,
            include_all_metadata=True,
        )
        messages = answer.get("messages")
        found = tuple(m for m in messages if isinstance(m, dict)) if isinstance(messages, list) else ()
        return Page(messages=found, next_cursor=_next_cursor(answer))

    async def open_connection(self, app_token: str) -> str:
        """A fresh Socket Mode URL; a secret, valid once. Slack: apps.connections.open."""
        token = check_app_token(app_token)
        answer = await self._call(Call("apps.connections.open", key="slack.appToken"), bearer=token)
        return _text(answer, "url")

    async def list_channels(self) -> list[ChannelInfo]:
        """Every channel the bot can see that is not archived. Slack: conversations.list."""
        found: list[ChannelInfo] = []
        cursor = ""
        for _page in range(MAX_CHANNEL_PAGES):
            answer = await self._call(
                Call("conversations.list"),
                types="public_channel,private_channel",
                exclude_archived=True,
                limit=PAGE_SIZE,
                cursor=cursor or None,
            )
            channels = answer.get("channels")
            found += [_channel(c) for c in channels or () if isinstance(c, Mapping)]
            if not (cursor := _next_cursor(answer)):
                break
        return found

    async def create_channel(self, name: str) -> ChannelInfo:
        """Raises ChatError with Slack's code (name_taken, invalid_name…). Slack: conversations.create."""
        return _channel(
            (await self._call(Call("conversations.create", write=True), name=name)).get("channel")
        )

    async def join_channel(self, channel: str) -> ChannelInfo:
        """Public channels only; being there already is success. Slack: conversations.join."""
        return _channel((await self._call(Call("conversations.join"), channel=channel)).get("channel"))

    async def channel_info(self, channel: str) -> ChannelInfo:
        """Slack: conversations.info."""
        return _channel((await self._call(Call("conversations.info"), channel=channel)).get("channel"))

    @property
    def base_url(self) -> str:
        """Where the Web API is."""
        return self._base_url

    async def file_info(self, file_id: str) -> Mapping[str, Any]:
        """What Slack knows of a file, {} if it says nothing. Slack: files.info."""
        found = (await self._call(Call("files.info"), file=file_id)).get("file")
        return found if isinstance(found, Mapping) else {}

    @asynccontextmanager
    async def open(self, url: URL, *, with_token: bool) -> AsyncIterator[aiohttp.ClientResponse]:
        """GET without following redirects. Whether the token may go there is the caller's decision.

        Raises ChatUnreachableError for what breaks, while the answer is read too.
        """
        call = Call("file download")
        if self._session is None:
            raise unreachable(call, "the connection is not open")
        headers = {"Authorization": f"Bearer {self._token}"} if with_token else {}
        timeout = aiohttp.ClientTimeout(total=DOWNLOAD_TIMEOUT_S, connect=10.0, sock_read=SILENCE_S)
        request = self._session.get(
            url, headers=headers, allow_redirects=False, proxy=proxy_for(str(url)), timeout=timeout
        )
        try:
            async with request as answer:
                yield answer
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise unreachable(call, type(error).__name__) from None

    async def _call(self, call: Call, *, bearer: str = "", **arguments: object) -> Mapping[str, Any]:
        if self._client is None:
            raise ChatUnreachableError("the connection to the Web API is not open")
        headers = {"Authorization": f"Bearer {bearer}"} if bearer else None
        try:
            answer = await self._client.api_call(call.method, data=_form(arguments), headers=headers)
        except SlackApiError as error:
            raise _refusal_of(call, error) from None
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise unreachable(call, type(error).__name__) from None
        except (aiohttp.ClientError, OSError, ValueError, AttributeError) as error:
            # AttributeError: the SDK stumbles over a body that is not an object.
            raise interrupted(call, type(error).__name__) from None
        return answer.data if isinstance(answer.data, Mapping) else {}

    async def _put(self, call: Call, url: str, content: bytes) -> None:
        if self._session is None or not url:
            raise unreachable(call, "no upload URL")
        timeout = aiohttp.ClientTimeout(total=UPLOAD_TIMEOUT_S, connect=10.0)
        try:
            async with self._session.post(url, data=content, proxy=proxy_for(url), timeout=timeout) as answer:
                if answer.status != 200:
                    raise refusal(call, answer.status, answer.headers, {})
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise unreachable(call, type(error).__name__) from None


def _form(arguments: Mapping[str, object]) -> dict[str, str]:
    """A form body as Slack reads it: nested values as JSON, absent ones left out."""
    form: dict[str, str] = {}
    for name, value in arguments.items():
        if value is None:
            continue
        text = value if isinstance(value, str) else json.dumps(value)
        form[name] = text.encode("utf-8", "replace").decode("utf-8")
    return form


def _refusal_of(call: Call, error: SlackApiError) -> ChatError:
    """The SDK hands over its own answer, or the raw one where the body was not JSON."""
    answer = error.response
    status = getattr(answer, "status_code", None) or getattr(answer, "status", None) or 0
    return refusal(call, status, getattr(answer, "headers", {}), getattr(answer, "data", {}))


def _next_cursor(answer: Mapping[str, Any]) -> str:
    metadata = answer.get("response_metadata")
    return _text(metadata, "next_cursor") if isinstance(metadata, Mapping) else ""


def _channel(data: object) -> ChannelInfo:
    if not isinstance(data, Mapping):
        raise ChatError("Slack described no channel", "channel_not_found")
    return ChannelInfo(
        id=_text(data, "id"),
        name=_text(data, "name"),
        is_private=data.get("is_private") is True,
        is_member=data.get("is_member") is True,
        is_archived=data.get("is_archived") is True,
    )


def _text(data: Mapping[str, Any], name: str) -> str:
    value = data.get(name)
    return value if isinstance(value, str) else ""
