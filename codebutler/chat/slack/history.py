"""Reads a channel's or a thread's messages page by page, however long Slack takes; and reads our own messages
back as parts."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from random import Random
from typing import Any

from codebutler.chat.layout import Box, Section
from codebutler.chat.payload import PayloadError, clean, mappings, section
from codebutler.chat.port import History, HistoryMessage, HistoryPage, Identity
from codebutler.chat.slack.answers import cursor_in, op_id_of
from codebutler.chat.slack.missed import ShownMessage
from codebutler.chat.slack.mrkdwn import ZERO_WIDTH_SPACE, unescape
from codebutler.chat.slack.payloads import shown
from codebutler.domain.clock import Clock
from codebutler.domain.errors import (
    ChatAuthError,
    ChatOutcomeUnknownError,
    ChatRateLimitedError,
    ChatUnreachableError,
)
from codebutler.domain.message import PICK_ACTION, Button
from codebutler.domain.refs import ConversationRef, MessageRef, PersonRef
from codebutler.platform.tasks import full_jitter_s
from codebutler.text.markup import plain

MOST_MESSAGES = 10_000
BACKOFF_BASE_S = 1.0
BACKOFF_CAP_S = 60.0
PASSING = (ChatRateLimitedError, ChatUnreachableError, ChatOutcomeUnknownError, ChatAuthError)
"""Errors that end by themselves, or with a new token."""

log = logging.getLogger("codebutler.chat.slack.catchup")


class HistoryPages:
    """One channel's or thread's messages, page by page."""

    def __init__(
        self, page: Callable[[str], Awaitable[HistoryPage]], channel: ConversationRef, me: Identity
    ) -> None:
        self._page = page
        self._channel = channel
        self._me = me
        self._cursor = ""
        self._count = 0
        self.ended = False
        self.cut_off = False
        """There are more than MOST_MESSAGES: the rest is not read."""

    async def more(self) -> list[ShownMessage]:
        """The next page. Raises ChatError if Slack refuses for good."""
        page = await self._page(self._cursor)
        self._cursor = page.next_cursor
        self._count += len(page.messages)
        self.cut_off = bool(self._cursor) and self._count >= MOST_MESSAGES
        self.ended = self.cut_off or not self._cursor
        return _readable(page, self._channel, self._me)


class PatientHistory:
    """Reads history: ``pages`` and ``read`` retry as long as needed, ``glance`` does not."""

    def __init__(self, reader: History, clock: Clock, rng: Random) -> None:
        self._reader = reader
        self._clock = clock
        self._rng = rng

    def pages(self, channel: ConversationRef, since_s: float, me: Identity) -> HistoryPages:
        """The channel's messages after ``since_s``, newest first."""
        return HistoryPages(partial(self._page, channel, None, since_s), channel, me)

    async def read(
        self, channel: ConversationRef, thread: MessageRef, since_s: float, me: Identity
    ) -> tuple[list[ShownMessage], bool]:
        """The thread's messages after ``since_s``, and whether these are all. Raises ChatError if Slack
        refuses for good."""
        pages = HistoryPages(partial(self._page, channel, thread, since_s), channel, me)
        found: list[ShownMessage] = []
        while not pages.ended:
            found += await pages.more()
        return found, not pages.cut_off

    async def glance(self, channel: ConversationRef, since_s: float, me: Identity) -> list[ShownMessage]:
        """The first page of them. Raises ChatError."""
        return _readable(await self._reader.history(channel, since_s=since_s), channel, me)

    async def pause(self, failures: int) -> None:
        """Wait after the ``failures``-th failure in a row."""
        await self._clock.sleep(full_jitter_s(self._rng, failures, BACKOFF_BASE_S, BACKOFF_CAP_S))

    async def _page(
        self, channel: ConversationRef, thread: MessageRef | None, since_s: float, cursor: str
    ) -> HistoryPage:
        """Retries as long as needed: a page that is unavailable now is read later."""
        failures = 0
        while True:
            try:
                return await self._reader.history(channel, thread=thread, since_s=since_s, cursor=cursor)
            except PASSING as error:
                failures += 1
                if failures == 1:
                    log.warning("catching up is waiting: %s", error)
                await self.pause(failures)


def _readable(page: HistoryPage, channel: ConversationRef, me: Identity) -> list[ShownMessage]:
    found = []
    for message in page.messages:
        try:
            found.append(shown(message.raw, channel, me))
        except PayloadError as error:
            log.debug("left out a message of %s: %s", channel, error)
    return found


def page_in(answer: Mapping[str, Any]) -> HistoryPage:
    """A page of messages. Slack: conversations.history, conversations.replies."""
    return HistoryPage(
        messages=tuple(map(history_message, mappings(answer, "messages"))), next_cursor=cursor_in(answer)
    )


def history_message(raw: Mapping[str, Any]) -> HistoryMessage:
    """A message; a field that is missing or of another type reads as empty."""
    text, is_ours = clean(unescape(_string(raw, "text"))), op_id_of(raw) is not None
    return HistoryMessage(
        ref=MessageRef(_string(raw, "ts")),
        order=_string(raw, "ts"),
        user=PersonRef(_string(raw, "user") or _string(raw, "bot_id")),
        name=_name(raw),
        text=text.replace(ZERO_WIDTH_SPACE, "") if is_ours else text,
        is_person=bool(_string(raw, "user")) and not (raw.get("bot_id") or raw.get("bot_profile")),
        is_ours=is_ours,
        parts=_parts(raw) if is_ours else (),
        raw=raw,
    )


def _name(message: Mapping[str, Any]) -> str:
    named = section(message, "user_profile")
    for name in (named.get("display_name"), named.get("real_name"), message.get("username")):
        if isinstance(name, str) and name.strip():
            return clean(name)[:80]
    return ""


def _parts(message: Mapping[str, Any]) -> tuple[Section, ...]:
    """The whole text, with its boxes and buttons: sections hold what ``text``, which Slack limits, may have
    to cut."""
    blocks = mappings(message, "blocks")
    texts = [unescape(_text(block)) for block in blocks if block.get("type") == "section"]
    text = "\n".join(filter(None, texts)) or unescape(_string(message, "text"))
    rows = [block for block in blocks if block.get("type") == "actions"]
    elements = [each for row in rows for each in mappings(row, "elements")]
    boxes = tuple(box for each in elements for box in _boxes(each))
    buttons = tuple(
        Button(_text(each), str(each.get("action_id", "")), str(each.get("value", "")))
        for each in elements
        if each.get("type") == "button"
    )
    return (Section(plain(text.replace(ZERO_WIDTH_SPACE, "")), buttons=buttons, boxes=boxes),)


def _boxes(element: Mapping[str, Any]) -> Iterator[Box]:
    if element.get("action_id") == PICK_ACTION:
        for option in mappings(element, "options"):
            yield Box(_text(option), str(option.get("value", "")))


def _text(element: Mapping[str, Any]) -> str:
    return str(section(element, "text").get("text", ""))


def _string(data: Mapping[str, Any], name: str) -> str:
    value = data.get(name)
    return value if isinstance(value, str) else ""
