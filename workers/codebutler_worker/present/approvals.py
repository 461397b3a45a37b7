"""The cards on which an agent asks a person: leave for one call, or a choice. Pure.

A card shows the whole input of the call: what is not shown could be what matters. Characters that draw nothing
or turn the reading direction are written out, and a cut says how much it hides.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from codebutler_worker.present.lines import clip, code, one_line, plain
from codebutler_worker.present.progress import Message, button, with_buttons

ALLOW_ACTION = "codebutler.allow"
ALLOW_SESSION_ACTION = "codebutler.allow_session"
DENY_ACTION = "codebutler.deny"
ANSWER_ACTION = "codebutler.answer"

DETAIL_CHARS = 1800
QUESTION_CHARS = 2000
MAX_OPTIONS = 10
LABEL_CHARS = 75
"""Slack: the text of a button."""
_FENCE = "```"
_CUT_FENCE = "`\u200b`\u200b`"
_LEADS: Mapping[str, tuple[str, ...]] = {
    "Bash": ("command",),
    "Write": ("file_path", "content"),
    "Edit": ("file_path", "old_string", "new_string"),
}
_MARKS = {"old_string": "- ", "new_string": "+ "}


def approval_text(tool: str, given: Mapping[str, Any], workdir: str, user: str) -> str:
    """What the agent wants to do, exactly, where, and in whose turn."""
    body, hidden = _fenced(_visible(_detail(tool, given)))
    lines = [f"🔐 Leave is asked for {code(tool, 60)}", f"{_FENCE}\n{body}\n{_FENCE}"]
    if hidden:
        lines.append(f"⚠️ {hidden} more characters are not shown.")
    lines.append(f"in {code(workdir)}" + (f" · for {plain(user)}" if user else ""))
    return "\n".join(lines)


def approval_card(approval_id: str, text: str, scope: str) -> Message:
    """The question whether the call may run; ``scope`` is what "for this session" would cover."""
    return with_buttons(
        f"{text}\nOr say `yes` or `no, because …` here. _Allow for this session_ covers {plain(scope)}.",
        button("Allow", ALLOW_ACTION, approval_id, "primary"),
        button("Allow for this session", ALLOW_SESSION_ACTION, approval_id),
        button("Deny", DENY_ACTION, approval_id, "danger"),
    )


def question_text(asked: str) -> str:
    """What the agent wants to know."""
    return clip(f"🤔 {plain(_visible(asked)) or '…'}", QUESTION_CHARS)


def question_card(approval_id: str, text: str, options: Sequence[str]) -> Message:
    """A question with a button for each option, each in a row of its own: Slack wants the action IDs of a row
    to differ."""
    text = f"{text}\nPress one, or answer in your own words here."
    section = {"type": "section", "text": {"type": "mrkdwn", "text": text}}
    rows = [
        {"type": "actions", "elements": [button(_label(option, at), ANSWER_ACTION, f"{approval_id}:{at}")]}
        for at, option in enumerate(options[:MAX_OPTIONS])
    ]
    return Message(text, (section, *rows))


def closed_card(text: str, verdict: str) -> Message:
    """The card again, without its buttons and with what became of it."""
    return Message(f"{text}\n{verdict}")


def allowed_by(user: str, scope: str = "") -> str:
    """Who allowed it, once or (``scope``) for the session."""
    return f"✅ Allowed by {plain(user)}" + (f" for this session: {plain(scope)}." if scope else ".")


def denied_by(user: str, reason: str) -> str:
    """Who refused it, and why."""
    return f"🚫 Denied by {plain(user)}" + (f": {plain(one_line(reason, 300))}" if reason else ".")


def answered_by(user: str, answer: str) -> str:
    """Who answered what."""
    return f"💬 {plain(user)}: {plain(one_line(answer, 300))}"


def _label(option: str, at: int) -> str:
    return one_line(_visible(option), LABEL_CHARS) or f"Option {at + 1}"


def _detail(tool: str, given: Mapping[str, Any]) -> str:
    """The input, what matters first, nothing left out."""
    leads = [key for key in _LEADS.get(tool, ()) if isinstance(given.get(key), str)]
    lines = []
    for key in leads:
        mark = _MARKS.get(key, "")
        lines.append("\n".join(mark + line for line in given[key].split("\n")))
    rest = {key: value for key, value in given.items() if key not in leads}
    if rest:
        lines.append(json.dumps(rest, ensure_ascii=False, indent=1))
    return "\n".join(lines)


def _fenced(text: str) -> tuple[str, int]:
    """The text escaped for a code block, and how many characters had to be left out of it."""
    shown = text[:DETAIL_CHARS]
    while len(body := plain(shown).replace(_FENCE, _CUT_FENCE)) > DETAIL_CHARS:
        shown = shown[: len(shown) * 3 // 4]
    return body, len(text) - len(shown)


def _visible(text: str) -> str:
    """Control, format and separator characters, which show nothing or mislead, as their code points."""
    return "".join(
        each
        if each in "\n\t" or unicodedata.category(each) not in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
        else f"\\u{ord(each):04x}"
        for each in text
    )
