"""Cards as people see them: the rows that share one (calls to approve, questions to answer), and those about the
memory. Pure over rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from itertools import zip_longest

from msgspec import Struct
from msgspec.structs import replace

from codebutler.config.memory import FactChange, suspicious_words
from codebutler.domain.message import (
    ApprovalCard,
    Button,
    Message,
    Option,
    PermissionRequest,
    Question,
    QuestionCard,
    said,
)
from codebutler.domain.model import Asked
from codebutler.domain.refs import NO_PERSON, MessageRef, PersonRef
from codebutler.text.markup import plain
from codebutler.text.wording import count, one_line
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
from codebutler_worker.present.lines import person, visible
from codebutler_worker.store.rows import ApprovalRow
from codebutler_worker.tools.tool import PLAN_TOOL

HOME_CHARS = 900
HOME_OPTIONS = 4
UNDECIDED = "⚠️ Nobody decided: this was NOT run."
MAX_OPTIONS = 10
"""Boxes in one group, the limit of every chat."""
LABEL_CHARS = 75
"""Characters on a button or a box, the limit of every chat."""
DETAIL_CHARS = 200
_OPTION = re.compile(r"\s*(?:[-*•]|\d{1,2}[.)])\s+(?P<words>\S.*)")

KEEP_ACTION = "codebutler.memory_keep"
DROP_MEMORY_ACTION = "codebutler.memory_drop"
NOTHING = (
    "I remember nothing here yet. Every new session gets the facts in `.codebutler/memory.md`; "
    "with a key for Kimi or `native`, I also learn when a conversation ends."
)
HINT = "_`!memory forget N` removes one, `!memory undo` undoes the last change._"
NOTHING_TO_UNDO = "There is no memory change to undo."
LIST_CHARS = 2_600


def card_of(
    rows: Sequence[ApprovalRow], redact: Callable[[str], str], ticked: Collection[str] = ()
) -> Message:
    """The card for these rows as they stand; ``ticked`` are the boxes that somebody has ticked."""
    deciders = tuple(sorted({user for row in rows for user in _deciders(row)}))
    if rows[0].tool in QUESTIONS:
        questions = QuestionCard(tuple(map(_question, rows)), tuple(sorted(ticked)))
        return Message(card=questions, names=deciders)
    return Message(card=ApprovalCard(tuple(_request(row, redact) for row in rows)), names=deciders)


def chars_of(row: ApprovalRow) -> int:
    """How many characters of a card the request takes."""
    return sum(map(len, _shown(row, str).texts))


def too_long(row: ApprovalRow, redact: Callable[[str], str]) -> tuple[str, str]:
    """(file name, the whole request) if its card leaves some of it out, else ("", "")."""
    if row.tool in QUESTIONS or not _shown(row, redact).hidden:
        return "", ""
    called = called_with(row)
    if row.tool == PLAN_TOOL:
        return "plan.md", redact(str(called.get("plan", "")))
    return "request.txt", redact(whole_call(row.tool, called))


def asked_at_home(row: ApprovalRow, card: MessageRef) -> Asked:
    """The same for App Home: what is too long for it, or cut on its card, has to be decided in the chat."""
    if row.tool in QUESTIONS:
        question = one_line(str(given_of(row).get("question", "")), HOME_CHARS)
        options = tuple(one_line(option, LABEL_CHARS) for option in options_of(row))
        several = given_of(row).get("several") is True
        most = MAX_OPTIONS if several else HOME_OPTIONS  # boxes share a block
        return Asked(
            id=row.id,
            card=card,
            text=f"🤔 {plain(question)}",
            options=options if len(options) <= most else (),
            is_question=True,
            several=several,
        )
    text = "" if row.tool == PLAN_TOOL else "\n".join(_shown(row, str).texts)
    return Asked(id=row.id, card=card, text=text if len(text) <= HOME_CHARS else "")


def asked_in_full(row: ApprovalRow, card: MessageRef, redact: Callable[[str], str]) -> Asked:
    """The same with all that its card shows; "" where a file beside the card has the rest."""
    asked = asked_at_home(row, card)
    if row.tool in QUESTIONS:
        return asked
    shown = _shown(row, redact)
    return replace(asked, text="" if shown.hidden else "\n".join(shown.texts))


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


def _deciders(row: ApprovalRow) -> dict[PersonRef, str]:
    """Everybody who has decided so far: names as people read them, by user ID."""
    names = voters(row)
    if row.decided_by:
        names.setdefault(row.decided_by, "")
    return {user: person(user, name) for user, name in names.items()}


def _verdict(row: ApprovalRow) -> str:
    """The outcome of the request, "" while it is open."""
    names = _deciders(row)
    by = names.get(row.decided_by or NO_PERSON, "")
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
    """An answer as a button or, if ``several`` may be chosen, a box with little room for details."""
    room = LABEL_CHARS if several else DETAIL_CHARS
    return Option(
        one_line(visible(label), LABEL_CHARS) or f"Option {at + 1}", one_line(visible(detail), room)
    )


def options_in(body: str) -> tuple[str, tuple[str, ...]]:
    """A question and the options at its end, if they are a list of two to ten short lines; otherwise no
    options."""
    lines = body.strip().splitlines()
    found: list[str] = []
    while len(found) <= MAX_OPTIONS and lines and (match := _OPTION.fullmatch(lines[-1])):
        found.insert(0, one_line(match["words"], 1000))
        lines.pop()
    shown = all(len(option) <= LABEL_CHARS and option == visible(option) for option in found)
    question = "\n".join(lines).strip()
    if not question or not shown or not 2 <= len(found) <= MAX_OPTIONS:
        return body, ()
    return question, tuple(found)


def answered_by(who: str, answer: str) -> str:
    """Who (Markdown) gave which answer."""
    return f"💬 {who}: {plain(one_line(answer, 300))}"


class Remembered(Struct, frozen=True):
    """One entry of the list: a fact, and its origin (Markdown, may be "")."""

    text: str
    origin: str = ""


def listed(entries: Sequence[Remembered], others: int, limit: int = LIST_CHARS) -> str:
    """All facts, with the numbers to forget them by; ``others`` is the number of lines in the file that are
    not facts."""
    lines, size = ["🧠 Every new session gets:"], 0
    for number, entry in enumerate(entries, 1):
        line = f"{number}. {_fact_line(entry.text)}" + (f" · {entry.origin}" if entry.origin else "")
        size += len(line) + 1
        if size > limit:
            lines.append(f"… and {len(entries) - number + 1} more in `.codebutler/memory.md`.")
            break
        lines.append(line)
    if others:
        lines.append(f"… and {count(others, 'other line')} of `.codebutler/memory.md`.")
    return "\n".join([*lines, HINT] if entries else lines)


def told(change: FactChange) -> str:
    """A change in one line of Markdown."""
    match change.kind:
        case "append":
            return f"• {_fact_line(change.new)}"
        case "replace":
            return f"• {_fact_line(change.new)} (instead of: {_fact_line(change.old)})"
        case _:
            return f"• no longer: {_fact_line(change.old)}"


def logged(who: str, change: FactChange) -> str:
    """A change as a log line."""
    return f'{one_line(who, 60)}: {change.kind} "{one_line(change.new or change.old, 200)}"'


def card_text(changes: Sequence[FactChange]) -> str:
    """The proposed change, and what looks suspicious about it."""
    lines = ["🧠 Remember this for every new session?", *map(told, changes)]
    odd = [words for change in changes if (words := suspicious_words(change.new))]
    if odd:
        lines.append(
            f"⚠️ This reads like an instruction to agents rather than a fact ({plain(', '.join(odd))}): keep it only "
            "if it is your own."
        )
    return "\n".join(lines)


def card(change_id: str, changes: Sequence[FactChange]) -> Message:
    """The card with both answers."""
    return said(
        card_text(changes),
        Button("Keep", KEEP_ACTION, change_id, "primary"),
        Button("Drop", DROP_MEMORY_ACTION, change_id),
    )


def decided_card(changes: Sequence[FactChange], verdict: str) -> Message:
    """The card without its buttons."""
    return said("\n".join([*map(told, changes), verdict]))


def made_text(changes: Sequence[FactChange]) -> str:
    """The result of a person's command."""
    if not changes:
        return "🧠 Nothing to change: the memory is already as you want it."
    return "\n".join(["🧠 Done. `!memory undo` undoes it.", *map(told, changes)])


def _fact_line(fact: str) -> str:
    """A fact on a line of its own: people's text in the file may hold marks that would run on over other
    lines."""
    return plain(one_line(fact, 500).replace("```", "'''"))
