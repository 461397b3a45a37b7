"""The state of a chat: waiting messages, open cards, what has been shown. Pure.

Our messages may be edited while they are shown: a terminal scrolls, so only the new part is shown again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from codebutler.cli.chatroom.markdown import menu, parse_press
from codebutler.domain.message import ALLOW_ACTION
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


class ShownLine(Struct, frozen=True):
    """A line to show: ``plain`` as it is, ``faint`` is transient (tools, progress, figures), ``code`` is in a
    code block, and ``fence`` opens or closes one."""

    text: str
    style: Style = "plain"


class ChatState:
    """One chat. Replies go into ``on_reply``, typed text into ``interpret``."""

    def __init__(self) -> None:
        self.thread: MessageRef | None = None
        self._unsent = 0
        self._open: set[str] = set()
        self._running: set[str] = set()
        self._cards: dict[str, Said] = {}
        self._newest_card = NO_CARD
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
    def needs_decision(self) -> bool:
        """Whether a card waits for a decision."""
        return bool(self._cards)

    def interpret(self, text: str) -> ChatInput:
        """The meaning of a typed text: a number decides a card, everything else is a message. Raises InvalidChoice."""
        press: ChatInput | None = None
        if self._cards:
            card = self._current_card()
            press = parse_press(card.ref, card.choices, text)
        return press or self.new_message(text)

    def new_message(self, text: str) -> Say:
        """Send exactly this."""
        self._unsent += 1
        return Say(text=text, seen=self._newest_card)

    def on_reply(self, reply: ControlReply) -> list[ShownLine]:
        """The lines to show for a reply."""
        match reply:
            case ChatOpened(thread=thread):
                self.thread = thread
            case Posted(ref=ref, thread=thread):
                self.thread = thread
                self._unsent = max(0, self._unsent - 1)
                self._open.add(ref)
            case Working():
                return self._on_started()
            case Ended(ref=ref):
                if not ref:
                    self._unsent = max(0, self._unsent - 1)
                self._open.discard(ref)
            case Past():
                return _past_lines(reply)
            case Heard():
                return self._on_live(reply)
            case Said():
                return self._on_message(reply)
        return []

    def _on_started(self) -> list[ShownLine]:
        """Worth a line if a place in the queue was shown before."""
        waited, self._headline = bool(self._headline), ""
        return [ShownLine("▶ Started.", "faint")] if waited else []

    def _on_live(self, live: Heard) -> list[ShownLine]:
        lines = live.text.strip("\n").split("\n")
        if live.kind == "writing":
            # The last line is still being written.
            return self._new_block_lines(live.text.lstrip("\n").split("\n")[:-1])
        if live.kind == "text":
            self._live += f" {_collapse_spaces(live.text)}"
            more, self._written = self._new_block_lines(lines), []
            return more
        if live.kind == "plan":
            new = [line for line in lines if line not in self._plan]
            self._plan = lines
            return [ShownLine(line, "faint") for line in new]
        return [ShownLine(line, "faint") for line in lines]

    def _new_block_lines(self, lines: list[str]) -> list[ShownLine]:
        known = len(self._written)
        is_continued = lines[:known] == self._written
        self._written = lines
        return mark_blocks(lines)[known if is_continued else 0 :]

    def _on_message(self, message: Said) -> list[ShownLine]:
        if message.kind == "card":
            return self._card(message)
        if message.choices:
            self._running.add(message.ref)
        else:
            self._running.discard(message.ref)
        if message.kind == "progress":
            return self._progress(message)
        return self._text(message)

    def _card(self, message: Said) -> list[ShownLine]:
        was_asked = bool(self._cards) and self._current_card().ref == message.ref
        self._cards.pop(message.ref, None)
        self._newest_card = max(self._newest_card, message.ref)
        lines = self._new_lines(message)
        if not message.choices or any(choice.action_id == ALLOW_ACTION for choice in message.choices):
            # Every character of an approval must be visible.
            lines = [ShownLine(line.text) for line in lines]
        if message.choices:
            self._cards[message.ref] = message
            return [*lines, *map(ShownLine, menu(message.choices))]
        if was_asked and self._cards:
            # A number decides the last question: repeat it, so that it is the last on the screen.
            card = self._current_card()
            return [*lines, *map(ShownLine, ("Still open:", *card.text.split("\n"), *menu(card.choices)))]
        return lines

    def _current_card(self) -> Said:
        """The card that a number decides: the one whose choices were shown last."""
        return self._cards[next(reversed(self._cards))]

    def _progress(self, message: Said) -> list[ShownLine]:
        """Only without better information: a place in the queue, the first sign of work."""
        headline = message.text.partition("\n")[0].partition(" · ")[0]
        if self._live or not message.choices or headline == self._headline:
            return []
        self._headline = headline
        return [ShownLine(headline, "faint")]

    def _text(self, message: Said) -> list[ShownLine]:
        body, footer = split_footer(message.text)
        if footer:
            # The answer: the turn has shown it already, unless it differs.
            live, self._live, self._headline, self._plan = self._live, "", "", []
            lines = [] if body.strip() and _collapse_spaces(body) in live else mark_blocks(body.split("\n"))
            return [*lines, ShownLine(footer, "faint")]
        if self._live and _collapse_spaces(body) in self._live:
            return []
        return self._new_lines(message)

    def _new_lines(self, message: Said) -> list[ShownLine]:
        lines = mark_blocks(message.text.split("\n"))
        before, now = self._shown.get(message.ref), [line for line in lines if line.text not in FRAMES]
        self._shown[message.ref] = now
        if before is None:
            return lines
        same = 0
        while same < min(len(before), len(now)) and before[same] == now[same]:
            same += 1
        return now[same:]


def mark_blocks(lines: Sequence[str]) -> list[ShownLine]:
    """The lines of one message, with its code blocks marked."""
    shown: list[ShownLine] = []
    fence = ""
    for line in lines:
        mark = line.strip()
        if not fence and (found := _FENCE.match(mark)):
            fence = found[0]
            shown.append(ShownLine(line, "fence"))
        elif fence and mark.startswith(fence) and not mark.strip(fence[0]):
            fence = ""
            shown.append(ShownLine(line, "fence"))
        else:
            shown.append(ShownLine(line, "code" if fence else "markdown"))
    return shown


def _past_lines(past: Past) -> list[ShownLine]:
    who = "you> " if past.who == OPERATOR else f"{past.who}> " if past.who else ""
    lines = past.text.strip("\n").split("\n")
    left_out = len(lines) - PAST_LINES
    cut = [f"… {left_out} more {'line' if left_out == 1 else 'lines'}"] if left_out > 0 else []
    return [ShownLine(text, "faint") for text in (f"{who}{lines[0]}", *lines[1:PAST_LINES], *cut)]


def _collapse_spaces(text: str) -> str:
    return _SPACE.sub(" ", text).strip()


def split_footer(text: str) -> tuple[str, str]:
    """An answer and its footer, "" if there is none."""
    body, _, last = text.rstrip().rpartition("\n")
    found = _FOOTER.fullmatch(last.strip())
    if found is None:
        return text, ""
    return body.strip("\n"), " • ".join(part for part in found.groups() if part)


def split_answer(text: str) -> tuple[str, str]:
    """The part of a message that a script wants, and the rest: figures, or a program's exit line."""
    body, figures = split_footer(text)
    if figures:
        return body, figures
    lines = text.split("\n")
    if lines[0] != FENCE or FENCE not in lines[1:]:
        return text, ""
    end = len(lines) - 1 - lines[::-1].index(FENCE)
    return "\n".join(lines[1:end]), "\n".join(lines[end + 1 :])
