"""What we say about the memory: the list, the card that asks, and the outcome. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from codebutler.config.memory import FactChange, suspicion
from codebutler.domain.message import Button, Message, said
from codebutler.text.markup import plain
from codebutler_worker.present.lines import count, one_line

KEEP_ACTION = "codebutler.memory_keep"
DROP_MEMORY_ACTION = "codebutler.memory_drop"
NOTHING = (
    "I remember nothing here yet. Every new session gets the facts in `.codebutler/memory.md`; "
    "with a key for Kimi or `native`, I also learn when a conversation ends."
)
HINT = "_`!memory forget N` removes one, `!memory undo` undoes the last change._"
NOTHING_TO_UNDO = "There is no memory change to undo."
LIST_CHARS = 2_600


@dataclass(frozen=True, slots=True)
class Remembered:
    """One entry of the list: a fact, and its origin (Markdown, may be "")."""

    text: str
    origin: str = ""


def listed(entries: Sequence[Remembered], others: int, limit: int = LIST_CHARS) -> str:
    """All facts, with the numbers to forget them by; ``others`` is the number of lines in the file that are
    not facts."""
    lines, size = ["🧠 Every new session gets:"], 0
    for number, entry in enumerate(entries, 1):
        line = f"{number}. {_shown(entry.text)}" + (f" · {entry.origin}" if entry.origin else "")
        size += len(line) + 1
        if size > limit:
            lines.append(f"… and {len(entries) - number + 1} more in `.codebutler/memory.md`.")
            break
        lines.append(line)
    if others:
        lines.append(f"… and {count(others, 'other line')} of `.codebutler/memory.md`.")
    return "\n".join([*lines, HINT] if entries else lines)


def told(change: FactChange) -> str:
    """A change in one line of Markdown."""
    match change.kind:
        case "append":
            return f"• {_shown(change.new)}"
        case "replace":
            return f"• {_shown(change.new)} (instead of: {_shown(change.old)})"
        case _:
            return f"• no longer: {_shown(change.old)}"


def logged(who: str, change: FactChange) -> str:
    """A change as a log line."""
    return f'{one_line(who, 60)}: {change.kind} "{one_line(change.new or change.old, 200)}"'


def card_text(changes: Sequence[FactChange]) -> str:
    """The proposed change, and what looks suspicious about it."""
    lines = ["🧠 Remember this for every new session?", *map(told, changes)]
    odd = [words for change in changes if (words := suspicion(change.new))]
    if odd:
        lines.append(
            f"⚠️ This reads like an instruction to agents rather than a fact ({plain(', '.join(odd))}): keep it only "
            "if it is your own."
        )
    return "\n".join(lines)


def card(change_id: str, changes: Sequence[FactChange]) -> Message:
    """The card with both answers."""
    return said(
        card_text(changes),
        Button("Keep", KEEP_ACTION, change_id, "primary"),
        Button("Drop", DROP_MEMORY_ACTION, change_id),
    )


def decided_card(changes: Sequence[FactChange], verdict: str) -> Message:
    """The card without its buttons."""
    return said("\n".join([*map(told, changes), verdict]))


def made_text(changes: Sequence[FactChange]) -> str:
    """The result of a person's command."""
    if not changes:
        return "🧠 Nothing to change: the memory is already as you want it."
    return "\n".join(["🧠 Done. `!memory undo` undoes it.", *map(told, changes)])


def _shown(fact: str) -> str:
    """A fact on a line of its own: people's text in the file may hold marks that would run on over other
    lines."""
    return plain(one_line(fact, 500).replace("```", "'''"))
