"""Sessions from a terminal, as people read them: a list, and a summary of one. Pure.

A session's text is untrusted: it is redacted as a whole, then cut, and shown as plain text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from codebutler.config.agent_sessions import PastSession
from codebutler.text.markup import plain
from codebutler_worker.present.lines import code, count, one_line, span, visible

TITLE_CHARS, ASKED_CHARS, ANSWER_CHARS = 80, 300, 1_500
LAST_ASKED = 3
LISTED = 8
TITLES = {"claude": "Claude Code", "kimi": "Kimi Code"}
NONE_HERE = (
    "No Claude Code or Kimi Code session was started in a terminal in this repository. In a thread, "
    "`!terminal` shows how to continue it in one."
)
Redact = Callable[[str], str]


def ago(session: PastSession, now_s: float) -> str:
    """``4m12s ago``, or whole days."""
    seconds = max(0.0, now_s - session.changed_s)
    return f"{span(seconds) if seconds < 86_400 else f'{int(seconds // 86_400)}d'} ago"


def listed(sessions: Sequence[PastSession], now_s: float, redact: Redact) -> str:
    """The newest, each with its first words, its age and the command that takes it over."""
    if not sessions:
        return NONE_HERE
    lines = [
        f"• {plain(_line(each.asked[0], redact, TITLE_CHARS))} · {TITLES[each.agent]} · {ago(each, now_s)}\n"
        f"   `!continue {each.id}`"
        for each in sessions[:LISTED]
    ]
    more = [f"… and {len(sessions) - LISTED} more"] if len(sessions) > LISTED else []
    return "\n".join(["Started in a terminal here:", *lines, *more])


def taken_over(session: PastSession, prefix: str, now_s: float, redact: Redact) -> str:
    """Summary of a session that continues in this thread. ``prefix``: what calls its agent; "" for the
    default one."""
    asked = [_line(text, redact, ASKED_CHARS) for text in session.asked]
    shown = asked if len(asked) <= LAST_ASKED + 1 else [asked[0], "", *asked[-LAST_ASKED:]]
    left_out = f"_… {count(len(asked) - LAST_ASKED - 1, 'message')} left out …_"
    answer = visible_text(redact(session.answer))
    cut = answer if len(answer) <= ANSWER_CHARS else f"{answer[: ANSWER_CHARS - 1]}…"
    how = f"Write `{prefix}: …` in this thread" if prefix else "Reply in this thread"
    parts = [
        f"📥 **{TITLES[session.agent]}**, session {code(session.id)}, last used {ago(session, now_s)}",
        "Asked:" if asked else "",
        *(f"• {plain(text)}" if text else left_out for text in shown),
        "Last answer:" if cut else "",
        *(f"> {plain(line)}" for line in cut.splitlines()),
        f"{how} to continue it, with its full history.",
    ]
    return "\n".join(part for part in parts if part)


def _line(text: str, redact: Redact, limit: int) -> str:
    return visible(one_line(redact(text), limit))


def visible_text(text: str) -> str:
    """``visible`` for several lines."""
    return "\n".join(visible(line) for line in text.splitlines())
