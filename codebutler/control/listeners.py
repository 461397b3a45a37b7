"""Who follows a thread at this machine: `send --wait` and `chat` are told what is said in it, and what was."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import contextmanager

from codebutler.chat.chats import THREAD_PAGES
from codebutler.chat.layout import Section, sections
from codebutler.chat.port import History, HistoryMessage
from codebutler.control.messages import (
    Choice,
    ControlReply,
    Done,
    Ended,
    Heard,
    Past,
    Said,
    SaidKind,
    Started,
)
from codebutler.domain.message import PICK_ACTION, REASON_ACTION, STOP_ACTION
from codebutler.domain.model import OPERATOR, MessagePosted, Operation, Post, TurnOutcome, Update, Upload
from codebutler.intake.dispatcher import GoOn
from codebutler.intake.records import Entry
from codebutler.protocol.messages import Live
from codebutler.text.markup import ZERO_WIDTH_SPACE, bare, plain

ANSWER_FILE = "answer.md"
SHOWN_FILE_BYTES = 200_000
"""A terminal is no place for more."""

MAX_CHARS = 4_000
"""Of one message."""
_OPERATOR = f"*{OPERATOR}:* "
"""As the chat's history tells it."""
_FIGURES = re.compile(r"(?:✅|❌|🛑|⚠️|⏸️) (?:Done|\d+s|\d+m\d\ds|\d+h\d\dm)\b[^\n]*")


class Listener:
    """Somebody at this machine who follows one thread; ``thread_ts`` is None until something is said. All that they are
    to be shown is in ``replies``, in order, without secrets.

    It knows what it has shown: a card stays one, and so does what was no progress. ``called``: what a user is called.
    """

    def __init__(
        self,
        channel: str,
        thread_ts: str | None = None,
        *,
        called: Callable[[str], str] = str,
        redact: Callable[[str], str] = str,
    ) -> None:
        self.channel = channel
        self.thread_ts = thread_ts
        self.called = called
        self.redact = redact
        self.replies: asyncio.Queue[ControlReply | None] = asyncio.Queue()
        self._awaited: set[str] = set()
        self._kinds: dict[str, SaidKind] = {}

    def await_outcome(self, ts: str) -> None:
        """The message ``ts`` of the thread is the operator's: its outcome is to be told."""
        self._awaited.add(ts)

    async def answers(self) -> AsyncIterator[Said | Done]:
        """What is said until one awaited message has its outcome, which is the last."""
        while True:
            match await self.replies.get():
                case Said() as said:
                    yield said
                case Ended(outcome=outcome):
                    yield Done(ok=outcome == "done", text=outcome)
                    return

    def tell(self, operation: Operation, ts: str) -> None:
        """An operation took effect in the channel; ``ts`` is the message's where it made one."""
        match operation:
            case Post(thread_ts=thread_ts) if thread_ts == self.thread_ts:
                self.replies.put_nowait(self._message(ts, operation))
            case Update(target_ts=target_ts) if target_ts in self._kinds:
                self.replies.put_nowait(self._message(target_ts, operation))
            case Upload(thread_ts=thread_ts) if thread_ts == self.thread_ts:
                self.replies.put_nowait(Said(text=self.redact(_of_file(operation)), ts=f"file {ts}"))

    def started(self, messages: Collection[str]) -> None:
        """These messages are being worked on."""
        for ts in self._awaited.intersection(messages):
            self.replies.put_nowait(Started(ts=ts))

    def ended(self, messages: Collection[str], outcome: TurnOutcome) -> None:
        """These messages have their outcome, and what answers them has been told."""
        for ts in self._awaited.intersection(messages):
            self._awaited.discard(ts)
            self.replies.put_nowait(Ended(ts=ts, outcome=outcome))

    def overhear(self, event: MessagePosted) -> None:
        """Somebody else writes in the channel."""
        if event.thread_ts == self.thread_ts:
            self.replies.put_nowait(Past(who=self.called(event.user), text=self.redact(event.text)))

    def live(self, live: Live) -> None:
        """What a running turn says and does before it is posted."""
        if live.thread_ts == self.thread_ts:
            self.replies.put_nowait(Heard(kind=live.kind, text=self.redact(live.text)))

    def show(self, ts: str, parts: Sequence[Section], *, is_passing: bool = False) -> Said:
        """What a message of ours says."""
        choices = tuple(choices_of(parts, self.redact))
        kind = self._kinds[ts] = self._kind(ts, choices, is_passing=is_passing)
        return Said(text=self.redact(_text(parts)), kind=kind, ts=ts, choices=choices)

    def _message(self, ts: str, message: Post | Update) -> Said:
        return self.show(ts, sections(message.message), is_passing=message.value == "progress")

    def _kind(self, ts: str, choices: Sequence[Choice], *, is_passing: bool) -> SaidKind:
        if any(choice.action_id != STOP_ACTION for choice in choices):
            return "card"
        known = self._kinds.get(ts, "progress")
        if known != "progress":
            return known
        return "progress" if is_passing else "text"


class Listeners:
    """All who listen now, and ``on_ended``: who waits for outcomes however long. Those return once what they keep of it
    is on disk. ``called`` says what a user is called; what a terminal shows goes through ``redact``."""

    def __init__(self, called: Callable[[str], str] = str, redact: Callable[[str], str] = str) -> None:
        self.on_ended: list[Callable[[str, Collection[str], TurnOutcome], Awaitable[None]]] = []
        self._called = called
        self._redact = redact
        self._listening: list[Listener] = []

    @contextmanager
    def added(self, channel: str, thread_ts: str | None) -> Iterator[Listener]:
        """Somebody who follows the thread while the context lives."""
        listener = Listener(channel, thread_ts, called=self._called, redact=self._redact)
        self._listening.append(listener)
        try:
            yield listener
        finally:
            self._listening.remove(listener)

    def tell(self, channel: str, operation: Operation, ts: str) -> None:
        """An operation took effect in ``channel``."""
        for listener in self._of(channel):
            listener.tell(operation, ts)

    def started(self, channel: str, messages: Collection[str]) -> None:
        """Messages of ``channel`` are being worked on."""
        for listener in self._of(channel):
            listener.started(messages)

    async def ended(self, channel: str, messages: Collection[str], outcome: TurnOutcome) -> None:
        """Messages of ``channel`` have their outcome."""
        for listener in self._of(channel):
            listener.ended(messages, outcome)
        for told in self.on_ended:
            await told(channel, messages, outcome)

    def live(self, channel: str, live: Live) -> None:
        """A turn in ``channel`` says or does something."""
        for listener in self._of(channel):
            listener.live(live)

    def overhear(self, entry: Entry, go_on: GoOn) -> None:
        """A step of the dispatcher: who listens to a thread hears what people write in it, too."""
        event = entry.event
        if isinstance(event, MessagePosted) and event.origin == "chat":
            for listener in self._of(event.channel):
                listener.overhear(event)
        go_on(entry)

    def _of(self, channel: str) -> list[Listener]:
        return [each for each in self._listening if each.channel == channel and each.thread_ts is not None]


def _of_file(file: Upload) -> str:
    """Its name, and what it says where that is short text; the file of a long answer is the answer."""
    try:
        text = file.content.decode() if len(file.content) <= SHOWN_FILE_BYTES else ""
    except UnicodeDecodeError:
        text = ""
    if not text or not all(c.isprintable() or c in "\t\r\n" for c in text):
        return f"📎 {file.filename}, {_size(len(file.content))}: see its thread in the chat."
    return text if file.filename == ANSWER_FILE else f"📎 {file.filename}\n{text}"


def _size(count: int) -> str:
    return f"{count / 1_000_000:.1f} MB" if count >= 100_000 else f"{count / 1000:.1f} kB"


def choices_of(parts: Iterable[Section], redact: Callable[[str], str]) -> Iterator[Choice]:
    """The boxes and buttons of a message, in their order; not those that open a form, which a terminal cannot show."""
    for part in parts:
        for box in part.boxes:
            yield Choice(label=redact(box.label), action_id=PICK_ACTION, value=box.value, box=True)
        for button in part.buttons:
            if button.action != REASON_ACTION:
                yield Choice(label=redact(button.label), action_id=button.action, value=button.value)


def _text(parts: Iterable[Section]) -> str:
    """Markdown, which a terminal shows line by line."""
    shown = (
        part.markdown if part.kind in ("foreign", "plan") else bare(part.markdown)
        for part in parts
        if part.markdown
    )
    return "\n".join(shown).replace(ZERO_WIDTH_SPACE, "")


def as_operator(text: str) -> str:
    """The operator's words as they stand in the channel, so that everybody there sees what was asked."""
    return f"**{OPERATOR}:** {plain(text)}"


async def read_past(
    reader: History, channel: str, thread_ts: str, most: int, listener: Listener
) -> tuple[Past | Said, ...]:
    """At most ``most`` messages of the thread, oldest first; what still waits for a decision or can be stopped is Said,
    as ``listener`` shows it. Raises ChatError."""
    latest: deque[Past | Said] = deque(maxlen=most)
    cursor = ""
    for _ in range(THREAD_PAGES):
        page = await reader.history(channel, thread_ts=thread_ts, cursor=cursor)
        latest.extend(past for message in page.messages if (past := _past(message, listener)) is not None)
        if not (cursor := page.next_cursor):
            break
    return tuple(latest)


def _past(message: HistoryMessage, listener: Listener) -> Past | Said | None:
    """None for what says nothing, such as what a progress message has shrunk to."""
    text, ours = message.text, message.is_ours
    if not text.strip() or (ours and _FIGURES.fullmatch(text.strip())):
        return None
    if any(choices_of(message.parts, str)):
        return listener.show(message.ts, message.parts)
    who = "" if ours else listener.called(message.user or "?")
    if ours and text.startswith(_OPERATOR):
        who, text = OPERATOR, text.removeprefix(_OPERATOR)
    return Past(who=who, text=listener.redact(text[:MAX_CHARS]))
