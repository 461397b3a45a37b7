"""The Bot API with one token: each request is made once, and every outcome is one of our errors.

The token is a part of every address, and libraries put addresses into their errors: none of those is passed
on, or kept as the cause of one of ours.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any, Self
from urllib.parse import quote

import aiohttp
from yarl import URL

from codebutler.chat.port import Take, file_details
from codebutler.chat.telegram.rules import check_token, interrupted, refusal, unreachable
from codebutler.domain.clock import Clock
from codebutler.domain.errors import ChatError
from codebutler.domain.model import File
from codebutler.platform.http import failure_of, proxy_for

DEFAULT_BASE_URL = "https://api.telegram.org"
TIMEOUT_S = 25.0
CONNECT_S = 10.0
TRANSFER_TIMEOUT_S = 300.0
SILENCE_S = 30.0
CHUNK_BYTES = 256 * 1024
CONNECTIONS = 16
MAX_ANSWER_BYTES = 16 * 2**20
MAX_FILE_BYTES = 20 * 2**20
READS = frozenset(
    {
        "getMe",
        "getUpdates",
        "getFile",
        "getChat",
        "getChatMember",
        "getWebhookInfo",
        "sendChatAction",
        "answerCallbackQuery",
        "setMyCommands",
        "deleteWebhook",
        "leaveChat",
    }
)
"""Methods that may be repeated without effect."""


_PATH = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*(?:/[A-Za-z0-9_-][A-Za-z0-9_.-]*){0,8}")


class BotApi:
    """An async context manager: closing it closes its connections. Raises ChatAuthError for an invalid token."""

    def __init__(self, token: str, base_url: str = DEFAULT_BASE_URL, timeout_s: float = TIMEOUT_S) -> None:
        self.base_url = base_url.rstrip("/")
        self._token = check_token(token)
        self._timeout_s = timeout_s
        self._session: aiohttp.ClientSession | None = None

    def __repr__(self) -> str:
        return f"BotApi({self.base_url!r})"

    async def __aenter__(self) -> Self:
        self._session = _session()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()

    def use_token(self, token: str) -> bool:
        """Continue with another token; False if it is the same. Raises ChatAuthError at once for an invalid
        one."""
        before, self._token = self._token, check_token(token)
        return self._token != before

    async def reconnect(self) -> None:
        """Open new connections from now on: the open ones may be dead. Requests on them are interrupted."""
        if self._session is not None:
            session, self._session = self._session, _session()
            await session.close()

    async def call(self, method: str, *, timeout_s: float = 0.0, **arguments: object) -> Any:
        """The result of a method; arguments that are None are left out. Raises ChatError."""
        present = {name: value for name, value in arguments.items() if value is not None}
        return await self._post(method, timeout_s or self._timeout_s, json=present)

    async def send_file(
        self, method: str, field: str, filename: str, content: bytes, **arguments: object
    ) -> Any:
        """The result of a method that takes a file under ``field``. Raises ChatError."""
        form = aiohttp.FormData()
        for name, value in arguments.items():
            if value is not None:
                form.add_field(name, str(value))
        form.add_field(field, content, filename=filename, content_type="application/octet-stream")
        return await self._post(method, TRANSFER_TIMEOUT_S, data=form)

    async def fetch(self, path: str, max_bytes: int, take: Take) -> None:
        """Pass the file at a checked path from getFile to ``take``. Raises ChatError: too_large, refused,
        unreachable."""
        if self._session is None:
            raise unreachable("a file", "the connection is not open")
        timeout = aiohttp.ClientTimeout(total=TRANSFER_TIMEOUT_S, connect=CONNECT_S, sock_read=SILENCE_S)
        try:
            url = URL(f"{self.base_url}/file/bot{self._token}/{quote(path)}", encoded=True)
            async with self._session.get(
                url, timeout=timeout, allow_redirects=False, proxy=proxy_for(self.base_url)
            ) as response:
                if response.status != 200:
                    raise ChatError(f"Telegram gave no file: status {response.status}", "refused")
                size_bytes = 0
                async for piece in response.content.iter_chunked(CHUNK_BYTES):
                    size_bytes += len(piece)
                    if size_bytes > max_bytes:
                        raise ChatError(code="too_large")
                    await take(piece)
                return
        except ChatError as error:
            failure = error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            failure = unreachable("a file", failure_of(error))
        raise failure

    async def _post(self, method: str, timeout_s: float, **body: Any) -> Any:
        if self._session is None:
            raise unreachable(method, "the connection is not open")
        timeout = aiohttp.ClientTimeout(total=timeout_s, connect=min(CONNECT_S, timeout_s))
        write = method not in READS
        try:
            url = URL(f"{self.base_url}/bot{self._token}/{method}", encoded=True)
            async with self._session.post(
                url, timeout=timeout, allow_redirects=False, proxy=proxy_for(self.base_url), **body
            ) as response:
                return _result(method, response.status, await _json(response), write=write)
        except ChatError as error:
            failure = error
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            failure = unreachable(method, failure_of(error))
        except (aiohttp.ClientError, OSError, ValueError) as error:
            failure = interrupted(method, failure_of(error), write=write)
        # Outside, so that the library's error is not its context.
        raise failure


def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=CONNECTIONS))


async def _json(response: aiohttp.ClientResponse) -> object:
    """The answer; None if it is not JSON."""
    if (response.content_length or 0) > MAX_ANSWER_BYTES:
        raise ValueError("too long")
    try:
        return await response.json(content_type=None)
    except ValueError:
        return None


def _result(method: str, status: int, body: object, *, write: bool) -> Any:
    if isinstance(body, Mapping) and body.get("ok") is True and status < 400:
        return body.get("result")
    raise refusal(method, status, body, write=write)


async def download(api: BotApi, clock: Clock, file: File, take: Take) -> None:
    """Pass the content of a file to ``take``, from a path that Telegram gives and that is checked first.
    Raises ChatError: too_large, file_not_found, untrusted_host, refused, unreachable."""
    if file.size_bytes > MAX_FILE_BYTES:
        raise ChatError("Telegram lets bots download files of up to 20 MB", "too_large")
    details = await file_details(partial(api.call, "getFile", file_id=file.id), clock)
    path = details.get("file_path") if isinstance(details, Mapping) else None
    if not isinstance(path, str) or not _PATH.fullmatch(path):
        raise ChatError("Telegram names no path of a file", "untrusted_host")
    await api.fetch(path, MAX_FILE_BYTES, take)
