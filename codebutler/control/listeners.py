"""Who listens to a thread from inside: `send --wait` and `chat` hear what the sender has just said in it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Literal, Protocol

from codebutler.control.ear import Ear, Spoken
from codebutler.control.messages import ControlReply, Done, Ended, Heard, Past, Said
from codebutler.intake.entry import Entry, EventRouter
from codebutler.model import MessagePosted, Operation, Post, React
from codebutler.protocol.messages import Live

FINAL_REACTIONS = {"white_check_mark": True, "x": False, "octagonal_sign": False}
_OUTCOMES: dict[str, Literal["done", "failed", "stopped"]] = {
    "white_check_mark": "done",
    "x": "failed",
    "octagonal_sign": "stopped",
}


class Listener:
    """One wish and what is said to it: texts of its thread until its message carries a final reaction."""

    def __init__(self, channel: str, ts: str, thread_ts: str, *, command: bool) -> None:
        self.channel = channel
        self.ear = Ear(thread_ts)
        self._ts = ts
        self._command = command
        self._queue: asyncio.Queue[Spoken] = asyncio.Queue()

    def hears(self, channel: str) -> bool:
        """Only its own channel."""
        return channel == self.channel

    def hear(self, spoken: Spoken) -> None:
        """Take note of something said in the channel."""
        self._queue.put_nowait(spoken)

    def overhear(self, event: MessagePosted) -> None:
        """Answers alone count."""

    def hear_live(self, live: Live) -> None:
        """Nobody looks before there is an answer."""

    async def replies(self) -> AsyncIterator[Said | Done]:
        """Texts as they come, then Done. A command's first answer is its last."""
        while True:
            spoken = await self._queue.get()
            said = self.ear.said(spoken)
            if said is not None:
                yield said
            if said is not None and self._command:
                yield Done()
                return
            if (verdict := self._verdict(spoken)) is not None:
                yield Done(ok=verdict)
                return

    def _verdict(self, spoken: Spoken) -> bool | None:
        match spoken.operation:
            case React(target_ts=ts, name=name, remove=False) if ts == self._ts:
                return FINAL_REACTIONS.get(name)
        return None


class ChatListener:
    """One terminal's chat: everything in its thread goes into ``queue``, and the outcome of what was said in it.

    ``ear.thread_ts`` is None until something is said. ``begun`` names messages of ours whose outcome is awaited.
    """

    def __init__(
        self, channel: str, thread_ts: str | None, queue: asyncio.Queue[ControlReply | None]
    ) -> None:
        self.channel = channel
        self.ear = Ear(thread_ts)
        self._queue = queue
        self._commands: list[str] = []
        self._prompts: set[str] = set()

    def hears(self, channel: str) -> bool:
        """Only its own channel, once it has a thread."""
        return channel == self.channel and self.ear.thread_ts is not None

    def await_outcome(self, ts: str, *, command: bool) -> None:
        """The operator has said something: a command's outcome is its answer, a prompt's the mark on it."""
        if command:
            self._commands.append(ts)
        else:
            self._prompts.add(ts)

    def hear(self, spoken: Spoken) -> None:
        """Pass on what is said in the thread."""
        said = self.ear.said(spoken)
        if said is not None:
            self._queue.put_nowait(said)
            if isinstance(spoken.operation, Post) and said.kind == "text" and self._commands:
                self._queue.put_nowait(Ended(ts=self._commands.pop(0), outcome="done"))
        match spoken.operation:
            case React(target_ts=ts, name=name, remove=False) if ts in self._prompts and name in _OUTCOMES:
                self._prompts.discard(ts)
                self._queue.put_nowait(Ended(ts=ts, outcome=_OUTCOMES[name]))

    def overhear(self, event: MessagePosted) -> None:
        """Pass on what somebody else writes in the thread."""
        if event.thread_ts is not None and event.thread_ts == self.ear.thread_ts:
            self._queue.put_nowait(Past(who=self.ear.called(event.user), text=self.ear.redact(event.text)))

    def hear_live(self, live: Live) -> None:
        """Pass on what its turn does."""
        if live.thread_ts == self.ear.thread_ts:
            self._queue.put_nowait(Heard(kind=live.kind, text=self.ear.redact(live.text)))


class Hearer(Protocol):
    """Somebody who wants to know what is done in a channel."""

    def hears(self, channel: str) -> bool:
        """Whether what is done in this channel is of interest."""

    def hear(self, spoken: Spoken) -> None:
        """Something was done there, and Slack has taken it. Returns at once."""


class Listening(Hearer, Protocol):
    """Somebody who waits at this machine."""

    ear: Ear

    def overhear(self, event: MessagePosted) -> None:
        """Somebody else wrote in the channel. Returns at once."""

    def hear_live(self, live: Live) -> None:
        """What a running turn says and does before it is posted. Returns at once."""


class Listeners:
    """All who listen now. ``called`` says what a user is called."""

    def __init__(self, called: Callable[[str], str] = str) -> None:
        self._called = called
        self.redact: Callable[[str], str] = str
        """What listeners hear goes through it."""
        self._hearers: list[Hearer] = []
        self._listening: list[Listening] = []

    def add(self, hearer: Hearer) -> None:
        """``hearer`` hears as long as we live."""
        self._hearers.append(hearer)

    @contextmanager
    def added(self, listener: Listening) -> Iterator[None]:
        """``listener`` hears its channel while the context lives."""
        listener.ear.redact, listener.ear.called = self.redact, self._called
        self._listening.append(listener)
        try:
            yield
        finally:
            self._listening.remove(listener)

    def tell(self, channel: str, operation: Operation, ts: str) -> None:
        """An operation took effect in ``channel``."""
        for hearer in (*self._hearers, *self._listening):
            if hearer.hears(channel):
                hearer.hear(Spoken(operation, ts))

    def live(self, channel: str, live: Live) -> None:
        """A turn in ``channel`` says or does something."""
        for listener in self._listening:
            if listener.hears(channel):
                listener.hear_live(live)

    def overhear(self, event: MessagePosted) -> None:
        """Somebody has written, and was let in."""
        for listener in self._listening:
            if listener.hears(event.channel):
                listener.overhear(event)


class OverheardRouter:
    """An EventRouter before another one: who listens to a thread hears what people write in it, too."""

    def __init__(self, router: EventRouter, listeners: Listeners) -> None:
        self._router = router
        self._listeners = listeners

    def route(self, entry: Entry) -> None:
        """Tell, and hand on."""
        if isinstance(entry.event, MessagePosted) and entry.event.origin == "slack":
            self._listeners.overhear(entry.event)
        self._router.route(entry)
