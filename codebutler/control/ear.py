"""What one thread says, for a terminal: operations of ours as texts, passing progress, and cards with choices. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec import Struct

from codebutler.chat.layout import Section, sections
from codebutler.control.messages import Choice, Said, SaidKind
from codebutler.domain.message import PICK_ACTION, REASON_ACTION, STOP_ACTION
from codebutler.domain.model import Operation, Post, Update, Upload
from codebutler.text.markup import ZERO_WIDTH_SPACE, bare

ANSWER_FILE = "answer.md"
SHOWN_FILE_BYTES = 200_000
"""A terminal is no place for more."""


class Spoken(Struct, frozen=True):
    """An operation that took effect; ``ts`` is the message's where it made one."""

    operation: Operation
    ts: str


class Ear:
    """Hears one thread. It knows what it has heard: a card stays one, and so does what was no progress."""

    def __init__(self, thread_ts: str | None) -> None:
        self.thread_ts = thread_ts
        self.redact: Callable[[str], str] = str
        """What a terminal shows may be copied anywhere: it holds no more than the chat does."""
        self.called: Callable[[str], str] = str
        """What a user is called."""
        self._kinds: dict[str, SaidKind] = {}

    def said(self, spoken: Spoken) -> Said | None:
        """What the operation says in the thread; None if nothing."""
        match spoken.operation:
            case Post(thread_ts=thread_ts) as post if thread_ts == self.thread_ts:
                return self._message(spoken.ts, post)
            case Update(target_ts=ts) as edit if ts in self._kinds:
                return self._message(ts, edit)
            case Upload(thread_ts=thread_ts) as file if thread_ts == self.thread_ts:
                return Said(text=self.redact(_of_file(file)), ts=f"file {spoken.ts}")
        return None

    def _message(self, ts: str, message: Post | Update) -> Said:
        return self.hear(ts, sections(message.message), is_passing=message.value == "progress")

    def hear(self, ts: str, parts: Sequence[Section], *, is_passing: bool = False) -> Said:
        """What a message of ours says."""
        choices = tuple(choices_of(parts, self.redact))
        kind = self._kinds[ts] = self._kind(ts, choices, is_passing=is_passing)
        return Said(text=self.redact(_text(parts)), kind=kind, ts=ts, choices=choices)

    def _kind(self, ts: str, choices: Sequence[Choice], *, is_passing: bool) -> SaidKind:
        if any(choice.action_id != STOP_ACTION for choice in choices):
            return "card"
        known = self._kinds.get(ts, "progress")
        if known != "progress":
            return known
        return "progress" if is_passing else "text"


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
