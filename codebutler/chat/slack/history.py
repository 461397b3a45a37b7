"""Reads what was said in a channel or a thread: to catch up, page by page, however long Slack takes to tell; for an
agent that was called into a thread; and our own messages, read again as parts."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from random import Random
from typing import Any

from codebutler.chat.fields import PayloadError, clean
from codebutler.chat.layout import Box, Section
from codebutler.chat.port import History, Identity, Page
from codebutler.chat.slack.answers import op_id_of
from codebutler.chat.slack.escape import ZERO_WIDTH_SPACE, unescape
from codebutler.chat.slack.missed import Shown
from codebutler.chat.slack.payloads import shown
from codebutler.domain.actions import PICK_ACTION
from codebutler.domain.clock import Clock
from codebutler.domain.errors import (
    ChatAuthError,
    ChatOutcomeUnknownError,
    ChatRateLimitedError,
    ChatUnreachableError,
)
from codebutler.domain.message import Button
from codebutler.domain.model import Quoted
from codebutler.platform.waiting import full_jitter_s
from codebutler.text.markup import plain

MOST_MESSAGES = 10_000
MOST_QUOTED = 50
THREAD_PAGES = 5
QUOTED_CHARS = 4_000
"""Of one message."""
BACKOFF_BASE_S = 1.0
BACKOFF_CAP_S = 60.0
PASSING = (ChatRateLimitedError, ChatUnreachableError, ChatOutcomeUnknownError, ChatAuthError)
"""Troubles that end by themselves, or with a new token."""

log = logging.getLogger("codebutler.chat.slack.catchup")


class Pages:
    """One channel's or thread's messages, page by page."""

    def __init__(self, page: Callable[[str], Awaitable[Page]], channel: str, me: Identity) -> None:
        self._page = page
        self._channel = channel
        self._me = me
        self._cursor = ""
        self._count = 0
        self.ended = False
        self.cut_off = False
        """There is more than MOST_MESSAGES: the rest is not read."""

    async def more(self) -> list[Shown]:
        """The next page. Raises ChatError for what Slack refuses for good."""
        page = await self._page(self._cursor)
        self._cursor = page.next_cursor
        self._count += len(page.messages)
        self.cut_off = bool(self._cursor) and self._count >= MOST_MESSAGES
        self.ended = self.cut_off or not self._cursor
        return _readable(page, self._channel, self._me)


class PatientHistory:
    """``pages`` and ``read`` are patient; ``glance`` is not."""

    def __init__(self, reader: History, clock: Clock, rng: Random) -> None:
        self._reader = reader
        self._clock = clock
        self._rng = rng

    def pages(self, channel: str, since_s: float, me: Identity) -> Pages:
        """The channel's messages after ``since_s``, the newest first."""
        return Pages(partial(self._page, channel, None, since_s), channel, me)

    async def read(
        self, channel: str, thread_ts: str, since_s: float, me: Identity
    ) -> tuple[list[Shown], bool]:
        """The thread's messages after ``since_s``, and whether that is all of them. Raises ChatError for what
        Slack refuses for good."""
        pages = Pages(partial(self._page, channel, thread_ts, since_s), channel, me)
        found: list[Shown] = []
        while not pages.ended:
            found += await pages.more()
        return found, not pages.cut_off

    async def glance(self, channel: str, since_s: float, me: Identity) -> list[Shown]:
        """The first page of them. Raises ChatError."""
        return _readable(await self._reader.history(channel, since_s=since_s), channel, me)

    async def pause(self, failures: int) -> None:
        """Wait after the ``failures``-th failure in a row."""
        await self._clock.sleep(full_jitter_s(self._rng, failures, BACKOFF_BASE_S, BACKOFF_CAP_S))

    async def _page(self, channel: str, thread_ts: str | None, since_s: float, cursor: str) -> Page:
        """As often as it takes: a page that cannot be had now is had later."""
        failures = 0
        while True:
            try:
                return await self._reader.history(
                    channel, thread_ts=thread_ts, since_s=since_s, cursor=cursor
                )
            except PASSING as error:
                failures += 1
                if failures == 1:
                    log.warning("catching up waits: %s", error)
                await self.pause(failures)


def _readable(page: Page, channel: str, me: Identity) -> list[Shown]:
    found = []
    for message in page.messages:
        try:
            found.append(shown(message, channel, me))
        except PayloadError as error:
            log.debug("a message of %s was left out: %s", channel, error)
    return found


async def read_thread(
    reader: History, channel: str, thread_ts: str, before_ts: str, is_heard: Callable[[str], bool]
) -> tuple[tuple[Quoted, ...], int]:
    """The thread's first message and the newest ones before ``before_ts``, oldest first, without our own; and how
    many in between are left out. ``is_heard`` says whether a user may instruct agents here. Raises ChatError."""
    first: Quoted | None = None
    latest: deque[Quoted] = deque(maxlen=MOST_QUOTED - 1)
    seen = 0
    cursor = ""
    for _ in range(THREAD_PAGES):
        page = await reader.history(channel, thread_ts=thread_ts, cursor=cursor)
        for message in page.messages:
            quoted = _quoted(message, is_heard)
            if quoted is None or quoted.ts >= before_ts:
                continue
            seen += 1
            if first is None:
                first = quoted
            else:
                latest.append(quoted)
        if not (cursor := page.next_cursor):
            break
    said = (first, *latest) if first is not None else ()
    return said, seen - len(said)


def _quoted(message: Mapping[str, Any], is_heard: Callable[[str], bool]) -> Quoted | None:
    """None for what nobody said, and for our own."""
    text, ts = message.get("text"), message.get("ts")
    if not isinstance(text, str) or not isinstance(ts, str) or not text.strip() or op_id_of(message):
        return None
    found = message.get("user")
    user = found if isinstance(found, str) else ""
    is_bot = bool(message.get("bot_id") or message.get("bot_profile"))
    return Quoted(
        ts=ts,
        user=user or str(message.get("bot_id") or ""),
        name=_name(message),
        text=clean(unescape(text))[:QUOTED_CHARS],
        allowed=bool(user) and not is_bot and is_heard(user),
    )


def _name(message: Mapping[str, Any]) -> str:
    profile = message.get("user_profile")
    named = profile if isinstance(profile, Mapping) else {}
    for name in (named.get("display_name"), named.get("real_name"), message.get("username")):
        if isinstance(name, str) and name.strip():
            return clean(name)[:80]
    return ""


def text_of(message: Mapping[str, Any]) -> str:
    """What somebody reads; "" if nothing."""
    text = message.get("text")
    return unescape(text).replace(ZERO_WIDTH_SPACE, "") if isinstance(text, str) else ""


def parts_of(message: Mapping[str, Any]) -> tuple[Section, ...]:
    """All of it, with its boxes and buttons: sections say what ``text``, which Slack bounds, may have to cut."""
    blocks = [block for block in _list(message.get("blocks")) if isinstance(block, Mapping)]
    texts = [unescape(_text(block)) for block in blocks if block.get("type") == "section"]
    shown = "\n".join(filter(None, texts)).replace(ZERO_WIDTH_SPACE, "") or text_of(message)
    rows = [block for block in blocks if block.get("type") == "actions"]
    elements = [each for row in rows for each in _list(row.get("elements")) if isinstance(each, Mapping)]
    boxes = tuple(box for each in elements for box in _boxes(each))
    buttons = tuple(
        Button(_text(each), str(each.get("action_id", "")), str(each.get("value", "")))
        for each in elements
        if each.get("type") == "button"
    )
    return (Section(plain(shown), buttons=buttons, boxes=boxes),)


def _boxes(element: Mapping[str, Any]) -> Iterator[Box]:
    if element.get("action_id") == PICK_ACTION:
        for option in _list(element.get("options")):
            if isinstance(option, Mapping):
                yield Box(_text(option), str(option.get("value", "")))


def _text(element: Mapping[str, Any]) -> str:
    text = element.get("text")
    return str(text.get("text", "")) if isinstance(text, Mapping) else ""


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
