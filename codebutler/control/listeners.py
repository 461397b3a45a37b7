"""Who listens to a thread from inside: `send --wait` and `chat` hear what the sender has just said in it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Literal, Protocol

from codebutler.control.ear import Ear, Spoken
from codebutler.control.messages import ControlReply, Done, Ended, Heard, Past, Said
from codebutler.dispatch.dispatcher import GoOn
from codebutler.intake.entry import Entry
from codebutler.model import MessagePosted, Operation, React, Upload
from codebutler.protocol.messages import Live

Outcome = Literal["done", "failed", "stopped"]
OUTCOMES: dict[str, Outcome] = {
    "white_check_mark": "done",
    "x": "failed",
    "octagonal_sign": "stopped",
}


class Listener:
    """One wish and what is said to it: texts of its thread until its message carries a final reaction, and the files
    that were on their way by then."""

    def __init__(self, channel: str, ts: str, thread_ts: str) -> None:
        self.channel = channel
        self.ear = Ear(thread_ts)
        self._ts = ts
        self._files = 0
        self._queue: asyncio.Queue[Spoken | None] = asyncio.Queue()

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
        """Texts as they come, then Done with the outcome."""
        outcome: Outcome | None = None
        while outcome is None or self._files or not self._queue.empty():
            spoken = await self._queue.get()
            if spoken is None:
                continue
            if (said := self.ear.said(spoken)) is not None:
                yield said
            outcome = outcome or outcome_of(spoken, {self._ts})
        yield Done(ok=outcome == "done", text=outcome)

    def sending(self, operation: Operation) -> None:
        """It takes Slack longer to take a file than the answer, and the mark, that come after it."""
        self._files += self._is_file(operation)

    def settled(self, operation: Operation) -> None:
        """One that is on its way no more."""
        self._files -= self._is_file(operation)
        self._queue.put_nowait(None)

    def _is_file(self, operation: Operation) -> bool:
        return isinstance(operation, Upload) and operation.thread_ts == self.ear.thread_ts


def outcome_of(spoken: Spoken, awaited: Collection[str]) -> Outcome | None:
    """What the operation says of the message whose outcome is ``awaited``, None if nothing: its final mark."""
    match spoken.operation:
        case React(target_ts=ts, name=name, remove=False) if ts in awaited:
            return OUTCOMES.get(name)
    return None


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
        if isinstance(spoken.operation, React) and (outcome := outcome_of(spoken, self._awaited)):
            ts = spoken.operation.target_ts
            self._awaited.discard(ts)
            self._queue.put_nowait(Ended(ts=ts, outcome=outcome))

    def sending(self, operation: Operation) -> None:
        """It is shown when it is there."""

    def settled(self, operation: Operation) -> None:
        """A chat goes on."""

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

    def sending(self, operation: Operation) -> None:
        """An operation is on its way to the channel. Returns at once."""

    def settled(self, operation: Operation) -> None:
        """It is on its way no more: it has been told, or was refused. Returns at once."""

    def overhear(self, event: MessagePosted) -> None:
        """Somebody else wrote in the channel. Returns at once."""

    def hear_live(self, live: Live) -> None:
        """What a running turn says and does before it is posted. Returns at once."""


class Listeners:
    """All who listen now. ``called`` says what a user is called; what they hear goes through ``redact``."""

    def __init__(self, called: Callable[[str], str] = str, redact: Callable[[str], str] = str) -> None:
        self._called = called
        self._redact = redact
        self._hearers: list[Hearer] = []
        self._listening: list[Listening] = []

    def add(self, hearer: Hearer) -> None:
        """``hearer`` hears as long as we live."""
        self._hearers.append(hearer)

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
        for hearer in (*self._hearers, *self._listening):
            if hearer.hears(channel):
                hearer.hear(Spoken(operation, ts))

    @contextmanager
    def sending(self, channel: str, operation: Operation) -> Iterator[None]:
        """``operation`` is on its way while the context lives; what becomes of it is told within."""
        listening = [listener for listener in self._listening if listener.hears(channel)]
        for listener in listening:
            listener.sending(operation)
        try:
            yield
        finally:
            for listener in listening:
                listener.settled(operation)

    def live(self, channel: str, live: Live) -> None:
        """A turn in ``channel`` says or does something."""
        for listener in self._listening:
            if listener.hears(channel):
                listener.hear_live(live)

    def overhear(self, entry: Entry, go_on: GoOn) -> None:
        """A step of the dispatcher: who listens to a thread hears what people write in it, too."""
        event = entry.event
        if isinstance(event, MessagePosted) and event.origin == "slack":
            for listener in self._listening:
                if listener.hears(event.channel):
                    listener.overhear(event)
        go_on(entry)
