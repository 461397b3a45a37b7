"""Channels we may not write in just now: archived, or we were taken out of them. What is to be said there waits."""

from __future__ import annotations

import logging

from codebutler.chat.delivery.loop import Loop
from codebutler.chat.port import ChannelMoved
from codebutler.process.observers import Observers

PROBE_S = 60.0
"""So often it is tried again where no event says that the channel is back."""
CLOSED = {
    "is_archived": "its channel is archived: unarchive it in Slack",
    "not_in_channel": "the app is not in its channel: write `/invite @CodeButler` there",
    "channel_not_found": "its channel is gone, or private without the app: invite it, or `codebutler add-repo` anew",
}
_AFTER = {"archived": "is_archived", "left": "not_in_channel"}

log = logging.getLogger("codebutler.chat.delivery")


class Channels:
    """Which channels are closed to us, and why."""

    def __init__(self, loop: Loop) -> None:
        self.changed = Observers[()]()
        self._loop = loop
        self._closed: dict[str, str] = {}

    def trouble(self, channel: str) -> str:
        """Why we may not write there and what to do, "" if we may."""
        return CLOSED.get(self._closed.get(channel, ""), "")

    def moved(self, moved: ChannelMoved) -> None:
        """Slack has said so."""
        if moved.how == "back":
            self.accepted(moved.channel)
        else:
            self.refused(moved.channel, _AFTER[moved.how])

    def refused(self, channel: str, code: str) -> None:
        """It was tried, and it is closed."""
        self._loop.closed(channel, PROBE_S)
        if self._closed.get(channel) != code:
            self._closed[channel] = code
            log.warning("%s: %s", channel, CLOSED[code])
            self.changed.tell()

    def accepted(self, channel: str) -> None:
        """Something was said there."""
        if self._closed.pop(channel, None) is not None:
            log.info("%s: what waited is said now", channel)
            self._loop.closed(channel, None)
            self.changed.tell()
