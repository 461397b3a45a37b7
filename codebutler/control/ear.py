"""What one thread says, for a terminal: operations of ours as texts, passing progress, and cards with choices. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from codebutler.actions import PICK_ACTION, REASON_ACTION, STOP_ACTION
from codebutler.control.messages import Choice, Said, SaidKind
from codebutler.model import Operation, Post, Update, Upload
from codebutler.text.escape import ZERO_WIDTH_SPACE, unescape

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
        """What a terminal shows may be copied anywhere: it holds no more than Slack does."""
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
        choices = tuple(choices_of(message.blocks, self.redact))
        text = self.redact(_text(message.text, message.blocks))
        kind = self._kinds[ts] = self._kind(ts, message, choices)
        return Said(text=text, kind=kind, ts=ts, choices=choices)

    def _kind(self, ts: str, message: Post | Update, choices: Sequence[Choice]) -> SaidKind:
        if any(choice.action_id != STOP_ACTION for choice in choices):
            return "card"
        known = self._kinds.get(ts, "progress")
        if known != "progress":
            return known
        return "progress" if message.value == "progress" else "text"


def _of_file(file: Upload) -> str:
    """Its name, and what it says where that is short text; the file of a long answer is the answer."""
    try:
        text = file.content.decode() if len(file.content) <= SHOWN_FILE_BYTES else ""
    except UnicodeDecodeError:
        text = ""
    if not text or not all(c.isprintable() or c in "\t\r\n" for c in text):
        return f"📎 {file.filename}, {_size(len(file.content))}: see the thread in Slack."
    return text if file.filename == ANSWER_FILE else f"📎 {file.filename}\n{text}"


def _size(count: int) -> str:
    return f"{count / 1_000_000:.1f} MB" if count >= 100_000 else f"{count / 1000:.1f} kB"


def choices_of(blocks: Sequence[Mapping[str, Any]], redact: Callable[[str], str]) -> Iterator[Choice]:
    """The buttons and boxes of a message, in their order; not those that open a form, which only Slack shows."""
    for block in blocks:
        elements = block.get("elements") if block.get("type") == "actions" else None
        for element in elements if isinstance(elements, list | tuple) else ():
            action_id = str(element.get("action_id", ""))
            if action_id == PICK_ACTION:
                yield from (
                    Choice(
                        label=redact(_label(option)),
                        action_id=action_id,
                        value=str(option.get("value", "")),
                        box=True,
                    )
                    for option in element.get("options", ())
                )
            elif action_id != REASON_ACTION and element.get("type") == "button":
                value = str(element.get("value", ""))
                yield Choice(label=redact(_label(element)), action_id=action_id, value=value)


def _label(element: Mapping[str, Any]) -> str:
    text = element.get("text")
    return str(text.get("text", "")) if isinstance(text, Mapping) else ""


def _text(text: str, blocks: Sequence[Mapping[str, Any]]) -> str:
    """Markdown reads better in a terminal than Slack's mrkdwn, which is escaped besides. Sections say all of what
    ``text``, which Slack bounds, may have to cut."""
    markdown = [str(block.get("text", "")) for block in blocks if block.get("type") == "markdown"]
    sections = [_label(block) for block in blocks if block.get("type") == "section"]
    shown = "\n".join(markdown) or unescape("\n".join(filter(None, sections)) or text)
    return shown.replace(ZERO_WIDTH_SPACE, "")
