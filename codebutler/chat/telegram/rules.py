"""Telegram's specifics: its numbers as our names and back, its rate limits, the meaning of its answers. Pure.

A channel is ``tg:<chat id>``, a person ``tg:<user id>``. The ref of a message is its number in its chat,
padded to sort as text. Numbers are small and start over in every chat, so in a private chat, whose messages
are kept beside a group's, the ref names the chat too. A group that has become a supergroup counts from one
again under another number: for us it stays the same channel, and its messages are of the next ``era``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import timedelta
from types import MappingProxyType

from codebutler.chat.port import Call, Limit, Limits
from codebutler.domain.errors import (
    ChatAuthError,
    ChatError,
    ChatOutcomeUnknownError,
    ChatRateLimitedError,
    ChatUnreachableError,
)
from codebutler.domain.model import Mark
from codebutler.domain.refs import ConversationRef, MessageRef, PersonRef

PREFIX = "tg:"
ERA = 10**11
"""Larger than every message number."""

_ID = re.compile(r"tg:(-?[1-9][0-9]{0,18})")
_REF = re.compile(r"([0-9]{12})(?:\.[0-9]{1,19})?")
_PRIVATE: Mapping[Call, Limit] = MappingProxyType(
    {
        "post": Limit(per_minute=55, burst=5),
        "update": Limit(per_minute=30, burst=5),
        "share": Limit(per_minute=30, burst=3),
        "react": Limit(per_minute=55, burst=10),
        "unreact": Limit(per_minute=55, burst=10),
        "publish": Limit(per_minute=20, burst=3),
    }
)
DEFAULT_RETRY_AFTER_S = 30.0
MAX_RETRY_AFTER_S = 86_400.0
"""A sender that ignores it has to wait longer."""
REFUSED = "Telegram refuses telegram.botToken ({why}): get one from @BotFather and run `codebutler setup`"
CODES: tuple[tuple[str, str], ...] = (
    ("message is not modified", "not_modified"),
    ("message to edit not found", "message_not_found"),
    ("message to delete not found", "message_not_found"),
    ("message to react not found", "message_not_found"),
    ("message can't be edited", "cant_update_message"),
    ("message can't be deleted", "cant_delete_message"),
    ("message thread not found", "thread_not_found"),
    ("topic_deleted", "thread_not_found"),
    ("topic_closed", "thread_not_found"),
    ("reaction_invalid", "invalid_reaction"),
    ("query is too old", "query_too_old"),
    ("chat not found", "channel_not_found"),
    ("terminated by other getupdates", "other_consumer"),
    ("webhook is active", "webhook"),
    ("can't initiate conversation", "not_in_channel"),
    ("bot was blocked", "not_in_channel"),
    ("bot was kicked", "not_in_channel"),
    ("bot is not a member", "not_in_channel"),
    ("user is deactivated", "not_in_channel"),
    ("was deleted", "channel_not_found"),
    ("peer_id_invalid", "channel_not_found"),
    ("chat_write_forbidden", "not_in_channel"),
    ("not enough rights to send", "not_in_channel"),
    ("not enough rights", "restricted"),
    ("have no rights to send", "not_in_channel"),
    ("message is too long", "msg_too_long"),
    ("too big", "too_large"),
    ("entit", "invalid_entities"),
    ("text must be non-empty", "no_text"),
    ("wrong file", "file_not_found"),
    ("invalid file", "file_not_found"),
)
"""Phrases in Telegram's descriptions, which alone tell refusals apart, and our code for each."""
_TOKEN = re.compile(r"[0-9]{6,12}:[A-Za-z0-9_-]{20,}")
REACTIONS: Mapping[Mark, str] = MappingProxyType(
    {
        "queued": "👀",
        "working": "👨‍💻",
        "waiting": "🤔",
        "done": "👍",
        "failed": "👎",
        "stopped": "🤷",
    }
)
"""Telegram does not allow ⏳ ✅ ❌ 🛑 ✋."""


def channel_of(number: int) -> ConversationRef:
    """Our name for the chat of that number."""
    return ConversationRef(f"{PREFIX}{number}")


def person_of(number: int) -> PersonRef:
    """Our name for the person of that number."""
    return PersonRef(f"{PREFIX}{number}")


def number_of(name: ConversationRef | PersonRef) -> int:
    """The number of a chat or a person. Raises ChatError."""
    if not (found := _ID.fullmatch(name)):
        raise ChatError(f"{name[:40]!r} is not a Telegram chat", "channel_not_found")
    return int(found[1])


def is_private(channel: ConversationRef) -> bool:
    """Whether it is a person's private chat with us; False if it is not a Telegram chat."""
    return _ID.fullmatch(channel) is not None and number_of(channel) > 0


def ref_of(chat: int, message: int, era: int = 0) -> MessageRef:
    """The ref of a message."""
    padded = f"{era * ERA + message:012d}"
    return MessageRef(f"{padded}.{chat}" if chat > 0 else padded)


def message_of(ref: MessageRef) -> int:
    """The number of a message, in any era. Raises ChatError."""
    return _parse_ref(ref) % ERA


def era_of(ref: MessageRef) -> int:
    """The chat number under which a message was written. Raises ChatError."""
    return _parse_ref(ref) // ERA


def _parse_ref(ref: MessageRef) -> int:
    if not (found := _REF.fullmatch(ref)):
        raise ChatError(f"{ref[:40]!r} is not a Telegram message", "message_not_found")
    return int(found[1])


TELEGRAM_LIMITS = Limits(
    private=_PRIVATE,
    is_private=is_private,
    kept=timedelta(hours=24),
    presses_kept=timedelta(seconds=150),
    closed=MappingProxyType(
        {
            "not_in_channel": "the bot is not in its group, or may not write there: add it, as an administrator",
            "channel_not_found": "its group is gone, or without the bot: add it, or run `codebutler add-repo` again",
            "no_topic": "its topic was deleted, and the bot may not create another: let it manage topics",
        }
    ),
    channel=MappingProxyType(
        {
            "post": Limit(per_minute=18, burst=6),
            # One every six seconds: a faster sender loses the end of answers to a penalty of minutes.
            "update": Limit(per_minute=10, burst=3),
            "share": Limit(per_minute=10, burst=3),
            "react": Limit(per_minute=20, burst=8),
            "unreact": Limit(per_minute=20, burst=8),
        }
    ),
    workspace=MappingProxyType(
        {
            "post": Limit(per_minute=1200, burst=20),
            "update": Limit(per_minute=600, burst=20),
            "share": Limit(per_minute=300, burst=10),
            "react": Limit(per_minute=600, burst=20),
            "unreact": Limit(per_minute=600, burst=20),
        }
    ),
)


class MovedError(ChatError):
    """The group has become a supergroup, which has another number."""

    def __init__(self, chat: int) -> None:
        super().__init__(f"the group is now {chat}", "moved")
        self.chat = chat


def refusal(method: str, status: int, body: object, *, write: bool) -> ChatError:
    """The error in an answer without ``ok: true``. ``write``: a second call would show."""
    answer = body if isinstance(body, Mapping) else {}
    parameters = answer.get("parameters")
    parameters = parameters if isinstance(parameters, Mapping) else {}
    description = answer.get("description")
    why = _TOKEN.sub("…", description)[:200] if isinstance(description, str) else ""
    if status == 429 or answer.get("error_code") == 429:
        return ChatRateLimitedError(_seconds(parameters.get("retry_after")))
    if not answer or status >= 500:
        return interrupted(method, f"status {status}", write=write)
    # A malformed token is an address that does not exist.
    if status == 401 or (status == 404 and why.lower() in ("not found", "")):
        return ChatAuthError(REFUSED.format(why=why or status), "invalid_auth")
    if isinstance(moved := parameters.get("migrate_to_chat_id"), int):
        return MovedError(moved)
    code = next((code for words, code in CODES if words in why.lower()), f"status_{status}")
    return ChatError(f"Telegram refused {method}: {why or status}", code)


def interrupted(method: str, why: str, *, write: bool) -> ChatError:
    """The request went out, and no usable answer came back."""
    if write:
        return ChatOutcomeUnknownError(f"no clear answer from Telegram to {method}: {why}", "outcome_unknown")
    return ChatUnreachableError(f"no answer from Telegram to {method}: {why}", "unreachable")


def unreachable(method: str, why: str) -> ChatError:
    """The request never left."""
    return ChatUnreachableError(f"Telegram cannot be reached for {method}: {why}", "unreachable")


def check_token(token: str) -> str:
    """The token, stripped. Raises ChatAuthError if it is obviously invalid: it becomes a part of addresses."""
    token = token.strip()
    if not token:
        raise ChatAuthError("no bot token: get one from @BotFather and run `codebutler setup`")
    if not re.fullmatch(r"[0-9]{1,20}:[A-Za-z0-9_-]{10,100}", token):
        raise ChatAuthError(
            "telegram.botToken is not the token of a Telegram bot (123456789:AA…): copy it again",
            "invalid_auth",
        )
    return token


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        return DEFAULT_RETRY_AFTER_S
    return min(float(value), MAX_RETRY_AFTER_S)


def marks_after(before: tuple[Mark, ...], mark: Mark, *, remove: bool) -> tuple[Mark, ...] | None:
    """A message's marks after a change; None if nothing changes. Telegram allows one reaction of ours on a message: it
    shows the last mark. Marks set by an earlier process are unknown: removing one, and whatever replaced it, would be
    worse than leaving it."""
    if remove:
        return tuple(each for each in before if each != mark) if mark in before else None
    return (*(each for each in before if each != mark), mark) if before[-1:] != (mark,) else None
