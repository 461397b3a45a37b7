"""Operations on the memory's text: a model proposes them, ``apply`` carries them out. Pure.

A fact is a line that begins with a bullet. Everything else in the file is the people's own and stays as it is. A model
may add facts and rewrite them; only consolidation and people take facts away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from codebutler.config.memory.lines import BULLET, clean

MAX_FACTS = 200
MAX_TEXT_CHARS = 24_000
FULL_SHARE = 0.8
"""Above this share of the limits it is time to consolidate."""

Refusal = Literal["empty", "known", "unknown", "full"]


@dataclass(frozen=True, slots=True)
class Change:
    """One fact that becomes another: without ``old`` it is new, without ``new`` it is gone. No bullets."""

    old: str = ""
    new: str = ""

    @property
    def kind(self) -> Literal["append", "replace", "remove"]:
        """In the words of the log."""
        return "append" if not self.old else "replace" if self.new else "remove"

    @property
    def undone(self) -> Change:
        """The change that takes it back."""
        return Change(self.new, self.old)


@dataclass(frozen=True, slots=True)
class Applied:
    """The text after all of it: what was ``made``, and what was not, with why."""

    text: str
    made: tuple[Change, ...] = ()
    refused: tuple[tuple[Change, Refusal], ...] = ()


def facts_of(text: str) -> tuple[str, ...]:
    """The facts in the text, in its order, without their bullets."""
    return tuple(fact for line in text.splitlines() if (fact := _fact(line)))


def apply(changes: Sequence[Change], text: str, *, verbatim: bool = False) -> Applied:
    """``text`` with the changes made, one after the other. Doing the same changes again refuses them all.

    What is changed has to be there word for word; what is added must not be; and nothing is added to a memory that
    is full. ``verbatim``: what people once wrote comes back as it was; a model's words are cleaned.
    """
    lines = text.splitlines()
    made: list[Change] = []
    refused: list[tuple[Change, Refusal]] = []
    for change in changes:
        new = " ".join(change.new.split()) if verbatim else clean(change.new)
        why = _refusal(change, new, lines)
        if why:
            refused.append((change, why))
            continue
        found = _place(change.old, lines) if change.old else None
        at = len(lines) if found is None else found
        lines[at : at + 1] = [BULLET + new] if new else []
        made.append(Change(change.old, new))
    ending = "\n" if lines else ""
    return Applied("\n".join(lines) + ending if made else text, tuple(made), tuple(refused))


def is_full(text: str, share: float = 1.0) -> bool:
    """Whether the text has reached its limits, or ``share`` of them."""
    return len(facts_of(text)) >= MAX_FACTS * share or len(text) >= MAX_TEXT_CHARS * share


def _refusal(change: Change, new: str, lines: list[str]) -> Refusal | None:
    if not new and (change.new or not change.old):
        return "empty"
    if change.old and _place(change.old, lines) is None:
        return "unknown"
    if new and new != change.old and _place(new, lines) is not None:
        return "known"
    text = "\n".join(lines)
    grows = len(text) + len(BULLET + new) + 1 - len(change.old) > MAX_TEXT_CHARS
    if new and ((not change.old and is_full(text)) or (grows and len(new) > len(change.old))):
        return "full"
    return "known" if new and new == change.old else None


def _place(fact: str, lines: list[str]) -> int | None:
    return next((at for at, line in enumerate(lines) if _fact(line) == fact), None)


def _fact(line: str) -> str:
    stripped = line.strip()
    return stripped[len(BULLET) :].strip() if stripped.startswith((BULLET, "* ")) else ""
