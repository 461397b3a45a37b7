"""A tool call and its result, for those who want to see every one. Pure."""

from __future__ import annotations

from codebutler.text.markup import fence
from codebutler.text.redact import Redactor
from codebutler_worker.present.lines import code

RESULT_CHARS = 700
RESULT_LINES = 15


def tool_result(label: str, text: str, *, ok: bool) -> str:
    """The call in one line, and the beginning of what it answered."""
    head = f"{'✓' if ok else '✗'} {code(label)}"
    # Before it is cut: the second half of a key does not look like one any more.
    lines = Redactor().redact(text).strip().splitlines()
    shown = "\n".join(lines[:RESULT_LINES])[:RESULT_CHARS]
    if not shown.strip():
        return head
    cut = "\n…" if len(lines) > RESULT_LINES or len("\n".join(lines)) > RESULT_CHARS else ""
    return f"{head}\n{fence(shown + cut)}"


def joined(entries: list[str], left_out: int) -> str:
    """Several of them as one message."""
    more = [f"… and {left_out} more, too many to show"] if left_out else []
    return "\n".join([*entries, *more])
