"""A person's decision about an agent's question: a click, or a reply in the thread.

People who may use the turn's agent in its channel may decide. A decision counts if its card is open in a live
turn; any other only gets an explanation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

import msgspec
from msgspec import Struct
from msgspec.structs import replace

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
from codebutler.domain.refs import PersonRef
from codebutler.text.markup import plain
from codebutler.text.wording import one_line
from codebutler_worker.conversation.approvals import (
    MOST_TOGETHER,
    Objection,
    answer_poll,
    close_polls,
    is_met,
    objection_to,
    requesters_of,
    settle,
    show,
    waited_for,
)
from codebutler_worker.conversation.marks import end_message
from codebutler_worker.present.calls import POLL_TOOL, QUESTION_TOOL, QUESTIONS, options_of, voters, with_vote
from codebutler_worker.present.lines import person
from codebutler_worker.runtime.turns import (
    LIVE,
    ApprovalAnswer,
    Todo,
    audit_of,
    conversation_id,
    may_answer,
    using,
)
from codebutler_worker.store.rows import ApprovalRow, OutboxRow, TurnRow
from codebutler_worker.store.unit_of_work import ThreadPlace, UnitOfWork, place_of
from codebutler_worker.tools.tool import PLAN_TOOL

DECISIONS = frozenset({ALLOW_ACTION, ALLOW_SESSION_ACTION, DENY_ACTION, ANSWER_ACTION})
DECISION = "decision"
"""The kind of its line in the audit log."""
CLOSED = "That card is closed. It was NOT run."
USE_BUTTONS = "Several cards are open: decide on the one you mean."
DENIED = "A person denied this."
LOOSENED = (
    "This run needs fewer approvals than the configuration requires, so only the person who started it and people in "
    "`authorization.mayLoosen` can answer its questions."
)
WITHOUT_REASON = (
    "Denied. Your reason was not passed on: this run needs fewer approvals than the configuration requires, and takes "
    "text only from the person who started it and from people in `authorization.mayLoosen`."
)
KEEP_PLANNING = "The person does not want to begin yet: keep planning."
OBJECTIONS: Mapping[Objection, str] = MappingProxyType(
    {
        "again": "{who}, you have already approved this: somebody else must approve it too.",
        "asked": "{who}, you asked for this, so your approval does not count: somebody else must approve it.",
        "unnamed": "An approval from this machine's terminal does not count when several people must approve, because "
        "it cannot be matched to a person in the chat. Approve in the chat, or set `approvals.operator` to your user "
        "ID there.",
    }
)
_YES = frozenset({"yes", "allow"})
_NO = re.compile(r"(?:no|deny)(?:[\s,.:;!—-]+(?P<reason>.*))?", re.IGNORECASE | re.DOTALL)
NO_CHARS = 300
TICK_FIRST = "Nothing is selected: select something first, or write your answer here."
MANY = ", "
"""Between several answers to one question (Claude Code: "comma-separated")."""
NO_EFFECT = (
    "That button no longer works: I have no record of what it was for. `!list` shows the latest "
    "conversations, or write a new message."
)
ALREADY_DECIDED = (
    "That is already decided, so your click had no effect. `!continue` here resumes interrupted work."
)


class Decider(Struct, frozen=True):
    """Who decides; ``name`` is "" if only the ID is known."""

    user: PersonRef
    name: str = ""


def decide_click(uow: UnitOfWork, config: Config, event: ButtonClicked) -> Todo:
    """Take the decision of a click, once; later clicks are told who decided.

    A button for several requests allows exactly those it names, if they are still open.
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
        audit=tuple(record for todo in done for record in todo.audit),
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
    if _refused(uow, config, event.user, turn, answers=is_answer and row.state == "pending"):
        return Todo().logged("WRN", f"{event.user} may not decide for {turn.agent}")
    if row.state != "pending" or turn.state not in LIVE:
        uow.post(place_of(turn), _already(row, event.words))
        return Todo()
    decider = Decider(event.user, event.user_name)
    if is_answer:
        return _chosen(uow, decider, row, choice, event.picked)
    if event.action_id == DENY_ACTION:
        return _deny(uow, decider, row, _passed_on(uow, config, event.user, turn, event.words.strip()))
    if event.action_id == ALLOW_SESSION_ACTION and (row.needed > 1 or row.tool == PLAN_TOOL):
        return Todo().logged("WRN", f"{event.user} pressed a button that its card does not have")
    return _allow(uow, config, decider, row, session=event.action_id == ALLOW_SESSION_ACTION)


def decide_typed(uow: UnitOfWork, config: Config, event: MessagePosted, request: Prompt) -> Todo | None:
    """Take a short yes or no, or the answer to a question; None for any other message.

    A reply counts only if it was written below the card: an older message was not about it.
    """
    todo = _typed(uow, config, event, request)
    if todo is None and event.thread is not None and not event.stale:
        close_polls(uow, config, event, request.text.strip())
    return todo


def _typed(uow: UnitOfWork, config: Config, event: MessagePosted, request: Prompt) -> Todo | None:
    if request.prefix is not None or event.files or event.late or event.stale or event.thread is None:
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
    if told := _refused(uow, config, event.user, turn, answers=questions):
        end_message(uow, place_of(turn), event.ref, "refused", after=told)
        return Todo()
    if questions:
        end_message(uow, place_of(turn), event.ref, "done")
        return _answer(uow, _writer(uow, event.user), rows[0], words)
    if len(rows) > 1:
        end_message(
            uow,
            place_of(turn),
            event.ref,
            "refused",
            after=uow.post(place_of(turn), USE_BUTTONS, value="notice"),
        )
        return Todo()
    end_message(uow, place_of(turn), event.ref, "done")
    if denial:
        reason = _passed_on(uow, config, event.user, turn, (denial["reason"] or "").strip())
        return _deny(uow, _writer(uow, event.user), rows[0], reason)
    return _allow(uow, config, _writer(uow, event.user), rows[0], session=False)


def _open_cards(
    uow: UnitOfWork, config: Config, event: MessagePosted
) -> tuple[TurnRow, list[ApprovalRow]] | None:
    conversation = conversation_id(config, event.channel, event.root)
    for turn in uow.turns.find(state="waiting"):
        if turn.conversation != conversation or turn.thread != event.root:
            continue
        rows = [row for row in waited_for(uow, turn.id) if _is_about(uow, event, row)]
        if rows:
            return turn, rows
    return None


def _is_about(uow: UnitOfWork, event: MessagePosted, row: ApprovalRow) -> bool:
    """Whether the row's card was already there when the message was written."""
    card = uow.outbox.get(row.message_op_id)
    if card is None or not card.ref:
        return False
    return event.order > card.ref and (not event.seen or event.seen >= card.ref)


def _refused(uow: UnitOfWork, config: Config, user: PersonRef, turn: TurnRow, *, answers: bool) -> str:
    """The operation that tells somebody why they may not decide, or give ``answers``; "" if they may. It mentions
    them: somebody may have asked them to decide, and they believe that they did."""
    decision = may(admitted(user), "decide", using(config, turn.channel_id, turn.agent))
    told = decision.message
    if decision.allowed and answers:
        decision, told = may_answer(uow, config, turn, user), LOOSENED
    return "" if decision.allowed else uow.post(place_of(turn), told, mention=user, value="notice")


def _passed_on(uow: UnitOfWork, config: Config, user: PersonRef, turn: TurnRow, reason: str) -> str:
    """The reason that the agent gets; "" if this person's words may not go into its run."""
    if not reason or may_answer(uow, config, turn, user).allowed:
        return reason
    uow.post(place_of(turn), WITHOUT_REASON, mention=user, value="notice")
    return ""


def _writer(uow: UnitOfWork, user: PersonRef) -> Decider:
    """The author: a message brings no name, but an earlier click of theirs did."""
    names = (voters(row).get(user, user) for row in uow.approvals.find(newest=20, decided_by=user))
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
        uow.approvals.update(row.id, for_session=True)
    settle(uow, voted, "allowed", decider.user)
    answer = ApprovalAnswer(row.turn_id, row.id, allow=True)
    return _decided(uow, decider, row, answer, "allowed for this session" if session else "allowed")


def _deny(uow: UnitOfWork, decider: Decider, row: ApprovalRow, reason: str) -> Todo:
    settle(uow, _voted(uow, decider, row), "denied", decider.user, reason)
    text = KEEP_PLANNING if row.tool == PLAN_TOOL else DENIED
    text = f"{text} Their reason: {reason}" if reason else text
    answer = ApprovalAnswer(row.turn_id, row.id, allow=False, text=text)
    return _decided(uow, decider, row, answer, "denied")


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
    answer = ApprovalAnswer(row.turn_id, row.id, allow=True, text=words)
    return _decided(uow, decider, row, answer, "answered")


def _decided(
    uow: UnitOfWork, decider: Decider, row: ApprovalRow, answer: ApprovalAnswer, decision: str
) -> Todo:
    """The audit log says who decided about what: a click's own line does not."""
    turn = uow.turns.get(row.turn_id)
    if turn is None:
        return Todo(answers=(answer,))
    record = audit_of(turn, uow.redact(row.action_json), decision, user=decider.user)
    return Todo(answers=(answer,), audit=(replace(record, kind=DECISION),))


def _voted(uow: UnitOfWork, decider: Decider, row: ApprovalRow) -> ApprovalRow:
    """The row with this person's vote."""
    votes = with_vote(row, decider.user, decider.name)
    uow.approvals.change({"votes": votes}, id=row.id, state="pending")
    return replace(row, votes=votes)


def _already(row: ApprovalRow, words: str = "") -> str:
    """Explains that it is too late. ``words`` typed into a form meanwhile are kept: they can be sent as a
    message."""
    unread = f" Your text was not passed on: {plain(words)}" if words else ""
    if row.decided_by:
        by = person(row.decided_by, voters(row).get(row.decided_by, ""))
        return f"Already decided by {by}: {row.state}.{unread}"
    return f"{CLOSED} {row.reason or ''}".strip() + unread


def already_decided(uow: UnitOfWork, event: ButtonClicked) -> Todo:
    """The same for a button whose turn was continued or dropped since."""
    return no_effect(uow, event, ALREADY_DECIDED)


def no_effect(uow: UnitOfWork, event: ButtonClicked, text: str = NO_EFFECT) -> Todo:
    """Visible to that person only, and not repeated while it is still being sent."""
    root = event.thread or event.message
    conversation = f"{event.channel}:{root}"
    waiting = (row for row in uow.outbox.find(state="pending") if row.conversation == conversation)
    if not any(row.kind == "post" and _says(row, text) for row in waiting):
        uow.post(ThreadPlace(conversation, root, only_for=event.user), text)
    return Todo().logged("DBG", f"nothing to do for a click on {one_line(event.action_id, 60)}")


def _says(row: OutboxRow, text: str) -> bool:
    return msgspec.json.decode(row.payload, type=Post).message.markdown == text
