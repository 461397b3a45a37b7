"""What a model service of the tests is told to answer, and what it was asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from tests.loopback import on_loopback


@dataclass(frozen=True, slots=True)
class Call:
    """The model calls a tool. ``written``: its arguments as the model wrote them, where that is not the JSON of
    ``input``."""

    name: str
    input: dict[str, Any]
    written: str | dict[str, Any] = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer: ``thoughts``, text, then tool calls; or an error (``status``, ``error``); ``hold`` keeps silent
    after the first bytes until the server's ``release`` is set. ``headers`` come with an error; ``cut``: it met the
    limit of its length."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    status: int = 200
    error: str = "scripted error"
    hold: bool = False
    input_tokens: int = 100
    output_tokens: int = 20
    headers: tuple[tuple[str, str], ...] = ()
    thoughts: str = ""
    cut: bool = False


@dataclass
class Scripted:
    """A service that follows a script: an async context manager. ``requests`` are the bodies seen, ``keys`` the
    credentials used."""

    script: list[Reply] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    release: asyncio.Event = field(default_factory=asyncio.Event)
    url: str = ""
    _news: asyncio.Condition = field(default_factory=asyncio.Condition)
    _open: AsyncExitStack = field(default_factory=AsyncExitStack)

    def app(self) -> web.Application:
        """What is served."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        self.url = f"http://127.0.0.1:{await self._open.enter_async_context(on_loopback(self.app()))}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release.set()
        await self._open.aclose()

    def play(self, *replies: Reply) -> None:
        """Append to the script."""
        self.script.extend(replies)

    async def seen(self, count: int, deadline_s: float = 30) -> None:
        """Wait until ``count`` scripted requests have arrived."""
        await self.until(lambda: len(self.requests) >= count, deadline_s)

    async def until(self, holds: Callable[[], bool], deadline_s: float) -> None:
        """Wait until something holds that ``tell`` may have brought about."""
        async with asyncio.timeout(deadline_s), self._news:
            await self._news.wait_for(holds)

    async def tell(self) -> None:
        """Something has changed."""
        async with self._news:
            self._news.notify_all()

    async def next(self, body: dict[str, Any], key: str) -> Reply:
        """The answer to this request, which counts as seen."""
        self.requests.append(body)
        self.keys.append(key)
        await self.tell()
        return self.script.pop(0) if self.script else Reply("(the script is exhausted)")


def bearer(request: web.Request) -> str:
    """The credentials of a request."""
    return request.headers.get("authorization", "").removeprefix("Bearer ")
