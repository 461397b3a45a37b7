"""How often Telegram lets us call: about once a second in a chat, 20 times a minute in a group, 30 times a second in
all. Edits of a group are counted as often as sends; whether both share one budget, Telegram does not say."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from types import MappingProxyType

from codebutler.chat.port import Call, Limit, Limits
from codebutler.chat.telegram.ids import is_private

_PRIVATE: Mapping[Call, Limit] = MappingProxyType(
    {
        "post": Limit(per_minute=55, burst=5),
        "update": Limit(per_minute=30, burst=5),
        "share": Limit(per_minute=30, burst=3),
        "react": Limit(per_minute=55, burst=10),
        "unreact": Limit(per_minute=55, burst=10),
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
