"""The state of a chat: waiting messages, open cards, what has been shown. Pure.

Our messages may be edited while they are shown: a terminal scrolls, so only the new part is shown again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from codebutler.cli.chatroom.markdown import decided, menu
from codebutler.domain.model import OPERATOR
from codebutler.domain.refs import MessageRef
from codebutler.protocol.control import (
    NO_CARD,
    ChatInput,
    ChatOpened,
    ControlReply,
    Ended,
    Heard,
    Past,
    Posted,
    Said,
    Say,
    Working,
)

PAST_LINES = 15
"""Characters of one earlier message."""
_SPACE = re.compile(r"\s+")
_FENCE = re.compile(r"```+|~~~+")

Style = Literal["plain", "faint", "markdown", "code", "fence"]
FENCE = "```"
RUNNING = "⏳ Running…"
_FOOTER = re.compile(r"(?:_(\S+)_ • )?_((?:tokens: .*|\d+s|\d+m\d\ds|\d+h\d\dm)[^_\n]*)_")
FRAMES = frozenset({FENCE, RUNNING})
"""The lines around a program's output."""


@dataclass(frozen=True, slots=True)
class ShownLine:
    """A line to show: ``plain`` as it is, ``faint`` is transient (tools, progress, figures), ``code`` is in a
    code block, and ``fence`` opens or closes one."""

    text: str
    style: Style = "plain"


class ChatRoom:
    """One chat. Replies go into ``take``, typed text into ``given``."""

    def __init__(self) -> None:
        self.thread: MessageRef | None = None
        self._unsent = 0
        self._open: set[str] = set()
        self._running: set[str] = set()
        self._cards: dict[str, Said] = {}
        self._seen = NO_CARD
        self._shown: dict[str, list[ShownLine]] = {}
        self._live = ""
        self._headline = ""
        self._plan: list[str] = []
        self._written: list[str] = []

    @property
    def is_busy(self) -> bool:
        """Whether a message of ours has no outcome yet, or a turn of the thread runs."""
        return bool(self._unsent or self._open or self._running)

    @property
    def asks(self) -> bool:
        """Whether a card waits for a decision."""
        return bool(self._cards)

    def meaning(self, text: str) -> ChatInput:
        """The meaning of a typed text: a number decides a card, everything else is a message. Raises Misread."""
        given: ChatInput | None = None
        if self._cards:
            card = self._asked()
            given = decided(card.ref, card.choices, text)
        return given or self.say(text)

    def say(self, text: str) -> Say:
        """Send exactly this."""
        self._unsent += 1
        return Say(text=text, seen=self._seen)

    def take(self, reply: ControlReply) -> list[ShownLine]:
        """The lines to show for a reply."""
        match reply:
            case ChatOpened(thread=thread):
                self.thread = thread
            case Posted(ref=ref, thread=thread):
                self.thread = thread
                self._unsent = max(0, self._unsent - 1)
                self._open.add(ref)
            case Working():
                return self._started()
            case Ended(ref=ref):
                if not ref:
                    self._unsent = max(0, self._unsent - 1)
                self._open.discard(ref)
            case Past():
                return _past(reply)
            case Heard():
                return self._heard(reply)
            case Said():
                return self._said(reply)
        return []

    def _started(self) -> list[ShownLine]:
        """Worth a line if a place in the queue was shown before."""
        waited, self._headline = bool(self._headline), ""
        return [ShownLine("▶ Started.", "faint")] if waited else []

    def _heard(self, heard: Heard) -> list[ShownLine]:
        lines = heard.text.strip("\n").split("\n")
        if heard.kind == "writing":
            # The last line is still being written.
            return self._more(heard.text.lstrip("\n").split("\n")[:-1])
        if heard.kind == "text":
            self._live += f" {_flat(heard.text)}"
            more, self._written = self._more(lines), []
            return more
        if heard.kind == "plan":
            new = [line for line in lines if line not in self._plan]
            self._plan = lines
            return [ShownLine(line, "faint") for line in new]
        return [ShownLine(line, "faint") for line in lines]

    def _more(self, lines: list[str]) -> list[ShownLine]:
        """The new lines of a block that is being written."""
        known = len(self._written)
        begun = lines[:known] == self._written
        self._written = lines
        return blocks(lines)[known if begun else 0 :]

    def _said(self, said: Said) -> list[ShownLine]:
        if said.kind == "card":
            return self._card(said)
        if said.choices:
            self._running.add(said.ref)
        else:
            self._running.discard(said.ref)
        if said.kind == "progress":
            return self._progress(said)
        return self._text(said)

    def _card(self, said: Said) -> list[ShownLine]:
        was_asked = bool(self._cards) and self._asked().ref == said.ref
        self._cards.pop(said.ref, None)
        self._seen = max(self._seen, said.ref)
        # Every character of a decision must be visible.
        lines = [ShownLine(line.text) for line in self._grown(said)]
        if said.choices:
            self._cards[said.ref] = said
            return [*lines, *map(ShownLine, menu(said.choices))]
        if was_asked and self._cards:
            # A number decides the last question: repeat it, so that it is the last on the screen.
            return [*lines, *_asked_again(self._asked())]
        return lines

    def _asked(self) -> Said:
        """The card that a number decides: the one whose choices were shown last."""
        return self._cards[next(reversed(self._cards))]

    def _progress(self, said: Said) -> list[ShownLine]:
        """Only without better information: a place in the queue, the first sign of work."""
        headline = said.text.partition("\n")[0].partition(" · ")[0]
        if self._live or not said.choices or headline == self._headline:
            return []
        self._headline = headline
        return [ShownLine(headline, "faint")]

    def _text(self, said: Said) -> list[ShownLine]:
        body, footer = footed(said.text)
        if footer:
            # The answer: the turn has shown it already, unless it differs.
            told, self._live, self._headline, self._plan = self._live, "", "", []
            lines = [] if body.strip() and _flat(body) in told else blocks(body.split("\n"))
            return [*lines, ShownLine(footer, "faint")]
        if self._live and _flat(body) in self._live:
            return []
        return self._grown(said)

    def _grown(self, said: Said) -> list[ShownLine]:
        """The new lines since the message was last shown."""
        lines = blocks(said.text.split("\n"))
        before = self._shown.get(said.ref)
        if before is None and not said.choices:
            self._shown[said.ref] = _bare(lines)
            return lines
        now = _bare(lines)
        self._shown[said.ref] = now
        same = 0
        while before and same < min(len(before), len(now)) and before[same] == now[same]:
            same += 1
        return now[same:] if before is not None else lines


def blocks(lines: Sequence[str]) -> list[ShownLine]:
    """The lines of one message, with its code blocks marked."""
    told: list[ShownLine] = []
    fence = ""
    for line in lines:
        mark = line.strip()
        if not fence and (found := _FENCE.match(mark)):
            fence = found[0]
            told.append(ShownLine(line, "fence"))
        elif fence and mark.startswith(fence) and not mark.strip(fence[0]):
            fence = ""
            told.append(ShownLine(line, "fence"))
        else:
            told.append(ShownLine(line, "code" if fence else "markdown"))
    return told


def _bare(lines: Sequence[ShownLine]) -> list[ShownLine]:
    """Without the frame of a program's output."""
    return [line for line in lines if line.text not in FRAMES]


def _past(past: Past) -> list[ShownLine]:
    who = "you> " if past.who == OPERATOR else f"{past.who}> " if past.who else ""
    lines = past.text.strip("\n").split("\n")
    left_out = len(lines) - PAST_LINES
    cut = [f"… {left_out} more {'line' if left_out == 1 else 'lines'}"] if left_out > 0 else []
    return [ShownLine(text, "faint") for text in (f"{who}{lines[0]}", *lines[1:PAST_LINES], *cut)]


def _asked_again(card: Said) -> list[ShownLine]:
    return [ShownLine(line) for line in ("Still open:", *card.text.split("\n"), *menu(card.choices))]


def _flat(text: str) -> str:
    return _SPACE.sub(" ", text).strip()


def footed(text: str) -> tuple[str, str]:
    """An answer and its footer, "" if there is none."""
    body, _, last = text.rstrip().rpartition("\n")
    found = _FOOTER.fullmatch(last.strip())
    if found is None:
        return text, ""
    return body.strip("\n"), " • ".join(part for part in found.groups() if part)


def apart(text: str) -> tuple[str, str]:
    """The part of a message that a script wants, and the rest: figures, or a program's exit line."""
    body, figures = footed(text)
    if figures:
        return body, figures
    lines = text.split("\n")
    if lines[0] != FENCE or FENCE not in lines[1:]:
        return text, ""
    end = len(lines) - 1 - lines[::-1].index(FENCE)
    return "\n".join(lines[1:end]), "\n".join(lines[end + 1 :])
