"""`codebutler` without Slack's rate limits: what an endurance run measures is the product, not its waiting.

Run as ``python unlimited.py COMMAND…``; only the last words, after ``codebutler``, are used.
"""

from __future__ import annotations

import sys

from codebutler.__main__ import main
from codebutler.chat.port import Limits
from codebutler.chat.slack import api


def unlimited(limits: Limits) -> Limits:
    """The same without any limit; what the codes of closed channels mean stays."""
    return Limits(channel={}, workspace={}, closed=limits.closed)


if __name__ == "__main__":
    api.SLACK_LIMITS = unlimited(api.SLACK_LIMITS)
    sys.exit(main(sys.argv[sys.argv.index("codebutler") + 1 :]))
