"""How often Slack lets us call: rate limits are per method, workspace and app; chat.postMessage also about one a second
and channel, with short bursts. Tier 2 = 20, tier 3 = 50, tier 4 = 100 calls a minute."""

from __future__ import annotations

from types import MappingProxyType

from codebutler.chat.port import Limit, Limits

_TIER_2 = Limit(per_minute=18, burst=5)
_TIER_3 = Limit(per_minute=50, burst=10)
_TIER_4 = Limit(per_minute=100, burst=10)

SLACK_LIMITS = Limits(
    # A little below what Slack takes: calls that leave a second apart may arrive closer together.
    channel=MappingProxyType({"post": Limit(per_minute=58, burst=5)}),
    workspace=MappingProxyType(
        {
            "post": Limit(per_minute=300, burst=50),
            "whisper": _TIER_4,
            "update": _TIER_3,
            "delete": _TIER_3,
            "start_stream": _TIER_2,
            "append_stream": Limit(per_minute=95, burst=10),
            "stop_stream": _TIER_2,
            "react": Limit(per_minute=50, burst=20),
            "unreact": Limit(per_minute=20, burst=10),
            "share": _TIER_4,
            # A start looks at every channel at once.
            "history": Limit(per_minute=50, burst=20),
            "replies": Limit(per_minute=50, burst=20),
        }
    ),
    closed=MappingProxyType(
        {
            "is_archived": "its channel is archived: unarchive it in Slack",
            "not_in_channel": "the app is not in its channel: write `/invite @CodeButler` there",
            "channel_not_found": (
                "its channel is gone, or private without the app: invite it, or `codebutler add-repo` anew"
            ),
        }
    ),
)
