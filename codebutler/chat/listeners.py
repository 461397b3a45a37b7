"""Followers of a thread on this machine: `send --wait` and `chat` get what is said in it, now and before."""

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
from codebutler.config.chats import message_url
from codebutler.domain.message import PICK_ACTION, REASON_ACTION, STOP_ACTION
from codebutler.domain.model import OPERATOR, MessagePosted, Operation, Post, TurnOutcome, Update, Upload
from codebutler.domain.refs import ConversationRef, MessageRef, PersonRef
from codebutler.protocol.control import (
    Choice,
    ControlReply,
    Done,
    Ended,
    Heard,
    Past,
    Said,
    SaidKind,
    Working,
)
from codebutler.protocol.messages import Live
from codebutler.text.markup import ZERO_WIDTH_SPACE, bare, linked, plain

ANSWER_FILE = "answer.md"
KEPT = "{} is not running ({}); your message is kept until it is"
SHOWN_FILE_BYTES = 200_000
"""A terminal shows no more than this."""

MAX_CHARS = 4_000
"""Per message."""
LIVE_CHARS, MOST_UNREAD = 50_000, 200
"""Of what is said as it happens: a worker decides how much that is, and a terminal may have stopped reading."""
_OPERATOR = f"*{OPERATOR}:* "
"""As it appears in the chat's history."""
_FIGURES = re.compile(r"(?:✅|❌|🛑|⚠️|⏸️) (?:Done|\d+s|\d+m\d\ds|\d+h\d\dm)\b[^\n]*")


class Listener:
    """Somebody at this machine who follows one thread; ``thread`` is None until something is said. ``replies`` holds
    everything to show them, in order, without secrets.

    It remembers what it has shown: a card stays a card, and a message that was not progress never becomes progress.
    ``called``: a user's name.
    """

    def __init__(
        self,
        thread: MessageRef | None = None,
        *,
        called: Callable[[PersonRef], str] = str,
        redact: Callable[[str], str] = str,
    ) -> None:
        self.thread = thread
        self.called = called
        self.redact = redact
        self.replies: asyncio.Queue[ControlReply | None] = asyncio.Queue()
        self._awaited: set[MessageRef] = set()
        self._kinds: dict[MessageRef, SaidKind] = {}

    def await_outcome(self, ref: MessageRef) -> None:
        """The message ``ref`` of the thread is the operator's: report its outcome."""
        self._awaited.add(ref)

    async def answers(self) -> AsyncIterator[Said | Done]:
        """Everything until an awaited message has its outcome, which comes last."""
        while True:
            match await self.replies.get():
                case Said() as said:
                    yield said
                case Ended(outcome=outcome):
                    yield Done(ok=outcome == "done", text=outcome)
                    return

    def delivered(self, operation: Operation, ref: MessageRef) -> None:
        """An operation took effect in the channel; ``ref``: of the message, if it made one."""
        if self.thread is None:
            return
        match operation:
            case Post(thread=thread) if thread == self.thread:
                self.replies.put_nowait(self._message(ref, operation))
            case Update(target=target) if target in self._kinds:
                self.replies.put_nowait(self._message(target, operation))
            case Upload(thread=thread) if thread == self.thread:
                self.replies.put_nowait(
                    Said(text=self.redact(_of_file(operation)), ref=MessageRef(f"file {ref}"))
                )

    def started(self, messages: Collection[MessageRef]) -> None:
        """These messages are being worked on."""
        for ref in self._awaited.intersection(messages):
            self.replies.put_nowait(Working(ref=ref))

    def ended(self, messages: Collection[MessageRef], outcome: TurnOutcome) -> None:
        """These messages have their outcome, and what answers them has been told."""
        for ref in self._awaited.intersection(messages):
            self._awaited.discard(ref)
            self.replies.put_nowait(Ended(ref=ref, outcome=outcome))

    def stuck(self, why: str) -> None:
        """Awaited messages get no outcome for now: their worker stays down."""
        if self._awaited:
            self.replies.put_nowait(Said(text=f"⚠️ {why}"))
        for ref in sorted(self._awaited):
            self.replies.put_nowait(Ended(ref=ref, outcome="failed"))
        self._awaited.clear()

    def posted(self, event: MessagePosted) -> None:
        """Somebody else writes in the channel."""
        if self.thread is not None and event.thread == self.thread:
            self.replies.put_nowait(Past(who=self.called(event.user), text=self.redact(event.text)))

    def live(self, live: Live) -> None:
        """What a running turn says and does before it is posted."""
        if live.thread == self.thread and self.replies.qsize() < MOST_UNREAD:
            self.replies.put_nowait(Heard(kind=live.kind, text=self.redact(live.text[:LIVE_CHARS])))

    def show(self, ref: MessageRef, parts: Sequence[Section], *, is_passing: bool = False) -> Said:
        """What a message of ours says."""
        choices = tuple(choices_of(parts, self.redact))
        kind = self._kinds[ref] = self._kind(ref, choices, is_passing=is_passing)
        return Said(text=self.redact(_text(parts)), kind=kind, ref=ref, choices=choices)

    def _message(self, ref: MessageRef, message: Post | Update) -> Said:
        return self.show(ref, sections(message.message), is_passing=message.value == "progress")

    def _kind(self, ref: MessageRef, choices: Sequence[Choice], *, is_passing: bool) -> SaidKind:
        if any(choice.action_id != STOP_ACTION for choice in choices):
            return "card"
        known = self._kinds.get(ref, "progress")
        if known != "progress":
            return known
        return "progress" if is_passing else "text"


class Listeners:
    """All current listeners, by channel, and ``on_ended``: observers of outcomes, which may take long; they return once
    their records are on disk. ``called`` returns a user's name; text for a terminal goes through ``redact``."""

    def __init__(self, called: Callable[[PersonRef], str] = str, redact: Callable[[str], str] = str) -> None:
        self.on_ended: list[Callable[[ConversationRef, Collection[str], TurnOutcome], Awaitable[None]]] = []
        self._called = called
        self._redact = redact
        self.followers: dict[ConversationRef, list[Listener]] = {}

    @contextmanager
    def added(self, channel: ConversationRef, thread: MessageRef | None) -> Iterator[Listener]:
        """A new follower of the thread, until the context ends."""
        listener = Listener(thread, called=self._called, redact=self._redact)
        self.followers.setdefault(channel, []).append(listener)
        try:
            yield listener
        finally:
            self.followers[channel].remove(listener)
            if not self.followers[channel]:
                del self.followers[channel]

    async def ended(
        self, channel: ConversationRef, messages: Collection[MessageRef], outcome: TurnOutcome
    ) -> None:
        """Messages of ``channel`` have their outcome."""
        for listener in self.followers.get(channel, ()):
            listener.ended(messages, outcome)
        for observer in self.on_ended:
            await observer(channel, messages, outcome)

    def stuck(self, channel: ConversationRef, why: str) -> None:
        """Nothing in ``channel`` gets its outcome for now."""
        for listener in self.followers.get(channel, ()):
            listener.stuck(why)

    def notify(self, event: MessagePosted) -> None:
        """Listeners to a thread also get what people write in it."""
        for listener in self.followers.get(event.channel, ()):
            listener.posted(event)


def _of_file(file: Upload) -> str:
    """The file's name, and its text if that is short; the file of a long answer is the answer."""
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
    """A message's boxes and buttons, in order, without those that open a form, which a terminal cannot show."""
    for part in parts:
        for box in part.boxes:
            yield Choice(label=redact(box.label), action_id=PICK_ACTION, value=box.value, box=True)
        for button in part.buttons:
            if button.action != REASON_ACTION:
                yield Choice(label=redact(button.label), action_id=button.action, value=button.value)


def _text(parts: Iterable[Section]) -> str:
    """Markdown, which a terminal shows line by line."""
    shown = (
        part.markdown if part.kind in ("foreign", "plan") else bare(linked(part.markdown, message_url))
        for part in parts
        if part.markdown
    )
    return "\n".join(shown).replace(ZERO_WIDTH_SPACE, "")


def as_operator(text: str) -> str:
    """The operator's words as posted in the channel, so that everybody there sees what was asked."""
    return f"**{OPERATOR}:** {plain(text)}"


async def read_past(
    reader: History, channel: ConversationRef, thread: MessageRef, most: int, listener: Listener
) -> tuple[Past | Said, ...]:
    """At most ``most`` messages of the thread, oldest first; those that await a decision or can be stopped are Said, as
    ``listener`` shows them. Raises ChatError."""
    latest: deque[Past | Said] = deque(maxlen=most)
    cursor = ""
    for _ in range(THREAD_PAGES):
        page = await reader.history(channel, thread=thread, cursor=cursor)
        latest.extend(past for message in page.messages if (past := _past(message, listener)) is not None)
        if not (cursor := page.next_cursor):
            break
    return tuple(latest)


def _past(message: HistoryMessage, listener: Listener) -> Past | Said | None:
    """None if nothing is left to show, as for a progress message after its end."""
    text, ours = message.text, message.is_ours
    if not text.strip() or (ours and _FIGURES.fullmatch(text.strip())):
        return None
    if any(choices_of(message.parts, str)):
        return listener.show(message.ref, message.parts)
    who = "" if ours else listener.called(message.user) or "?"
    if ours and text.startswith(_OPERATOR):
        who, text = OPERATOR, text.removeprefix(_OPERATOR)
    return Past(who=who, text=listener.redact(text[:MAX_CHARS]))
