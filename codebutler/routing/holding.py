"""Holds back a channel's messages until what was missed before them has been fetched, so that order holds."""

from __future__ import annotations

from codebutler.intake.entry import Entry, EventRouter
from codebutler.model import Event, MessageDeleted, MessageEdited, MessagePosted


class HoldingRouter:
    """An EventRouter before another one. What is held is in the journal already; clicks, slash commands and
    what comes from this machine never wait."""

    def __init__(self, router: EventRouter) -> None:
        self._router = router
        self._held: dict[str, list[Entry]] = {}

    def hold(self, channel: str) -> None:
        """From now on the channel's messages wait for ``release``."""
        self._held.setdefault(channel, [])

    def release(self, channel: str) -> None:
        """Hand on what waits, in the order it was written. A channel that is not held has nothing waiting."""
        for entry in sorted(self._held.pop(channel, []), key=_moment):
            self._router.route(entry)

    def release_all(self) -> None:
        """Hold nothing any more."""
        for channel in list(self._held):
            self.release(channel)

    def route(self, entry: Entry) -> None:
        """See the port. Of a channel that is held, only what was written in it waits."""
        held = self._held.get(entry.channel)
        if held is None or not _is_written(entry.event):
            self._router.route(entry)
        else:
            held.append(entry)


def _is_written(event: Event) -> bool:
    if isinstance(event, MessagePosted):
        return event.origin == "slack"
    return isinstance(event, MessageEdited | MessageDeleted)


def _moment(entry: Entry) -> tuple[str, int]:
    match entry.event:
        case MessagePosted(ts=ts, origin="slack"):
            return ts, entry.seq
        case MessageEdited(edited_ts=ts):
            return ts, entry.seq
        case MessageDeleted(ts=ts):
            # Slack does not tell when: right after the message itself.
            return ts, entry.seq
    return f"{entry.received_at.timestamp():.6f}", entry.seq
