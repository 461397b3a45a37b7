"""What a chat knows: which of its messages wait, which cards are open, what has been shown. Pure.

A message of ours may be edited while it is shown: a terminal scrolls, so only what is new in it is shown again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from codebutler.cli.chatroom.card import decided, menu
from codebutler.control.messages import (
    NO_CARD,
    ControlReply,
    Ended,
    Heard,
    Opened,
    Past,
    Posted,
    Said,
    Say,
    Started,
    Wish,
)
from codebutler.domain.model import OPERATOR

PAST_LINES = 15
"""Of one earlier message."""
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
    """A line to show: ``plain`` as it is, ``faint`` is what passes (tools, progress, figures), ``code`` is in a code
    block, and ``fence`` opens or closes one."""

    text: str
    style: Style = "plain"


class ChatRoom:
    """One chat. Replies go into ``take``, what is typed into ``wish``."""

    def __init__(self) -> None:
        self.thread_ts: str | None = None
        self._unsent = 0
        self._open: set[str] = set()
        self._running: set[str] = set()
        self._cards: dict[str, Said] = {}
        self._seen_ts = NO_CARD
        self._shown: dict[str, list[ShownLine]] = {}
        self._live = ""
        self._headline = ""
        self._plan: list[str] = []
        self._written: list[str] = []

    @property
    def is_busy(self) -> bool:
        """Whether something of ours has no outcome yet, or a turn of the thread runs."""
        return bool(self._unsent or self._open or self._running)

    @property
    def asks(self) -> bool:
        """Whether a card waits for a decision."""
        return bool(self._cards)

    def wish(self, text: str) -> Wish:
        """What a typed message means: a number decides a card, everything else is said. Raises Misread."""
        wish: Wish | None = None
        if self._cards:
            card = self._asked()
            wish = decided(card.ts, card.choices, text)
        return wish or self.say(text)

    def say(self, text: str) -> Say:
        """Say exactly this."""
        self._unsent += 1
        return Say(text=text, seen_ts=self._seen_ts)

    def take(self, reply: ControlReply) -> list[ShownLine]:
        """The lines that a reply makes us show."""
        match reply:
            case Opened(thread_ts=thread_ts):
                self.thread_ts = thread_ts
            case Posted(ts=ts, thread_ts=thread_ts):
                self.thread_ts = thread_ts
                self._unsent = max(0, self._unsent - 1)
                self._open.add(ts)
            case Started():
                return self._started()
            case Ended(ts=ts):
                if not ts:
                    self._unsent = max(0, self._unsent - 1)
                self._open.discard(ts)
            case Past():
                return _past(reply)
            case Heard():
                return self._heard(reply)
            case Said():
                return self._said(reply)
        return []

    def _started(self) -> list[ShownLine]:
        """Worth a line where a place in line was shown before."""
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
        """Of a block that is being written, the lines that are new."""
        known = len(self._written)
        begun = lines[:known] == self._written
        self._written = lines
        return blocks(lines)[known if begun else 0 :]

    def _said(self, said: Said) -> list[ShownLine]:
        if said.kind == "card":
            return self._card(said)
        if said.choices:
            self._running.add(said.ts)
        else:
            self._running.discard(said.ts)
        if said.kind == "progress":
            return self._progress(said)
        return self._text(said)

    def _card(self, said: Said) -> list[ShownLine]:
        was_asked = bool(self._cards) and self._asked().ts == said.ts
        self._cards.pop(said.ts, None)
        self._seen_ts = max(self._seen_ts, said.ts)
        # Not a sign of what is to be decided may be missing.
        lines = [ShownLine(line.text) for line in self._grown(said)]
        if said.choices:
            self._cards[said.ts] = said
            return [*lines, *map(ShownLine, menu(said.choices))]
        if was_asked and self._cards:
            # A number decides what was asked last: it is asked again, so that this is what stands there last.
            return [*lines, *_asked_again(self._asked())]
        return lines

    def _asked(self) -> Said:
        """The card that a number decides: the one whose choices were shown last."""
        return self._cards[next(reversed(self._cards))]

    def _progress(self, said: Said) -> list[ShownLine]:
        """Only where nothing better tells what goes on: a place in line, the first sign of work."""
        headline = said.text.partition("\n")[0].partition(" · ")[0]
        if self._live or not said.choices or headline == self._headline:
            return []
        self._headline = headline
        return [ShownLine(headline, "faint")]

    def _text(self, said: Said) -> list[ShownLine]:
        body, footer = footed(said.text)
        if footer:
            # The answer: the turn has told it already, unless it told something else.
            told, self._live, self._headline, self._plan = self._live, "", "", []
            lines = [] if body.strip() and _flat(body) in told else blocks(body.split("\n"))
            return [*lines, ShownLine(footer, "faint")]
        if self._live and _flat(body) in self._live:
            return []
        return self._grown(said)

    def _grown(self, said: Said) -> list[ShownLine]:
        """The lines that are new since the message was last shown."""
        lines = blocks(said.text.split("\n"))
        before = self._shown.get(said.ts)
        if before is None and not said.choices:
            self._shown[said.ts] = _bare(lines)
            return lines
        now = _bare(lines)
        self._shown[said.ts] = now
        same = 0
        while before and same < min(len(before), len(now)) and before[same] == now[same]:
            same += 1
        return now[same:] if before is not None else lines


def blocks(lines: Sequence[str]) -> list[ShownLine]:
    """The lines of one message, with those of its code blocks told apart."""
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
    """Without what only frames a program's output."""
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
    """An answer and the figures below it, "" where there are none."""
    body, _, last = text.rstrip().rpartition("\n")
    found = _FOOTER.fullmatch(last.strip())
    if found is None:
        return text, ""
    return body.strip("\n"), " • ".join(part for part in found.groups() if part)


def apart(text: str) -> tuple[str, str]:
    """What a script wants of a message, and what it does not: figures, or how a program ended."""
    body, figures = footed(text)
    if figures:
        return body, figures
    lines = text.split("\n")
    if lines[0] != FENCE or FENCE not in lines[1:]:
        return text, ""
    end = len(lines) - 1 - lines[::-1].index(FENCE)
    return "\n".join(lines[1:end]), "\n".join(lines[end + 1 :])
