"""The cards on which an agent asks what a person wants: one choice, several, or their own words. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from codebutler.actions import ANSWER_ACTION, PICK_ACTION, TICKED
from codebutler_worker.present.lines import clip, one_line, plain, visible
from codebutler_worker.present.progress import SECTION_CHARS, Message, button

QUESTION_CHARS = 2000
"""Of all questions on a card; what explains their options takes half as much again."""
FALLBACK_CHARS = 3500
MAX_OPTIONS = 10
"""Slack: boxes in one group."""
LABEL_CHARS = 75
"""Slack: the text of a button, and that of a box."""
DETAIL_CHARS = 200
_OPTION = re.compile(r"\s*(?:[-*•]|\d{1,2}[.)])\s+(?P<words>\S.*)")


@dataclass(frozen=True, slots=True)
class Question:
    """One question on a card. ``details`` explain the ``options``, "" where there is nothing to explain.

    ``several``: more than one may be chosen. ``verdict`` is what became of it, "" while it is open.
    """

    id: str
    text: str
    options: tuple[str, ...] = ()
    details: tuple[str, ...] = ()
    several: bool = False
    verdict: str = ""


def question_card(questions: Sequence[Question], ticked: Collection[str] = ()) -> Message:
    """The questions, each with its options; ``ticked`` are the values of boxes that somebody has ticked.

    Options are buttons in rows of their own (Slack wants the action IDs of a row to differ), or boxes and a button
    where several may be chosen.
    """
    open_ = [each for each in questions if not each.verdict]
    blocks: list[dict[str, Any]] = []
    texts = []
    for number, each in enumerate(questions, 1):
        count = f"*{number} of {len(questions)}* " if len(questions) > 1 else ""
        first = bool(open_) and each is open_[0]
        room = QUESTION_CHARS // len(questions)
        text = "\n".join([count + _text(each, room), *_lines(each, room, len(open_), first=first)])
        texts.append(text)
        if blocks:
            blocks.append({"type": "divider"})
        blocks += [_section(text), *_choices(each, ticked)]
    text = clip("\n".join(texts), FALLBACK_CHARS)
    return Message(text, tuple(blocks)) if open_ or len(questions) > 1 else Message(text)


def options_in(body: str) -> tuple[str, tuple[str, ...]]:
    """A question and the options it ends with, as a list of two to ten short lines; no options in any other text."""
    lines = body.strip().splitlines()
    found: list[str] = []
    while lines and (match := _OPTION.fullmatch(lines[-1])):
        found.insert(0, one_line(match["words"], 1000))
        lines.pop()
    shown = all(len(option) <= LABEL_CHARS and option == visible(option) for option in found)
    question = "\n".join(lines).strip()
    if not question or not shown or not 2 <= len(found) <= MAX_OPTIONS:
        return body, ()
    return question, tuple(found)


def answered_by(who: str, answer: str) -> str:
    """Who (mrkdwn) answered what."""
    return f"💬 {who}: {plain(one_line(answer, 300))}"


def box(question_id: str, at: int) -> str:
    """What names one option of a question."""
    return f"{question_id}:{at}"


def _text(question: Question, room: int) -> str:
    return clip(f"🤔 {plain(visible(question.text)) or '…'}", room)


def _lines(question: Question, room: int, still_open: int, *, first: bool) -> list[str]:
    if question.verdict:
        return [question.verdict]
    details = [
        f"• *{plain(_label(option, at))}*: {plain(one_line(visible(detail), DETAIL_CHARS))}"
        for at, (option, detail) in enumerate(zip(question.options, question.details, strict=False))
        if detail.strip() and not question.several
    ]
    explained = [clip("\n".join(details), room // 2)] if details else []
    if not first:
        return explained
    ways = "Answer"
    if question.options:
        ways = "Choose one or more, or answer" if question.several else "Choose one, or answer"
    which = " What you write answers this question." if still_open > 1 else ""
    return [*explained, f"{ways} in your own words here.{which}"]


def _choices(question: Question, ticked: Collection[str]) -> list[dict[str, Any]]:
    if question.verdict or not question.options:
        return []
    options = question.options[:MAX_OPTIONS]
    if not question.several:
        return [
            _row(button(_label(option, at), ANSWER_ACTION, box(question.id, at)))
            for at, option in enumerate(options)
        ]
    boxes = [_box(question, at) for at in range(len(options))]
    group: dict[str, Any] = {"type": "checkboxes", "action_id": PICK_ACTION, "options": boxes}
    if chosen := [each for each in boxes if each["value"] in ticked]:
        group["initial_options"] = chosen
    done = button("Done", ANSWER_ACTION, f"{question.id}:{TICKED}", "primary")
    return [{**_row(group), "block_id": question.id}, _row(done)]


def _box(question: Question, at: int) -> dict[str, Any]:
    shown = {"type": "plain_text", "text": _label(question.options[at], at)}
    option: dict[str, Any] = {"text": shown, "value": box(question.id, at)}
    detail = question.details[at] if at < len(question.details) else ""
    if words := one_line(visible(detail), LABEL_CHARS):
        option["description"] = {"type": "plain_text", "text": words}
    return option


def _row(*elements: dict[str, Any]) -> dict[str, Any]:
    return {"type": "actions", "elements": list(elements)}


def _label(option: str, at: int) -> str:
    return one_line(visible(option), LABEL_CHARS) or f"Option {at + 1}"


def _section(text: str) -> dict[str, Any]:
    return {"type": "section", "text": {"type": "mrkdwn", "text": clip(text, SECTION_CHARS)}}
