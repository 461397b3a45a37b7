"""How commands are shown to people: completion, suggestions, and the table in the docs. Pure."""

from __future__ import annotations

import difflib

from codebutler.domain.commands import ALIASES, ALL, WORDS
from codebutler.domain.word import Word


def completions() -> tuple[tuple[str, str], ...]:
    """What can be typed for a command, after its mark, and what it does: for completion."""
    return tuple((name, word.gist) for word in ALL for name in (word.name, *word.aliases))


def usage_error(word: Word) -> str:
    """One line for an argument that the command does not accept."""
    if word.usage:
        return f"Usage: `{word.example}` ({word.gist})."
    return f"`{word.example}` takes no argument: {word.gist}."


def nearest(name: str) -> str | None:
    """The command that was probably meant."""
    lower = name.lower()
    names = [*WORDS, *ALIASES]
    if near := difflib.get_close_matches(lower, names):
        # Two letters in the wrong order are the usual slip.
        return next((name for name in near if sorted(name) == sorted(lower)), near[0])
    begun = [name for name in names if len(lower) > 1 and name.startswith(lower)]
    return begun[0] if len(begun) == 1 else None


def usage_hint() -> str:
    """What a chat shows next to the slash command while it is typed (at most 1,000 characters)."""
    return " | ".join(f"{word.name} {word.usage}".rstrip() for word in ALL if "|" not in word.usage)


def as_table() -> str:
    """The commands as a Markdown table, for the documentation."""
    return "\n".join(("| command | what it does |", "|---|---|", *(_row(word) for word in ALL)))


def _row(word: Word) -> str:
    example = word.example.replace("|", "\\|")
    sentence = f"{word.gist[0].upper()}{word.gist[1:]}{'' if word.gist.endswith('?') else '.'}"
    return f"| `{example}` | {sentence}{' ' + word.about if word.about else ''} |"
