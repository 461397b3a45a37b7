"""The rows that share a card, as the card shows them: calls to allow, questions to answer. Pure over rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from itertools import zip_longest

from codebutler.domain.message import ApprovalCard, Message, Option, PermissionRequest, Question, QuestionCard
from codebutler.domain.model import Asked
from codebutler.text.markup import plain
from codebutler_worker.present.calls import (
    QUESTIONS,
    ShownCall,
    allowed_by,
    call_shown,
    called_with,
    denied_by,
    details_of,
    given_of,
    options_of,
    plan_shown,
    scope_of,
    voters,
    whole_call,
)
from codebutler_worker.present.lines import one_line, person, visible
from codebutler_worker.store.rows import ApprovalRow
from codebutler_worker.tools.outcome import PLAN_TOOL

HOME_CHARS = 900
HOME_OPTIONS = 4
UNDECIDED = "⚠️ Nobody decided: this was NOT run."
MAX_OPTIONS = 10
"""Slack: boxes in one group."""
LABEL_CHARS = 75
"""Slack: the text of a button, and that of a box."""
DETAIL_CHARS = 200
_OPTION = re.compile(r"\s*(?:[-*•]|\d{1,2}[.)])\s+(?P<words>\S.*)")


def card_of(
    rows: Sequence[ApprovalRow], redact: Callable[[str], str], ticked: Collection[str] = ()
) -> Message:
    """The card that asks these, as it stands; ``ticked`` are the boxes that somebody has ticked on it."""
    deciders = tuple(sorted({user for row in rows for user in _deciders(row)}))
    if rows[0].tool in QUESTIONS:
        questions = QuestionCard(tuple(map(_question, rows)), tuple(sorted(ticked)))
        return Message(card=questions, names=deciders)
    return Message(card=ApprovalCard(tuple(_request(row, redact) for row in rows)), names=deciders)


def chars_of(row: ApprovalRow) -> int:
    """How much of a card the request takes."""
    return sum(map(len, _shown(row, str).texts))


def too_long(row: ApprovalRow, redact: Callable[[str], str]) -> tuple[str, str]:
    """(file name, all that is asked) where its card leaves out some of it; ("", "") elsewhere."""
    if row.tool in QUESTIONS or not _shown(row, redact).hidden:
        return "", ""
    called = called_with(row)
    if row.tool == PLAN_TOOL:
        return "plan.md", redact(str(called.get("plan", "")))
    return "request.txt", redact(whole_call(row.tool, called))


def asked_at_home(row: ApprovalRow, card_ts: str) -> Asked:
    """The same for App Home: what is too long for it or is cut on its card is decided there."""
    if row.tool in QUESTIONS:
        question = one_line(str(given_of(row).get("question", "")), HOME_CHARS)
        options = tuple(one_line(option, LABEL_CHARS) for option in options_of(row))
        several = given_of(row).get("several") is True
        most = MAX_OPTIONS if several else HOME_OPTIONS  # boxes share a block
        return Asked(
            id=row.id,
            card_ts=card_ts,
            text=f"🤔 {plain(question)}",
            options=options if len(options) <= most else (),
            is_question=True,
            several=several,
        )
    text = "" if row.tool == PLAN_TOOL else "\n".join(_shown(row, str).texts)
    return Asked(id=row.id, card_ts=card_ts, text=text if len(text) <= HOME_CHARS else "")


def _question(row: ApprovalRow) -> Question:
    several = given_of(row).get("several") is True
    found = zip_longest(options_of(row)[:MAX_OPTIONS], details_of(row)[:MAX_OPTIONS], fillvalue="")
    return Question(
        id=row.id,
        text=visible(str(given_of(row).get("question", ""))),
        options=tuple(option(label, at, detail, several=several) for at, (label, detail) in enumerate(found)),
        several=several,
        verdict=_verdict(row),
    )


def _shown(row: ApprovalRow, redact: Callable[[str], str]) -> ShownCall:
    called = called_with(row)
    if row.tool == PLAN_TOOL:
        return plan_shown(str(called.get("plan", "")), redact)
    return call_shown(row.tool, called, str(given_of(row).get("cwd", "")), redact)


def _request(row: ApprovalRow, redact: Callable[[str], str]) -> PermissionRequest:
    is_plan = row.tool == PLAN_TOOL
    return PermissionRequest(
        id=row.id,
        texts=_shown(row, redact).texts,
        scope="" if is_plan or row.needed > 1 else scope_of(row.tool, called_with(row)),
        needed=row.needed,
        votes=tuple(_deciders(row).values()),
        verdict=_verdict(row),
        is_plan=is_plan,
    )


def _deciders(row: ApprovalRow) -> dict[str, str]:
    """Everybody who has decided so far, as people read them, by user ID."""
    names = voters(row)
    if row.decided_by:
        names.setdefault(row.decided_by, "")
    return {user: person(user, name) for user, name in names.items()}


def _verdict(row: ApprovalRow) -> str:
    """What became of the request, "" while it is open."""
    names = _deciders(row)
    by = names.get(row.decided_by or "", "")
    match row.state:
        case "pending":
            return ""
        case "expired":
            return row.reason or UNDECIDED
        case "denied":
            return denied_by(by, row.reason or "")
        case "allowed" if row.tool in QUESTIONS:
            return answered_by(by, row.reason or "")
        case "allowed":
            scope = scope_of(row.tool, called_with(row)) if row.for_session else ""
            return allowed_by(" and ".join(names.values()) if row.needed > 1 else by, scope)


def option(label: str, at: int, detail: str, *, several: bool) -> Option:
    """One of the answers as a button or, where ``several`` may be chosen, a box with little room for a detail."""
    room = LABEL_CHARS if several else DETAIL_CHARS
    return Option(
        one_line(visible(label), LABEL_CHARS) or f"Option {at + 1}", one_line(visible(detail), room)
    )


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
    """Who (Markdown) answered what."""
    return f"💬 {who}: {plain(one_line(answer, 300))}"
