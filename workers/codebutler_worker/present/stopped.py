"""What a stopped turn had done until then. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from codebutler.text.markup import plain
from codebutler_worker.present.lines import code, count, one_line, person
from codebutler_worker.present.reducer import View

MOST_FILES = 5
TEXT_CHARS = 300


def stopped(view: View, changed: Sequence[str], by: str = "") -> str:
    """``changed``: the files that are different now; ``by``: who stopped it from elsewhere."""
    who = f" by {person(by)}" if by else ""
    done = [part for part in (_tools(view), _files(changed)) if part]
    text = one_line(view.writing or view.said, TEXT_CHARS)
    if not done and not text:
        return f"🛑 Stopped{who} before anything was done."
    told = f"🛑 Stopped{who}. {' '.join(done)}" if done else f"🛑 Stopped{who} before any tool ran."
    return f"{told}\n> {plain(text)}" if text else told


def _tools(view: View) -> str:
    if not view.tools:
        return ""
    failed = f", {view.failed_tools} failed" if view.failed_tools else ""
    return f"{count(view.tools, 'tool call')}{failed}, the last one {code(view.last_tool)}."


def _files(changed: Sequence[str]) -> str:
    if not changed:
        return ""
    names = ", ".join(code(name, 60) for name in changed[:MOST_FILES])
    more = f" and {len(changed) - MOST_FILES} more" if len(changed) > MOST_FILES else ""
    ways = "(`!diff run` shows the changes, `!undo` reverts them)"
    return f"{count(len(changed), 'file')} changed: {names}{more} {ways}."
