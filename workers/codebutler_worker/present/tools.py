"""A tool call and its result, for those who want to see every one. Pure."""

from __future__ import annotations

from codebutler.text.redact import Redactor
from codebutler_worker.present.lines import code, plain

RESULT_CHARS = 700
RESULT_LINES = 15
_FENCE = "```"
_CUT_FENCE = "`\u200b`\u200b`"


def tool_result(label: str, text: str, *, ok: bool) -> str:
    """mrkdwn: the call in one line, and the beginning of what it answered."""
    head = f"{'✓' if ok else '✗'} {code(label)}"
    # Before it is cut: the second half of a key does not look like one any more.
    lines = Redactor().redact(text).strip().splitlines()
    shown = "\n".join(lines[:RESULT_LINES])[:RESULT_CHARS]
    if not shown.strip():
        return head
    cut = "\n…" if len(lines) > RESULT_LINES or len("\n".join(lines)) > RESULT_CHARS else ""
    body = plain(shown).replace(_FENCE, _CUT_FENCE)
    return f"{head}\n{_FENCE}\n{body}{cut}\n{_FENCE}"


def joined(entries: list[str], left_out: int) -> str:
    """Several of them as one message."""
    more = [f"… and {left_out} more, too many to show"] if left_out else []
    return "\n".join([*entries, *more])
