"""The cards on which an agent asks a person for leave. Pure.

A card shows the whole input of a call: what is not shown could be what matters. Characters that draw nothing
or turn the reading direction are written out, and a cut says how much it hides.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from codebutler.actions import ALLOW_ACTION, ALLOW_SESSION_ACTION, DENY_ACTION, REASON_ACTION
from codebutler.text.escape import neutralise
from codebutler.text.markdown import to_mrkdwn
from codebutler.text.split import split_markdown
from codebutler_worker.present.lines import clip, code, one_line, plain, visible
from codebutler_worker.present.progress import SECTION_CHARS, Message, button

TOGETHER = ","
"""Between the ids in the value of the button that allows several requests."""

CUT = "more characters are not shown."
DETAIL_CHARS = 1800
FALLBACK_CHARS = 3500
REASON_CHARS = 500
"""How much of a reason the card shows; the agent gets all of it."""
PLAN_PARTS = 4
"""Slack refuses blocks with much more text altogether (``msg_blocks_too_long``), and with them the buttons."""
_PLAN_PART_CHARS = 2500
_FENCE = "```"
_CUT_FENCE = "`\u200b`\u200b`"
_LEADS: Mapping[str, tuple[str, ...]] = {
    "Bash": ("command",),
    "Read": ("file_path",),
    "Write": ("file_path", "content"),
    "Edit": ("file_path", "old_string", "new_string"),
}
_MARKS = {"old_string": "- ", "new_string": "+ "}


@dataclass(frozen=True, slots=True)
class Item:
    """One request on a card: ``texts`` say what is asked (mrkdwn, each for a section of its own).

    ``scope`` is what "for this session" would cover, "" where it is not offered. ``votes`` (mrkdwn) of the ``needed``
    people have allowed it; ``verdict`` is what became of it, "" while it is open.
    """

    id: str
    texts: tuple[str, ...]
    scope: str = ""
    needed: int = 1
    votes: tuple[str, ...] = ()
    verdict: str = ""
    is_plan: bool = False


def approval_text(tool: str, given: Mapping[str, Any], workdir: str) -> str:
    """What the agent wants to do, exactly, and where."""
    body, hidden = _fenced(visible(_detail(tool, given)))
    lines = [f"🔐 Leave is asked for {code(tool, 60)}", f"{_FENCE}\n{body}\n{_FENCE}"]
    if hidden:
        lines.append(f"⚠️ {hidden} {CUT}")
    lines.append(f"in {code(workdir)}")
    return "\n".join(lines)


def plan_texts(plan: str) -> tuple[str, ...]:
    """What the agent is going to do if it may begin, in parts that each fit a section."""
    parts = split_markdown(visible(plan).strip() or "(it did not say)", _PLAN_PART_CHARS)
    shown = [clip(to_mrkdwn(neutralise(part)), SECTION_CHARS - 200) for part in parts[:PLAN_PARTS]]
    if hidden := sum(len(part) for part in parts[PLAN_PARTS:]):
        shown.append(f"⚠️ {hidden} more characters are in the file below.")
    return (f"📋 This is the plan. May I begin?\n{shown[0]}", *shown[1:])


def is_cut(plan: str) -> bool:
    """Whether ``plan_texts`` leaves something out."""
    return "characters are in the file below" in plan_texts(plan)[-1]


def approval_card(items: Sequence[Item]) -> Message:
    """The question whether the calls may run, with a decision for each, and one for all that are open."""
    open_ = [item for item in items if not item.verdict]
    blocks: list[dict[str, Any]] = []
    lines: list[str] = []
    for item in items:
        texts = [*item.texts[:-1], "\n".join([item.texts[-1], *_state_lines(item)])]
        if not item.verdict and len(open_) == 1:
            texts[-1] += f"\n{_hint(item)}"
        lines += texts
        if blocks:
            blocks.append({"type": "divider"})
        blocks += [_section(text) for text in texts]
        if not item.verdict:
            blocks.append(_buttons(item))
    if len(open_) > 1:
        ids = TOGETHER.join(item.id for item in open_)
        all_of_them = button(f"Allow all {len(open_)}", ALLOW_ACTION, ids)
        blocks.append({"type": "actions", "elements": [all_of_them]})
    return Message(clip("\n".join(lines), FALLBACK_CHARS), tuple(blocks))


def allowed_by(who: str, scope: str = "") -> str:
    """Who (mrkdwn) allowed it, once or (``scope``) for the session."""
    return f"✅ Allowed by {who}" + (f" for this session: {plain(scope)}." if scope else ".")


def denied_by(who: str, reason: str) -> str:
    """Who (mrkdwn) refused it, and why."""
    return f"🚫 Denied by {who}" + (f": {plain(one_line(reason, REASON_CHARS))}" if reason else ".")


def _state_lines(item: Item) -> list[str]:
    if item.verdict:
        return [item.verdict]
    if item.needed == 1:
        return []
    who = f": {', '.join(item.votes)}" if item.votes else ""
    return [f"👥 {item.needed} people have to allow this; {len(item.votes)} did{who}."]


def _hint(item: Item) -> str:
    if item.is_plan:
        return "Or say `yes`, or `no, …` with what it should be instead."
    hint = "Or say `yes` or `no, because …` here."
    return f"{hint} _Allow for this session_ covers {plain(item.scope)}." if item.scope else hint


def _buttons(item: Item) -> dict[str, Any]:
    if item.is_plan:
        elements = [
            button("Approve", ALLOW_ACTION, item.id, "primary"),
            button("Keep planning", DENY_ACTION, item.id),
            button("Say what to change…", REASON_ACTION, f"{item.id}:plan"),
        ]
        return {"type": "actions", "elements": elements}
    elements = [button("Allow", ALLOW_ACTION, item.id, "primary")]
    if item.scope:
        elements.append(button("Allow for this session", ALLOW_SESSION_ACTION, item.id))
    elements += [
        button("Deny", DENY_ACTION, item.id, "danger"),
        button("Deny with a reason…", REASON_ACTION, item.id),
    ]
    return {"type": "actions", "elements": elements}


def _section(text: str) -> dict[str, Any]:
    return {"type": "section", "text": {"type": "mrkdwn", "text": clip(text, SECTION_CHARS)}}


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
    hidden = len(text) - len(shown)
    # Also for the redactor: what stands before it may be half a key.
    return body + ("…" if hidden else ""), hidden
