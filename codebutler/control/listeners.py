"""Who listens to a thread from inside: `send --wait` and `chat` hear what the sender has just said in it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Protocol

from codebutler.control.ear import Ear, Spoken
from codebutler.control.messages import ControlReply, Done, Ended, Heard, Past, Said, Started
from codebutler.domain.model import MessagePosted, Operation, TurnOutcome
from codebutler.intake.dispatcher import GoOn
from codebutler.intake.records import Entry
from codebutler.protocol.messages import Live


class Listener:
    """One wish and what is said to it: texts of its thread until its message has its outcome."""

    def __init__(self, channel: str, ts: str, thread_ts: str) -> None:
        self.channel = channel
        self.ear = Ear(thread_ts)
        self._ts = ts
        self._queue: asyncio.Queue[Said | Done] = asyncio.Queue()

    def hears(self, channel: str) -> bool:
        """Only its own channel."""
        return channel == self.channel

    def hear(self, spoken: Spoken) -> None:
        """Take note of something said in the channel."""
        if (said := self.ear.said(spoken)) is not None:
            self._queue.put_nowait(said)

    def started(self, messages: Collection[str]) -> None:
        """Answers alone count."""

    def ended(self, messages: Collection[str], outcome: TurnOutcome) -> None:
        """All that was to be said is said."""
        if self._ts in messages:
            self._queue.put_nowait(Done(ok=outcome == "done", text=outcome))

    def overhear(self, event: MessagePosted) -> None:
        """Answers alone count."""

    def hear_live(self, live: Live) -> None:
        """Nobody looks before there is an answer."""

    async def replies(self) -> AsyncIterator[Said | Done]:
        """Texts as they come, then Done with the outcome."""
        while True:
            reply = await self._queue.get()
            yield reply
            if isinstance(reply, Done):
                return


class ChatListener:
    """One terminal's chat: everything in its thread goes into ``queue``, and the outcome of what was said in it.

    ``ear.thread_ts`` is None until something is said.
    """

    def __init__(
        self, channel: str, thread_ts: str | None, queue: asyncio.Queue[ControlReply | None]
    ) -> None:
        self.channel = channel
        self.ear = Ear(thread_ts)
        self._queue = queue
        self._awaited: set[str] = set()

    def hears(self, channel: str) -> bool:
        """Only its own channel, once it has a thread."""
        return channel == self.channel and self.ear.thread_ts is not None

    def await_outcome(self, ts: str) -> None:
        """The operator has said something: its outcome is to be told."""
        self._awaited.add(ts)

    def hear(self, spoken: Spoken) -> None:
        """Pass on what is said in the thread."""
        said = self.ear.said(spoken)
        if said is not None:
            self._queue.put_nowait(said)

    def started(self, messages: Collection[str]) -> None:
        """Pass on that the operator's own words are worked on."""
        for ts in self._awaited.intersection(messages):
            self._queue.put_nowait(Started(ts=ts))

    def ended(self, messages: Collection[str], outcome: TurnOutcome) -> None:
        """Pass on what became of the operator's own words."""
        for ts in self._awaited.intersection(messages):
            self._awaited.discard(ts)
            self._queue.put_nowait(Ended(ts=ts, outcome=outcome))

    def overhear(self, event: MessagePosted) -> None:
        """Pass on what somebody else writes in the thread."""
        if event.thread_ts is not None and event.thread_ts == self.ear.thread_ts:
            self._queue.put_nowait(Past(who=self.ear.called(event.user), text=self.ear.redact(event.text)))

    def hear_live(self, live: Live) -> None:
        """Pass on what its turn does."""
        if live.thread_ts == self.ear.thread_ts:
            self._queue.put_nowait(Heard(kind=live.kind, text=self.ear.redact(live.text)))


class Awaiting(Protocol):
    """Somebody who waits for outcomes however long, over restarts too."""

    async def ended(self, channel: str, messages: Collection[str], outcome: TurnOutcome) -> None:
        """Messages of the channel have their outcome; what is kept of it is on disk when this returns."""


class Listening(Protocol):
    """Somebody who waits at this machine. Each method returns at once."""

    ear: Ear

    def hears(self, channel: str) -> bool:
        """Whether what is done in this channel is of interest."""

    def hear(self, spoken: Spoken) -> None:
        """Something was done there, and the chat has taken it."""

    def started(self, messages: Collection[str]) -> None:
        """These messages are being worked on."""

    def ended(self, messages: Collection[str], outcome: TurnOutcome) -> None:
        """These messages have their outcome, and what answers them has been heard."""

    def overhear(self, event: MessagePosted) -> None:
        """Somebody else wrote in the channel."""

    def hear_live(self, live: Live) -> None:
        """What a running turn says and does before it is posted."""


class Listeners:
    """All who listen now. ``called`` says what a user is called; what they hear goes through ``redact``."""

    def __init__(self, called: Callable[[str], str] = str, redact: Callable[[str], str] = str) -> None:
        self._called = called
        self._redact = redact
        self._awaiting: list[Awaiting] = []
        self._listening: list[Listening] = []

    def add(self, awaiting: Awaiting) -> None:
        """``awaiting`` hears of outcomes as long as we live."""
        self._awaiting.append(awaiting)

    @contextmanager
    def added(self, listener: Listening) -> Iterator[None]:
        """``listener`` hears its channel while the context lives."""
        listener.ear.redact, listener.ear.called = self._redact, self._called
        self._listening.append(listener)
        try:
            yield
        finally:
            self._listening.remove(listener)

    def tell(self, channel: str, operation: Operation, ts: str) -> None:
        """An operation took effect in ``channel``."""
        for listener in self._of(channel):
            listener.hear(Spoken(operation, ts))

    def started(self, channel: str, messages: Collection[str]) -> None:
        """Messages of ``channel`` are being worked on."""
        for listener in self._of(channel):
            listener.started(messages)

    async def ended(self, channel: str, messages: Collection[str], outcome: TurnOutcome) -> None:
        """Messages of ``channel`` have their outcome."""
        for listener in self._of(channel):
            listener.ended(messages, outcome)
        for awaiting in self._awaiting:
            await awaiting.ended(channel, messages, outcome)

    def live(self, channel: str, live: Live) -> None:
        """A turn in ``channel`` says or does something."""
        for listener in self._of(channel):
            listener.hear_live(live)

    def overhear(self, entry: Entry, go_on: GoOn) -> None:
        """A step of the dispatcher: who listens to a thread hears what people write in it, too."""
        event = entry.event
        if isinstance(event, MessagePosted) and event.origin == "chat":
            for listener in self._of(event.channel):
                listener.overhear(event)
        go_on(entry)

    def _of(self, channel: str) -> list[Listening]:
        return [listener for listener in self._listening if listener.hears(channel)]
