"""A person's decision about what an agent asks: by a click, or by a word in the thread.

Whoever may use the turn's agent in its channel may decide. A decision counts for a card that is open in a live
turn; everything else is told, and does nothing.
"""

from __future__ import annotations

import re

from codebutler.config.rules import rules_allow
from codebutler.config.schema import Config
from codebutler.model import ButtonClicked, MessagePosted, Prompt
from codebutler_worker.conversation.approvals import (
    QUESTION_TOOL,
    given_of,
    options_of,
    scope_of,
    settle,
)
from codebutler_worker.conversation.desk import Draft
from codebutler_worker.conversation.naming import conversation_id, prefixes_of
from codebutler_worker.conversation.queueing import DONE, Todo, Verdict, place_of
from codebutler_worker.conversation.states import LIVE
from codebutler_worker.present.approvals import (
    ALLOW_ACTION,
    ALLOW_SESSION_ACTION,
    ANSWER_ACTION,
    DENY_ACTION,
    allowed_by,
    answered_by,
    denied_by,
)
from codebutler_worker.present.lines import plain
from codebutler_worker.store.rows import ApprovalRow, TurnRow

DECISIONS = frozenset({ALLOW_ACTION, ALLOW_SESSION_ACTION, DENY_ACTION, ANSWER_ACTION})
NO_LONGER = "That card is closed: nobody decided in time. It was NOT run."
USE_BUTTONS = "Several things wait for a decision: press the button on the card you mean."
DENIED = "A person denied this."
_YES = frozenset({"yes", "allow"})
_NO = re.compile(r"(?:no|deny)(?:[\s,.:;!—-]+(?P<reason>.*))?", re.IGNORECASE | re.DOTALL)
NO_CHARS = 300


def decide_click(draft: Draft, config: Config, event: ButtonClicked) -> Todo:
    """Take the decision of a click, once; a later one is told who decided."""
    approval_id, _, choice = event.value.partition(":")
    row = draft.uow.approvals.get(approval_id)
    turn = draft.uow.turns.get(row.turn_id) if row else None
    is_answer = event.action_id == ANSWER_ACTION
    if row is None or turn is None or turn.channel_id != event.channel:
        return Todo().logged("DBG", "nothing to do for a click on a card that is not known here")
    if is_answer != (row.tool == QUESTION_TOOL):
        return Todo().logged("WRN", f"{event.user} pressed a button that its card does not have")
    if not _may(draft, config, event.user, turn):
        return Todo().logged("WRN", f"{event.user} may not decide for {turn.agent}")
    if row.state != "pending" or turn.state not in LIVE:
        draft.post(place_of(turn), _already(row))
        return Todo()
    if is_answer:
        return _option(draft, event.user, row, choice)
    if event.action_id == DENY_ACTION:
        return _deny(draft, event.user, row, "")
    return _allow(draft, event.user, row, session=event.action_id == ALLOW_SESSION_ACTION)


def decide_typed(draft: Draft, config: Config, event: MessagePosted, request: Prompt) -> Todo | None:
    """Take a short yes or no, or the words that answer a question; None for any other message.

    Words count only when they were written below the card: an older message was not about it.
    """
    if request.prefix is not None or event.files or event.late or event.stale or event.thread_ts is None:
        return None
    found = _open_cards(draft, config, event)
    if found is None:
        return None
    turn, rows = found
    words = request.text.strip()
    questions = all(row.tool == QUESTION_TOOL for row in rows)
    denial = _NO.fullmatch(words) if len(words) <= NO_CHARS else None
    allows = words.lower().rstrip(".!") in _YES
    if not (questions or denial or allows):
        return None
    if not _may(draft, config, event.user, turn):
        return Todo()
    if questions:
        draft.react(place_of(turn), event.ts, DONE)
        return _answer(draft, event.user, rows[0], words)
    if len(rows) > 1:
        draft.post(place_of(turn), USE_BUTTONS)
        return Todo()
    draft.react(place_of(turn), event.ts, DONE)
    if denial:
        return _deny(draft, event.user, rows[0], (denial["reason"] or "").strip())
    return _allow(draft, event.user, rows[0], session=False)


def _open_cards(
    draft: Draft, config: Config, event: MessagePosted
) -> tuple[TurnRow, list[ApprovalRow]] | None:
    conversation = conversation_id(config, event.channel, event.root_ts)
    for turn in draft.uow.turns.in_states("waiting"):
        if turn.conversation != conversation or turn.thread_ts != event.root_ts:
            continue
        rows = [row for row in draft.uow.approvals.pending(turn.id) if _is_below(draft, event.ts, row)]
        if rows:
            return turn, rows
    return None


def _is_below(draft: Draft, ts: str, row: ApprovalRow) -> bool:
    card = draft.uow.outbox.get(row.message_op_id or "")
    return card is not None and bool(card.ts) and float(ts) > float(card.ts or 0)


def _may(draft: Draft, config: Config, user: str, turn: TurnRow) -> bool:
    if rules_allow(config, user, turn.channel_id, prefixes_of(turn.agent)):
        return True
    draft.post(place_of(turn), f"You are not authorized to use {plain(turn.agent)} here.")
    return False


def _allow(draft: Draft, user: str, row: ApprovalRow, *, session: bool) -> Todo:
    called = given_of(row).get("input")
    scope = scope_of(row.tool, called if isinstance(called, dict) else {}) if session else ""
    settle(draft, row, "allowed", user, allowed_by(user, scope))
    return Todo(verdicts=(Verdict(row.turn_id, row.id, allow=True, session=session),))


def _deny(draft: Draft, user: str, row: ApprovalRow, reason: str) -> Todo:
    settle(draft, row, "denied", user, denied_by(user, reason), reason)
    text = f"{DENIED} Their reason: {reason}" if reason else DENIED
    return Todo(verdicts=(Verdict(row.turn_id, row.id, allow=False, text=text),))


def _option(draft: Draft, user: str, row: ApprovalRow, choice: str) -> Todo:
    options = options_of(row)
    if not choice.isdecimal() or len(choice) > 2 or int(choice) >= len(options):
        return Todo().logged("WRN", f"{user} chose an option that the question does not have")
    return _answer(draft, user, row, options[int(choice)])


def _answer(draft: Draft, user: str, row: ApprovalRow, words: str) -> Todo:
    settle(draft, row, "allowed", user, answered_by(user, words), words)
    return Todo(verdicts=(Verdict(row.turn_id, row.id, allow=True, text=words),))


def _already(row: ApprovalRow) -> str:
    if row.decided_by:
        return f"Already decided by {plain(row.decided_by)}: {row.state}."
    return NO_LONGER
