"""Holds back a channel's messages until what was missed before them has been fetched, so that order holds."""

from __future__ import annotations

from codebutler.domain.model import Event, MessageDeleted, MessageEdited, MessagePosted
from codebutler.intake.dispatcher import GoOn
from codebutler.intake.entry import Entry


class HeldBack:
    """A step of the dispatcher. Clicks, slash commands and what comes from this machine never wait."""

    def __init__(self) -> None:
        self._held: dict[str, list[tuple[str, Entry, GoOn]]] = {}

    def hold(self, channel: str) -> None:
        """From now on the channel's messages wait for ``release``."""
        self._held.setdefault(channel, [])

    def release(self, channel: str) -> None:
        """Hand on what waits, in the order it was written. A channel that is not held has nothing waiting."""
        for _, entry, go_on in sorted(self._held.pop(channel, []), key=lambda held: (held[0], held[1].seq)):
            go_on(entry)

    def release_all(self) -> None:
        """Hold nothing any more."""
        for channel in list(self._held):
            self.release(channel)

    def take(self, entry: Entry, go_on: GoOn) -> None:
        """Of a channel that is held, only what was written in it waits."""
        held, order = self._held.get(entry.channel), _order(entry.event)
        if held is None or order is None:
            go_on(entry)
        else:
            held.append((order, entry, go_on))


def _order(event: Event) -> str | None:
    """Of what was written in the chat; None for everything else."""
    match event:
        case MessagePosted(origin="chat", order=order) | MessageEdited(order=order):
            return order
        case MessageDeleted(order=order):
            return order
    return None
