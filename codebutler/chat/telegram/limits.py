"""How often Telegram lets us call: about once a second in a chat, 20 times a minute in a group, 30 times a second in
all. Edits of a group are counted as often as sends; whether both share one budget, Telegram does not say."""

from __future__ import annotations

from types import MappingProxyType

from codebutler.chat.port import Limit, Limits

TELEGRAM_LIMITS = Limits(
    # A channel may be a group: what is right for one is patient enough in a private chat.
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
