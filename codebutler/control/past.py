"""The last messages of a thread, as a terminal shows them when a chat goes on."""

from __future__ import annotations

import re
from collections import deque

from codebutler.chat.chats import THREAD_PAGES
from codebutler.chat.port import History, HistoryMessage
from codebutler.control.ear import Ear, choices_of
from codebutler.control.messages import Past, Said
from codebutler.domain.model import OPERATOR
from codebutler.text.markup import plain

MAX_CHARS = 4_000
"""Of one message."""
_OPERATOR = f"*{OPERATOR}:* "
"""As the chat's history tells it."""
_FIGURES = re.compile(r"(?:✅|❌|🛑|⚠️|⏸️) (?:Done|\d+s|\d+m\d\ds|\d+h\d\dm)\b[^\n]*")


def as_operator(text: str) -> str:
    """The operator's words as they stand in the channel, so that everybody there sees what was asked."""
    return f"**{OPERATOR}:** {plain(text)}"


async def read_past(
    reader: History, channel: str, thread_ts: str, most: int, ear: Ear
) -> tuple[Past | Said, ...]:
    """At most ``most`` messages of the thread, oldest first; what still waits for a decision or can be stopped is Said,
    as ``ear`` hears it. Raises ChatError."""
    latest: deque[Past | Said] = deque(maxlen=most)
    cursor = ""
    for _ in range(THREAD_PAGES):
        page = await reader.history(channel, thread_ts=thread_ts, cursor=cursor)
        latest.extend(past for message in page.messages if (past := _past(message, ear)) is not None)
        if not (cursor := page.next_cursor):
            break
    return tuple(latest)


def _past(message: HistoryMessage, ear: Ear) -> Past | Said | None:
    """None for what says nothing, such as what a progress message has shrunk to."""
    text, ours = message.text, message.is_ours
    if not text.strip() or (ours and _FIGURES.fullmatch(text.strip())):
        return None
    if any(choices_of(message.parts, str)):
        return ear.hear(message.ts, message.parts)
    who = "" if ours else ear.called(message.user or "?")
    if ours and text.startswith(_OPERATOR):
        who, text = OPERATOR, text.removeprefix(_OPERATOR)
    return Past(who=who, text=ear.redact(text[:MAX_CHARS]))
