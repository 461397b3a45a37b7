"""Links into the chat. Pure."""

from __future__ import annotations

ARCHIVES = "https://slack.com/archives/"
"""Any workspace's; the parent, which knows ours, puts its address there."""


def thread_link(channel: str, ts: str, label: str) -> str:
    """A message as a link; ``label`` is mrkdwn already."""
    return f"<{ARCHIVES}{channel}/p{ts.replace('.', '')}|{label.replace('|', '¦')}>"
