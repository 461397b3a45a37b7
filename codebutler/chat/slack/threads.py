"""What was said in a thread before us, for an agent that was called into it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from codebutler.chat.port import History
from codebutler.chat.slack.escape import unescape
from codebutler.chat.slack.metadata import op_id_of
from codebutler.model import Quoted

MOST = 50
MAX_PAGES = 5
MAX_CHARS = 4_000
"""Of one message."""


async def read_thread(
    reader: History, channel: str, thread_ts: str, before_ts: str, is_heard: Callable[[str], bool]
) -> tuple[tuple[Quoted, ...], int]:
    """The thread's first message and the newest ones before ``before_ts``, oldest first, without our own; and how
    many in between are left out. ``is_heard`` says whether a user may instruct agents here. Raises ChatError."""
    first: Quoted | None = None
    latest: deque[Quoted] = deque(maxlen=MOST - 1)
    seen = 0
    cursor = ""
    for _ in range(MAX_PAGES):
        page = await reader.history(channel, thread_ts=thread_ts, cursor=cursor)
        for message in page.messages:
            quoted = _quoted(message, is_heard)
            if quoted is None or _order(quoted.ts) >= _order(before_ts):
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
        text=_clean(unescape(text))[:MAX_CHARS],
        allowed=bool(user) and not is_bot and is_heard(user),
    )


def _name(message: Mapping[str, Any]) -> str:
    profile = message.get("user_profile")
    named = profile if isinstance(profile, Mapping) else {}
    for name in (named.get("display_name"), named.get("real_name"), message.get("username")):
        if isinstance(name, str) and name.strip():
            return _clean(name)[:80]
    return ""


def _clean(text: str) -> str:
    """As everything that people write: without NUL and half characters."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()


def _order(ts: str) -> float:
    try:
        return float(ts)
    except ValueError:
        return float("inf")
