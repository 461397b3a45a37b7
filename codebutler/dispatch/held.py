"""Holds back a channel's messages until what was missed before them has been fetched, so that order holds."""

from __future__ import annotations

from codebutler.dispatch.dispatcher import GoOn
from codebutler.intake.entry import Entry
from codebutler.model import Event, MessageDeleted, MessageEdited, MessagePosted


class HeldBack:
    """A step of the dispatcher. Clicks, slash commands and what comes from this machine never wait."""

    def __init__(self) -> None:
        self._held: dict[str, list[tuple[Entry, GoOn]]] = {}

    def hold(self, channel: str) -> None:
        """From now on the channel's messages wait for ``release``."""
        self._held.setdefault(channel, [])

    def release(self, channel: str) -> None:
        """Hand on what waits, in the order it was written. A channel that is not held has nothing waiting."""
        for entry, go_on in sorted(self._held.pop(channel, []), key=lambda held: _moment(held[0])):
            go_on(entry)

    def release_all(self) -> None:
        """Hold nothing any more."""
        for channel in list(self._held):
            self.release(channel)

    def take(self, entry: Entry, go_on: GoOn) -> None:
        """Of a channel that is held, only what was written in it waits."""
        held = self._held.get(entry.channel)
        if held is None or not _is_written(entry.event):
            go_on(entry)
        else:
            held.append((entry, go_on))


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
