"""A person's decision about what an agent asks: by a click, or by a word in the thread.

Whoever may use the turn's agent in its channel may decide. A decision counts for a card that is open in a live
turn; everything else is told, and does nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import msgspec

from codebutler.config.permission import admitted, may
from codebutler.config.schema import Config
from codebutler.domain.message import (
    ALLOW_ACTION,
    ALLOW_SESSION_ACTION,
    ANSWER_ACTION,
    DENY_ACTION,
    TICKED,
    TOGETHER,
    box_value,
)
from codebutler.domain.model import ButtonClicked, MessagePosted, Post, Prompt
from codebutler.text.markup import plain
from codebutler_worker.conversation.approvals import (
    MOST_TOGETHER,
    answer_poll,
    close_polls,
    requesters_of,
    settle,
    show,
    waited_for,
)
from codebutler_worker.conversation.marks import end_message
from codebutler_worker.conversation.quorum import Objection, is_met, objection_to
from codebutler_worker.present.calls import POLL_TOOL, QUESTION_TOOL, QUESTIONS, options_of, voters, with_vote
from codebutler_worker.present.lines import one_line, person
from codebutler_worker.runtime.turns import LIVE, ApprovalAnswer, Todo, conversation_id, using
from codebutler_worker.store.rows import ApprovalRow, OutboxRow, TurnRow
from codebutler_worker.store.unit_of_work import ThreadPlace, UnitOfWork, place_of
from codebutler_worker.tools.outcome import PLAN_TOOL

DECISIONS = frozenset({ALLOW_ACTION, ALLOW_SESSION_ACTION, DENY_ACTION, ANSWER_ACTION})
CLOSED = "That card is closed. It was NOT run."
USE_BUTTONS = "Several cards are open: decide on the one you mean."
DENIED = "A person denied this."
KEEP_PLANNING = "The person does not want to begin yet: keep planning."
OBJECTIONS: Mapping[Objection, str] = MappingProxyType(
    {
        "again": "{who}, you have already approved this: it still needs somebody else.",
        "asked": "{who}, you asked for this, so your approval does not count: it needs somebody else's.",
        "unnamed": "An approval from this machine's terminal does not count where several people are needed: nobody "
        "knows who in the chat gave it. Approve in the chat, or set `approvals.operator` to your user ID there.",
    }
)
_YES = frozenset({"yes", "allow"})
_NO = re.compile(r"(?:no|deny)(?:[\s,.:;!—-]+(?P<reason>.*))?", re.IGNORECASE | re.DOTALL)
NO_CHARS = 300
TICK_FIRST = "Nothing is selected: select something first, or write your answer here."
MANY = ", "
"""Between the answers to a question that takes several (Claude Code: "comma-separated")."""
NO_EFFECT = (
    "That button no longer does anything: I do not know what it was about. `!list` shows the latest "
    "conversations; or write what you want."
)
ALREADY_DECIDED = "That is already decided, so nothing happens. `!continue` here resumes what can be resumed."


@dataclass(frozen=True, slots=True)
class Decider:
    """Who decides; ``name`` is "" where only the ID is known."""

    user: str
    name: str = ""


def decide_click(uow: UnitOfWork, config: Config, event: ButtonClicked) -> Todo:
    """Take the decision of a click, once; whoever clicks later is told who decided.

    A button for several requests allows exactly those it names, as far as they are open.
    """
    value, _, choice = event.value.partition(":")
    ids = list(dict.fromkeys(value.split(TOGETHER)))[:MOST_TOGETHER]
    if len(ids) > 1 and event.action_id != ALLOW_ACTION:
        return Todo().logged("WRN", f"{event.user} pressed a button that its card does not have")
    rows = [row for row in map(uow.approvals.get, ids) if row is not None]
    if len(ids) > 1:
        rows = [row for row in rows if row.state == "pending"] or rows[:1]
    done = [_click_one(uow, config, event, row, choice) for row in rows]
    if not done:
        return no_effect(uow, event)
    return Todo(
        answers=tuple(answer for todo in done for answer in todo.answers),
        log=tuple(line for todo in done for line in todo.log),
    )


def _click_one(uow: UnitOfWork, config: Config, event: ButtonClicked, row: ApprovalRow, choice: str) -> Todo:
    turn = uow.turns.get(row.turn_id)
    is_answer = event.action_id == ANSWER_ACTION
    if turn is None or turn.channel_id != event.channel:
        return no_effect(uow, event)
    if is_answer and row.tool == POLL_TOOL and row.state == "pending":
        return answer_poll(uow, config, event, row, turn)
    if is_answer != (row.tool in QUESTIONS):
        return Todo().logged("WRN", f"{event.user} pressed a button that its card does not have")
    if not _may(uow, config, event.user, turn):
        return Todo().logged("WRN", f"{event.user} may not decide for {turn.agent}")
    if row.state != "pending" or turn.state not in LIVE:
        uow.post(place_of(turn), _already(row, event.words))
        return Todo()
    decider = Decider(event.user, event.user_name)
    if is_answer:
        return _chosen(uow, decider, row, choice, event.picked)
    if event.action_id == DENY_ACTION:
        return _deny(uow, decider, row, event.words.strip())
    if event.action_id == ALLOW_SESSION_ACTION and (row.needed > 1 or row.tool == PLAN_TOOL):
        return Todo().logged("WRN", f"{event.user} pressed a button that its card does not have")
    return _allow(uow, config, decider, row, session=event.action_id == ALLOW_SESSION_ACTION)


def decide_typed(uow: UnitOfWork, config: Config, event: MessagePosted, request: Prompt) -> Todo | None:
    """Take a short yes or no, or the words that answer a question; None for any other message.

    Words count only when they were written below the card: an older message was not about it.
    """
    todo = _typed(uow, config, event, request)
    if todo is None and event.thread_ts is not None and not event.stale:
        close_polls(uow, config, event, request.text.strip())
    return todo


def _typed(uow: UnitOfWork, config: Config, event: MessagePosted, request: Prompt) -> Todo | None:
    if request.prefix is not None or event.files or event.late or event.stale or event.thread_ts is None:
        return None
    found = _open_cards(uow, config, event)
    if found is None:
        return None
    turn, rows = found
    words = request.text.strip()
    questions = all(row.tool == QUESTION_TOOL for row in rows)
    denial = _NO.fullmatch(words) if len(words) <= NO_CHARS else None
    allows = words.lower().rstrip(".!") in _YES
    if not (questions or denial or allows):
        return None
    if not _may(uow, config, event.user, turn):
        return Todo()
    if questions:
        end_message(uow, place_of(turn), event.ts, "done")
        return _answer(uow, _writer(uow, event.user), rows[0], words)
    if len(rows) > 1:
        end_message(
            uow,
            place_of(turn),
            event.ts,
            "refused",
            after=uow.post(place_of(turn), USE_BUTTONS, value="notice"),
        )
        return Todo()
    end_message(uow, place_of(turn), event.ts, "done")
    if denial:
        return _deny(uow, _writer(uow, event.user), rows[0], (denial["reason"] or "").strip())
    return _allow(uow, config, _writer(uow, event.user), rows[0], session=False)


def _open_cards(
    uow: UnitOfWork, config: Config, event: MessagePosted
) -> tuple[TurnRow, list[ApprovalRow]] | None:
    conversation = conversation_id(config, event.channel, event.root_ts)
    for turn in uow.turns.in_states("waiting"):
        if turn.conversation != conversation or turn.thread_ts != event.root_ts:
            continue
        rows = [row for row in waited_for(uow, turn.id) if _is_about(uow, event, row)]
        if rows:
            return turn, rows
    return None


def _is_about(uow: UnitOfWork, event: MessagePosted, row: ApprovalRow) -> bool:
    """Whether the row's card stood there when the message was written."""
    card = uow.outbox.get(row.message_op_id)
    if card is None or not card.ts:
        return False
    return event.order > card.ts and (not event.seen_ts or event.seen_ts >= card.ts)


def _may(uow: UnitOfWork, config: Config, user: str, turn: TurnRow) -> bool:
    decision = may(admitted(user), "decide", using(config, turn.channel_id, turn.agent))
    if not decision.allowed:
        uow.post(place_of(turn), decision.told, value="notice")
    return decision.allowed


def _writer(uow: UnitOfWork, user: str) -> Decider:
    """Who wrote: a message brings no name, but an earlier press of theirs did."""
    names = (voters(row).get(user, user) for row in uow.approvals.decided_by(user))
    return Decider(user, next((name for name in names if name != user), ""))


def _allow(uow: UnitOfWork, config: Config, decider: Decider, row: ApprovalRow, *, session: bool) -> Todo:
    turn = uow.turns.get(row.turn_id)
    if turn is None:
        return Todo()
    section, requesters = config.approvals, requesters_of(uow, turn)
    why = objection_to(section, decider.user, needed=row.needed, requesters=requesters, voted=voters(row))
    if why:
        uow.post(place_of(turn), OBJECTIONS[why].format(who=person(decider.user, decider.name)))
        return Todo()
    voted = _voted(uow, decider, row)
    if not is_met(section, voters(voted), needed=row.needed, requesters=requesters):
        show(uow, voted)
        return Todo()
    if session:
        uow.approvals.grant(row.id)
    settle(uow, voted, "allowed", decider.user)
    return Todo(answers=(ApprovalAnswer(row.turn_id, row.id, allow=True),))


def _deny(uow: UnitOfWork, decider: Decider, row: ApprovalRow, reason: str) -> Todo:
    settle(uow, _voted(uow, decider, row), "denied", decider.user, reason)
    text = KEEP_PLANNING if row.tool == PLAN_TOOL else DENIED
    text = f"{text} Their reason: {reason}" if reason else text
    return Todo(answers=(ApprovalAnswer(row.turn_id, row.id, allow=False, text=text),))


def _chosen(
    uow: UnitOfWork, decider: Decider, row: ApprovalRow, choice: str, picked: tuple[str, ...]
) -> Todo:
    options = options_of(row)
    if choice == TICKED:
        words = MANY.join(option for at, option in enumerate(options) if box_value(row.id, at) in picked)
        if not words:
            if turn := uow.turns.get(row.turn_id):
                uow.post(place_of(turn), TICK_FIRST)
            return Todo()
    elif not choice.isdecimal() or len(choice) > 2 or int(choice) >= len(options):
        return Todo().logged("WRN", f"{decider.user} chose an option that the question does not have")
    else:
        words = options[int(choice)]
    return _answer(uow, decider, row, words, picked)


def _answer(
    uow: UnitOfWork, decider: Decider, row: ApprovalRow, words: str, ticked: tuple[str, ...] = ()
) -> Todo:
    settle(uow, _voted(uow, decider, row), "allowed", decider.user, words, ticked=ticked)
    return Todo(answers=(ApprovalAnswer(row.turn_id, row.id, allow=True, text=words),))


def _voted(uow: UnitOfWork, decider: Decider, row: ApprovalRow) -> ApprovalRow:
    """The row with this person among those who decided."""
    votes = with_vote(row, decider.user, decider.name)
    uow.approvals.vote(row.id, votes)
    return replace(row, votes=votes)


def _already(row: ApprovalRow, words: str = "") -> str:
    """Why it is too late. ``words``, written in a form meanwhile, are not lost: they can be sent as a message."""
    unread = f" Nobody has read this yet: {plain(words)}" if words else ""
    if row.decided_by:
        by = person(row.decided_by, voters(row).get(row.decided_by, ""))
        return f"Already decided by {by}: {row.state}.{unread}"
    return f"{CLOSED} {row.reason or ''}".strip() + unread


def already_decided(uow: UnitOfWork, event: ButtonClicked) -> Todo:
    """The same for a button whose turn has gone on, or has been dropped, since."""
    return no_effect(uow, event, ALREADY_DECIDED)


def no_effect(uow: UnitOfWork, event: ButtonClicked, text: str = NO_EFFECT) -> Todo:
    """Told to that person alone, and not again while it is still on its way."""
    root = event.thread_ts or event.message_ts
    conversation = f"{event.channel}:{root}"
    waiting = (row for row in uow.outbox.pending() if row.conversation == conversation)
    if not any(row.kind == "post" and _says(row, text) for row in waiting):
        uow.post(ThreadPlace(conversation, root, only_for=event.user), text)
    return Todo().logged("DBG", f"nothing to do for a click on {one_line(event.action_id, 60)}")


def _says(row: OutboxRow, text: str) -> bool:
    return msgspec.json.decode(row.payload, type=Post).message.markdown == text
