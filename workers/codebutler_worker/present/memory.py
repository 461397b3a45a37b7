"""What is said about the memory: the list, the card that asks, and what became of it. Pure."""

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
    "Nothing is remembered here. What you write into `.codebutler/memory.md` is told to every new session; with a key "
    "for Kimi or `native` I learn by myself when a conversation ends."
)
HINT = "_`!memory forget N` forgets one, `!memory undo` takes the last change back._"
NOTHING_TO_UNDO = "There is no change to the memory to undo."
LIST_CHARS = 2_600


@dataclass(frozen=True, slots=True)
class Remembered:
    """One entry of the list: what is remembered, and where it comes from (Markdown, may be "")."""

    text: str
    origin: str = ""


def listed(entries: Sequence[Remembered], others: int, limit: int = LIST_CHARS) -> str:
    """All that is remembered, with the numbers to forget it by; ``others`` lines of the file are no facts."""
    lines, size = ["🧠 Every new session is told:"], 0
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
    """A change in the log's words."""
    return f'{one_line(who, 60)}: {change.kind} "{one_line(change.new or change.old, 200)}"'


def card_text(changes: Sequence[FactChange]) -> str:
    """What is to be decided, with what is odd about it."""
    lines = ["🧠 Remember this for every new session?", *map(told, changes)]
    odd = [words for change in changes if (words := suspicion(change.new))]
    if odd:
        lines.append(
            f"⚠️ This reads like an order to agents rather than a fact ({plain(', '.join(odd))}): keep it only if it "
            "is your own."
        )
    return "\n".join(lines)


def card(change_id: str, changes: Sequence[FactChange]) -> Message:
    """The question, with both answers."""
    return said(
        card_text(changes),
        Button("Keep", KEEP_ACTION, change_id, "primary"),
        Button("Drop", DROP_MEMORY_ACTION, change_id),
    )


def decided_card(changes: Sequence[FactChange], verdict: str) -> Message:
    """The card without its buttons."""
    return said("\n".join([*map(told, changes), verdict]))


def made_text(changes: Sequence[FactChange]) -> str:
    """What a person has brought about."""
    if not changes:
        return "🧠 Nothing to change: the memory is already as you want it."
    return "\n".join(["🧠 Done. `!memory undo` takes it back.", *map(told, changes)])


def _shown(fact: str) -> str:
    """A fact in a line of its own: what people wrote into the file may hold marks that would run on over others."""
    return plain(one_line(fact, 500).replace("```", "'''"))
