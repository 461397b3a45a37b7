"""Telegram's numbers as our names for them, and back. Pure.

A channel is ``tg:<chat id>``, a person ``tg:<user id>``. The ts of a message is its number in its chat, padded to sort
as text. Numbers are small and begin anew in every chat, so in a private chat, whose messages are kept beside a
group's, the ts names the chat too. A group that has become a supergroup counts from one again under another number:
to us it stays the channel it was, and its messages are of the next ``era``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from types import MappingProxyType

from codebutler.chat.port import Call, Limit, Limits
from codebutler.domain.errors import ChatError

PREFIX = "tg:"
ERA = 10**11
"""More than any message's number."""

_NAME = re.compile(r"tg:(-?[1-9][0-9]{0,18})")
_TS = re.compile(r"([0-9]{12})(?:\.[0-9]{1,19})?")


def name_of(number: int) -> str:
    """A chat or a person."""
    return f"{PREFIX}{number}"


def number_of(name: str) -> int:
    """The number of a chat or a person. Raises ChatError."""
    if not (found := _NAME.fullmatch(name)):
        raise ChatError(f"{name[:40]!r} is no chat of Telegram", "channel_not_found")
    return int(found[1])


def is_private(channel: str) -> bool:
    """Whether it is somebody's chat with us alone; what is no chat of Telegram is none."""
    return _NAME.fullmatch(channel) is not None and number_of(channel) > 0


def ts_of(chat: int, message: int, era: int = 0) -> str:
    """The ts of a message."""
    padded = f"{era * ERA + message:012d}"
    return f"{padded}.{chat}" if chat > 0 else padded


def message_of(ts: str) -> int:
    """The number of a message, in whatever era. Raises ChatError."""
    if not (found := _TS.fullmatch(ts)):
        raise ChatError(f"{ts[:40]!r} is no message of Telegram", "message_not_found")
    return int(found[1]) % ERA


def era_of(ts: str) -> int:
    """Under which number of its chat a message was written. Raises ChatError."""
    if not (found := _TS.fullmatch(ts)):
        raise ChatError(f"{ts[:40]!r} is no message of Telegram", "message_not_found")
    return int(found[1]) // ERA


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


class TelegramLimits(Limits):
    """``channel`` is what a group takes; a private chat takes more."""

    def within(self, channel: str) -> Mapping[Call, Limit]:
        """See Limits."""
        return _PRIVATE if is_private(channel) else self.channel


TELEGRAM_LIMITS = TelegramLimits(
    kept=timedelta(hours=24),
    closed=MappingProxyType(
        {
            "not_in_channel": "the bot is not in its group, or may not write there: add it, as an administrator",
            "channel_not_found": "its group is gone, or without the bot: add it, or `codebutler add-repo` anew",
            "no_topic": "a topic is gone, and the bot may make no other: let it manage topics",
        }
    ),
    channel=MappingProxyType(
        {
            "post": Limit(per_minute=18, burst=6),
            # One every six seconds: who hurries loses the end of answers to a penalty of minutes.
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
