"""Requests to Slack with one bot token: each is made once, and every outcome is one of our errors. Each
answer brings Slack's own time: message timestamps are compared with it, as our wall clock may be wrong, or be
set.

The SDK's own retries are off: it would post twice after a lost answer. The sender decides about retries.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, Self

import aiohttp
from msgspec import Struct
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient
from yarl import URL

from codebutler.domain.clock import Clock
from codebutler.domain.errors import (
    ChatAuthError,
    ChatError,
    ChatOutcomeUnknownError,
    ChatRateLimitedError,
    ChatUnreachableError,
)
from codebutler.platform.http import failure_of, proxy_for

DEFAULT_RETRY_AFTER_S = 30.0
MAX_RETRY_AFTER_S = 900.0

# Slack's codes for a useless token, in every method.
TOKEN_REFUSED = frozenset(
    {
        "account_inactive",
        "invalid_auth",
        "not_allowed_token_type",
        "not_authed",
        "org_login_required",
        "token_expired",
        "token_revoked",
    }
)
# Slack: "it's possible some aspect of the operation succeeded before the error was raised".
# file_update_failed: files.completeUploadExternal is to be called again.
HALF_DONE = frozenset(
    {"fatal_error", "file_update_failed", "internal_error", "request_timeout", "service_unavailable"}
)
RATE_LIMITED = frozenset({"ratelimited", "rate_limited"})
# At once; each is an open file (``process.descriptors``).
CONNECTIONS = 48
CONNECT_S = 10.0
UPLOAD_TIMEOUT_S = 300.0
UPLOAD_PIECE_BYTES = 2**18
DOWNLOAD_TIMEOUT_S = 150.0
SILENCE_S = 30.0


class ApiCall(Struct, frozen=True):
    """One call: ``write`` if doing it twice shows, ``key`` the configuration key of its token."""

    method: str
    write: bool = False
    key: str = "slack.botToken"


def refusal(call: ApiCall, status: int, headers: Mapping[str, str], body: object) -> ChatError:
    """The error in an answer without ``ok: true``."""
    code = _code(body)
    if status == 429 or code in RATE_LIMITED:
        return ChatRateLimitedError(retry_after_s(headers.get("Retry-After")))
    if code in TOKEN_REFUSED:
        return ChatAuthError(
            f"Slack refuses {call.key} ({code}): issue a new one and run `codebutler setup`", code
        )
    if not code or code in HALF_DONE or status >= 500:
        return interrupted(call, code or f"status {status}")
    return ChatError(f"Slack refused {call.method}: {code}{_detail(body)}", code)


def interrupted(call: ApiCall, why: str) -> ChatError:
    """The request went out and no usable answer came back."""
    if call.write:
        return ChatOutcomeUnknownError(
            f"no clear answer from Slack to {call.method}: {why}", "outcome_unknown"
        )
    return ChatUnreachableError(f"no answer from Slack to {call.method}: {why}", "unreachable")


def unreachable(call: ApiCall, why: str) -> ChatError:
    """The request never left."""
    return ChatUnreachableError(f"Slack cannot be reached for {call.method}: {why}", "unreachable")


def retry_after_s(header: str | None) -> float:
    """Seconds of a Retry-After header, within reason; half a minute if it is unusable."""
    try:
        seconds = float(header or "")
    except ValueError:
        return DEFAULT_RETRY_AFTER_S
    if not math.isfinite(seconds) or seconds < 0:
        return DEFAULT_RETRY_AFTER_S
    return min(seconds, MAX_RETRY_AFTER_S)


def _code(body: object) -> str:
    code = body.get("error") if isinstance(body, Mapping) else None
    return code if isinstance(code, str) else ""


def _detail(body: object) -> str:
    """Slack adds the missing scope, or the fault in a block, to the code."""
    if not isinstance(body, Mapping):
        return ""
    needed: Any = body.get("needed")
    metadata: Any = body.get("response_metadata")
    messages: Any = metadata.get("messages") if isinstance(metadata, Mapping) else None
    if isinstance(needed, str):
        return f" (needs {needed})"
    if isinstance(messages, list) and messages:
        return f" ({str(messages[0])[:200]})"
    return ""


class ChatClock:
    """A Clock whose ``now`` is the time of the chat's last answer, plus the time since; our own before the
    first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._answered: tuple[datetime, float] | None = None

    def received(self, headers: Mapping[str, str]) -> None:
        """The headers of an answer; a Date (RFC 9110) that cannot be read is ignored."""
        try:
            sent_at = parsedate_to_datetime(headers.get("Date", ""))
        except ValueError:
            return
        self._answered = (sent_at if sent_at.tzinfo else sent_at.replace(tzinfo=UTC), self._clock.boottime())

    def now(self) -> datetime:
        """Slack's time: late by whole seconds and the answer's way, never early, so it is safe to search
        from."""
        if self._answered is None:
            return self._clock.now()
        sent_at, at_s = self._answered
        return sent_at + timedelta(seconds=self._clock.boottime() - at_s)

    def monotonic(self) -> float:
        """Our own clock's."""
        return self._clock.monotonic()

    def boottime(self) -> float:
        """Our own clock's."""
        return self._clock.boottime()

    async def sleep(self, seconds: float) -> None:
        """By our own clock."""
        await self._clock.sleep(seconds)


class SlackHttp:
    """An async context manager: closing it closes its connections.

    ``on_headers`` gets those of every answer. Raises ChatAuthError at once for a token of the wrong kind.
    """

    def __init__(
        self, token: str, base_url: str, timeout_s: float, on_headers: Callable[[Mapping[str, str]], None]
    ) -> None:
        self.base_url = base_url
        self._on_headers = on_headers
        self._token = check_bot_token(token)
        self._timeout = aiohttp.ClientTimeout(total=timeout_s, connect=min(CONNECT_S, timeout_s))
        self._session: aiohttp.ClientSession | None = None
        self._client: AsyncWebClient | None = None

    async def __aenter__(self) -> Self:
        # At DEBUG the SDK writes whole answers, including the secret socket URL.
        quiet = logging.getLogger("codebutler.chat.slack.web")
        quiet.setLevel(logging.WARNING)
        connector = aiohttp.TCPConnector(limit=CONNECTIONS)
        self._session = aiohttp.ClientSession(timeout=self._timeout, connector=connector)
        client = AsyncWebClient(
            self._token, base_url=self.base_url, session=self._session, retry_handlers=[], logger=quiet
        )
        # The constructor uses any proxy of the environment, for this machine too.
        client.proxy = proxy_for(self.base_url)
        self._client = client
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    def use_token(self, token: str) -> None:
        """Continue with another bot token. Raises ChatAuthError at once for one of the wrong kind."""
        self._token = check_bot_token(token)
        if self._client is not None:
            self._client.token = self._token

    async def call(self, call: ApiCall, *, bearer: str = "", **arguments: object) -> Mapping[str, Any]:
        """The answer to one method; ``bearer`` is another token for this call. Nested arguments are sent as JSON, and
        those that are None not at all. Raises ChatError."""
        if self._client is None:
            raise ChatUnreachableError("the connection to the Web API is not open")
        headers = {"Authorization": f"Bearer {bearer}"} if bearer else None
        texts = {
            name: value if isinstance(value, str) else json.dumps(value)
            for name, value in arguments.items()
            if value is not None
        }
        form = {name: text.encode("utf-8", "replace").decode("utf-8") for name, text in texts.items()}
        try:
            answer = await self._client.api_call(call.method, data=form, headers=headers)
        except SlackApiError as error:
            raise _refusal_of(call, error) from None
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise unreachable(call, failure_of(error)) from None
        except (aiohttp.ClientError, OSError, ValueError, AttributeError) as error:
            # AttributeError: the SDK fails on a body that is not an object.
            raise interrupted(call, failure_of(error)) from None
        self._on_headers(answer.headers)
        return answer.data if isinstance(answer.data, Mapping) else {}

    async def put(self, call: ApiCall, url: str, content: bytes) -> None:
        """Upload a file's bytes to the address that ``call`` returned. Raises ChatError."""
        if self._session is None or not url:
            raise unreachable(call, "no upload URL")
        timeout = aiohttp.ClientTimeout(total=UPLOAD_TIMEOUT_S, connect=CONNECT_S)
        try:
            # In pieces: given the whole, aiohttp copies it into its buffer in one go.
            headers = {"Content-Length": str(len(content)), "Content-Type": "application/octet-stream"}
            request = self._session.post(
                url, data=_pieces(content), headers=headers, proxy=proxy_for(url), timeout=timeout
            )
            async with request as answer:
                if answer.status != 200:
                    raise refusal(call, answer.status, answer.headers, {})
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise unreachable(call, failure_of(error)) from None

    @asynccontextmanager
    async def get(self, url: URL, *, with_token: bool) -> AsyncIterator[aiohttp.ClientResponse]:
        """A file, without following redirects. The caller decides whether the token may go there.

        Raises ChatUnreachableError for errors, also while reading the answer.
        """
        call = ApiCall("file download")
        if self._session is None:
            raise unreachable(call, "the connection is not open")
        headers = {"Authorization": f"Bearer {self._token}"} if with_token else {}
        timeout = aiohttp.ClientTimeout(total=DOWNLOAD_TIMEOUT_S, connect=CONNECT_S, sock_read=SILENCE_S)
        request = self._session.get(
            url, headers=headers, allow_redirects=False, proxy=proxy_for(str(url)), timeout=timeout
        )
        try:
            async with request as answer:
                yield answer
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise unreachable(call, failure_of(error)) from None


async def _pieces(content: bytes) -> AsyncIterator[bytes]:
    for at in range(0, len(content), UPLOAD_PIECE_BYTES):
        yield content[at : at + UPLOAD_PIECE_BYTES]


def _refusal_of(call: ApiCall, error: SlackApiError) -> ChatError:
    """The SDK returns its own answer, or the raw one if the body was not JSON."""
    answer = error.response
    status = getattr(answer, "status_code", None) or getattr(answer, "status", None) or 0
    return refusal(call, status, getattr(answer, "headers", {}), getattr(answer, "data", {}))


def check_bot_token(token: str) -> str:
    """The token, stripped. Raises ChatAuthError if it is obviously not a bot token."""
    token = token.strip()
    if not token:
        raise ChatAuthError(
            "no bot token: set slack.botToken (it begins with xoxb-) or run `codebutler setup`"
        )
    if token.startswith("xapp-"):
        raise ChatAuthError(
            "slack.botToken holds an app-level token (xapp-): put the bot token (xoxb-) there",
            "not_allowed_token_type",
        )
    return _printable(token, "slack.botToken")


def check_app_token(token: str) -> str:
    """The token, stripped. Raises ChatAuthError if it is obviously not an app-level token."""
    token = token.strip()
    if not token:
        raise ChatAuthError(
            "no app token: set slack.appToken (it begins with xapp-) or run `codebutler setup`"
        )
    if token.startswith(("xoxb-", "xoxp-", "xoxe")):
        raise ChatAuthError(
            f"slack.appToken holds a {token[:4]} token: put the app-level token (xapp-) there",
            "not_allowed_token_type",
        )
    return _printable(token, "slack.appToken")


def _printable(token: str, key: str) -> str:
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ChatAuthError(f"{key} holds characters that no token has: copy it again", "invalid_auth")
    return token
