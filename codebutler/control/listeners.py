"""Who listens to a thread from inside: `send --wait` and `chat` hear what the sender has just said in it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from codebutler.control.wire import Done, Said
from codebutler.model import Operation, Post, React, Update, Upload

FINAL_REACTIONS = {"white_check_mark": True, "x": False, "octagonal_sign": False}


@dataclass(frozen=True, slots=True)
class Spoken:
    """An operation that took effect; ``ts`` is the message's where it made one."""

    operation: Operation
    ts: str


class Listener:
    """One wish and what is said to it: texts of its thread until its message carries a final reaction."""

    def __init__(self, channel: str, ts: str, thread_ts: str, *, command: bool) -> None:
        self.channel = channel
        self.thread_ts = thread_ts
        self.redact: Callable[[str], str] = str
        """What a terminal shows may be copied anywhere: it holds no more than Slack does."""
        self._ts = ts
        self._command = command
        self._progress: set[str] = set()
        self._queue: asyncio.Queue[Spoken] = asyncio.Queue()

    def hears(self, channel: str) -> bool:
        """Only its own channel."""
        return channel == self.channel

    def hear(self, spoken: Spoken) -> None:
        """Take note of something said in the channel."""
        self._queue.put_nowait(spoken)

    async def replies(self) -> AsyncIterator[Said | Done]:
        """Texts as they come, then Done. A command's first answer is its last."""
        while True:
            spoken = await self._queue.get()
            said = self._said(spoken)
            if said is not None:
                yield Said(text=self.redact(said.text), progress=said.progress)
            if said is not None and self._command:
                yield Done()
                return
            if (verdict := self._verdict(spoken)) is not None:
                yield Done(ok=verdict)
                return

    def _said(self, spoken: Spoken) -> Said | None:
        match spoken.operation:
            case Post(thread_ts=thread_ts, text=text, blocks=blocks) if thread_ts == self.thread_ts:
                progress = any(block.get("type") == "actions" for block in blocks)
                if progress:
                    self._progress.add(spoken.ts)
                return Said(text=_plain(text, blocks), progress=progress)
            case Update(target_ts=ts, text=text) if ts in self._progress:
                return Said(text=text, progress=True)
            case Upload(thread_ts=thread_ts, content=content) if thread_ts == self.thread_ts:
                return Said(text=content.decode(errors="replace"))
        return None

    def _verdict(self, spoken: Spoken) -> bool | None:
        match spoken.operation:
            case React(target_ts=ts, name=name, remove=False) if ts == self._ts:
                return FINAL_REACTIONS.get(name)
        return None


class Hearer(Protocol):
    """Somebody who wants to know what is done in a channel."""

    def hears(self, channel: str) -> bool: ...

    def hear(self, spoken: Spoken) -> None: ...


class Listeners:
    """All who listen now."""

    def __init__(self) -> None:
        self.redact: Callable[[str], str] = str
        """What listeners hear goes through it."""
        self._all: list[Hearer] = []

    def add(self, hearer: Hearer) -> None:
        """``hearer`` hears as long as we live."""
        self._all.append(hearer)

    @contextmanager
    def added(self, listener: Listener) -> Iterator[Listener]:
        """``listener`` hears its channel while the context lives."""
        listener.redact = self.redact
        self._all.append(listener)
        try:
            yield listener
        finally:
            self._all.remove(listener)

    def tell(self, channel: str, operation: Operation, ts: str) -> None:
        """An operation took effect in ``channel``."""
        for listener in self._all:
            if listener.hears(channel):
                listener.hear(Spoken(operation, ts))


def _plain(text: str, blocks: tuple[dict[str, object], ...]) -> str:
    """Markdown reads better in a terminal than Slack's mrkdwn."""
    markdown = [str(block.get("text", "")) for block in blocks if block.get("type") == "markdown"]
    return "\n".join(markdown) or text
