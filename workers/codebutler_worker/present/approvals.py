"""The cards on which an agent asks a person: leave for calls, or a choice. Pure.

A card shows the whole input of a call: what is not shown could be what matters. Characters that draw nothing
or turn the reading direction are written out, and a cut says how much it hides.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from codebutler.model import DENY_ACTION, REASON_ACTION
from codebutler.text.escape import neutralise
from codebutler.text.markdown import to_mrkdwn
from codebutler.text.split import split_markdown
from codebutler_worker.present.lines import clip, code, one_line, plain
from codebutler_worker.present.progress import SECTION_CHARS, Message, button

ALLOW_ACTION = "codebutler.allow"
ALLOW_SESSION_ACTION = "codebutler.allow_session"
ANSWER_ACTION = "codebutler.answer"
TOGETHER = ","
"""Between the ids in the value of the button that allows several requests."""

PLAN_TOOL = "ExitPlanMode"
"""Claude Code's name for "this is my plan, may I begin?"."""
DETAIL_CHARS = 1800
QUESTION_CHARS = 2000
MAX_OPTIONS = 10
LABEL_CHARS = 75
"""Slack: the text of a button."""
FALLBACK_CHARS = 3500
REASON_CHARS = 500
"""How much of a reason the card shows; the agent gets all of it."""
PLAN_PARTS = 4
"""Slack refuses blocks with much more text altogether (``msg_blocks_too_long``), and with them the buttons."""
_PLAN_PART_CHARS = 2500
_OPTION = re.compile(r"\s*(?:[-*•]|\d{1,2}[.)])\s+(?P<words>\S.*)")
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

    ``scope`` is what "for this session" would cover, "" where it is not offered. ``votes`` of the ``needed``
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
    body, hidden = _fenced(_visible(_detail(tool, given)))
    lines = [f"🔐 Leave is asked for {code(tool, 60)}", f"{_FENCE}\n{body}\n{_FENCE}"]
    if hidden:
        lines.append(f"⚠️ {hidden} more characters are not shown.")
    lines.append(f"in {code(workdir)}")
    return "\n".join(lines)


def plan_texts(plan: str) -> tuple[str, ...]:
    """What the agent is going to do if it may begin, in parts that each fit a section."""
    parts = split_markdown(_visible(plan).strip() or "(it did not say)", _PLAN_PART_CHARS)
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


def question_text(asked: str) -> str:
    """What the agent wants to know."""
    return clip(f"🤔 {plain(_visible(asked)) or '…'}", QUESTION_CHARS)


def question_card(approval_id: str, text: str, options: Sequence[str]) -> Message:
    """A question with a button for each option, each in a row of its own: Slack wants the action IDs of a row
    to differ."""
    text = f"{text}\n{'Press one, or answer' if options else 'Answer'} in your own words here."
    rows = [
        {"type": "actions", "elements": [button(_label(option, at), ANSWER_ACTION, f"{approval_id}:{at}")]}
        for at, option in enumerate(options[:MAX_OPTIONS])
    ]
    return Message(text, (_section(text), *rows))


def options_in(body: str) -> tuple[str, tuple[str, ...]]:
    """A question and the options it ends with, as a list of two to ten short lines; no options in any other text."""
    lines = body.strip().splitlines()
    found: list[str] = []
    while lines and (match := _OPTION.fullmatch(lines[-1])):
        found.insert(0, one_line(match["words"], 1000))
        lines.pop()
    shown = all(len(option) <= LABEL_CHARS and option == _visible(option) for option in found)
    question = "\n".join(lines).strip()
    if not question or not shown or not 2 <= len(found) <= MAX_OPTIONS:
        return body, ()
    return question, tuple(found)


def closed_question(text: str, verdict: str) -> Message:
    """A question again, without its buttons and with what became of it."""
    return Message(f"{text}\n{verdict}")


def allowed_by(user: str, scope: str = "") -> str:
    """Who allowed it, once or (``scope``) for the session."""
    return f"✅ Allowed by {plain(user)}" + (f" for this session: {plain(scope)}." if scope else ".")


def denied_by(user: str, reason: str) -> str:
    """Who refused it, and why."""
    return f"🚫 Denied by {plain(user)}" + (f": {plain(one_line(reason, REASON_CHARS))}" if reason else ".")


def answered_by(user: str, answer: str) -> str:
    """Who answered what."""
    return f"💬 {plain(user)}: {plain(one_line(answer, 300))}"


def _state_lines(item: Item) -> list[str]:
    if item.verdict:
        return [item.verdict]
    if item.needed == 1:
        return []
    who = f": {plain(', '.join(item.votes))}" if item.votes else ""
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
