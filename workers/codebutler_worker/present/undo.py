"""What is said about undoing. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from codebutler.domain.message import Button, Message, said
from codebutler_worker.present.lines import count, fenced
from codebutler_worker.tree.tree import PutBack

UNDO_ACTION = "codebutler.undo"
LISTED = 30
PATHS_CHARS = 1800

BUSY = "An agent is running and may be writing: send `!stop` or wait until it ends, then `!undo`."
NO_SNAPSHOT = "There is nothing to undo here: no run has changed a file that git would keep."
NOTHING_CHANGED = "The last run here ({words}, {when}) left nothing that could be put back."
ALREADY = "That is already undone. `!undo` redoes it."
UNDOING = "↩ Undoing “{words}” …"


def preview(turn_id: str, what: str, found: PutBack) -> Message:
    """What would be put back, and the button that does it; without one if nothing can be."""
    text = f"↩ Undo {what}?\n{_outcome(found)}"
    if not found.undone:
        return said(text)
    text += "\nCommits, branches and what is staged stay as they are."
    return said(text, Button(f"Undo {count(found.undone, 'file')}", UNDO_ACTION, turn_id, "danger"))


def _outcome(found: PutBack) -> str:
    lines = []
    if found.restored:
        lines.append(f"These files would be as they were before it:\n{_paths(found.restored)}")
    if found.removed:
        lines.append(f"It made these, and they would be removed:\n{_paths(found.removed)}")
    if found.left:
        lines.append(f"Changed since, so left alone:\n{_paths(found.left)}")
    if found.commits:
        lines.append(_commits(found.commits))
    return "\n".join(lines)


def _commits(number: int) -> str:
    return f"⚠️ It made {count(number, 'commit')}, which {'stays' if number == 1 else 'stay'}."


def _paths(paths: Sequence[str]) -> str:
    shown = [_visible(path) for path in paths[:LISTED]]
    more = len(paths) - len(shown)
    block, _ = fenced("\n".join([*shown, *([f"… and {more} more"] if more else [])]), PATHS_CHARS)
    return block


def markdown(found: PutBack) -> str:
    """What was put back, as Markdown."""
    parts = [f"↩ Put back {count(found.undone, 'file')} as before:"]
    if found.restored:
        parts.append(_list(found.restored))
    if found.removed:
        parts += ["Removed:", _list(found.removed)]
    if found.left:
        parts += ["Changed since, so left alone:", _list(found.left)]
    if found.commits:
        parts.append(_commits(found.commits))
    return "\n\n".join(parts)


def _list(paths: Sequence[str]) -> str:
    shown = [f"- `{_visible(path)}`" for path in paths[:LISTED]]
    more = len(paths) - len(shown)
    return "\n".join([*shown, *([f"- … and {more} more"] if more else [])])


def _visible(path: str) -> str:
    """A path that cannot pass for another one, or end the code it is shown as."""
    return "".join(each if each.isprintable() and each != "`" else f"\\u{ord(each):04x}" for each in path)
