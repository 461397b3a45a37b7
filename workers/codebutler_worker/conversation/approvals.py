"""What agents ask people, as rows: opened once, decided once, and shown on the card; and how many people have to allow
a call (``approvals.quorum``).

A row names exactly one call by the digest of its tool and input. A decision about one call says nothing about
another, except within a grant: the same kind of action with the same pattern in the same session. Calls that
follow one another closely share a card; each keeps its own row.

A pattern of the quorum is some words. It fits a call whose tool and input hold them in this order, whatever is between
them: rather too many approvals than too few. A word that is hidden altogether is not found; quotes and
backslashes do not hide it.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Literal

from msgspec.structs import replace

from codebutler.config.permission import admitted, may
from codebutler.config.schema import ApprovalsSection, Config, RepoSettings
from codebutler.domain.model import OPERATOR, ButtonClicked, MessagePosted, Upload
from codebutler.domain.refs import NO_PERSON, MessageRef, PersonRef
from codebutler_worker.agents.backend import Approval, Question
from codebutler_worker.conversation.marks import show_waiting
from codebutler_worker.conversation.messages import Incoming, enqueue
from codebutler_worker.present.calls import (
    POLL_TOOL,
    QUESTION_TOOL,
    action_of,
    called_with,
    canonical,
    digest_of,
    given_of,
    options_of,
    pattern_of,
    with_vote,
)
from codebutler_worker.present.cards import card_of, chars_of, options_in, too_long
from codebutler_worker.runtime.turns import Todo, conversation_id, move, talks, using
from codebutler_worker.store.rows import ApprovalRow, ApprovalState, TurnRow
from codebutler_worker.store.unit_of_work import ThreadPlace, UnitOfWork, iso, place_of
from codebutler_worker.tools.tool import PLAN_TOOL

Objection = Literal["", "unnamed", "asked", "again"]
"""Why an approval does not count: the giver could be anybody who voted, asked for the call, or has voted
already."""

_QUOTING = re.compile(r"[\\'\"`]")
_WORDS = re.compile(r"[\w.-]+")

TOGETHER_S = 2.0
MOST_TOGETHER = 5
LOOKED_AT = 20
CARD_CHARS = 6_000
"""Calls that share a card; chats limit the size of a message."""
NOT_RUN = "⚠️ The worker stopped before anybody decided: this was NOT run."
WITHDRAWN = "⚠️ The run ended before anybody decided: this was NOT run."
NO_LONGER_ASKED = "⚠️ The agent withdrew this before anybody decided: it was NOT run."
SAME_AS_TYPED = 300
"""How much of a typed answer the card shows, in characters."""


def approvals_needed(
    section: ApprovalsSection, requesters: Collection[PersonRef], tool: str, given: Mapping[str, Any]
) -> int:
    """How many approvals the call takes. If nobody knows which of the voters asked for it, one more: then at
    least as many as configured come from others."""
    needed = needed_for(section.quorum, tool, given)
    may_be_any = OPERATOR in requesters and not section.operator and not section.requester_votes
    return needed + (needed > 1 and may_be_any)


def objection_to(
    section: ApprovalsSection,
    user: PersonRef,
    *,
    needed: int,
    requesters: Collection[PersonRef],
    voted: Collection[PersonRef],
) -> Objection:
    """Why ``user``'s approval does not count towards ``needed``; "" if it does. ``requesters`` asked for the
    call, ``voted`` have allowed it already. If one approval is enough, anybody who may decide can give it.

    The operator of this machine may have an account in the chat, too: ``approvals.operator`` names it.
    """
    who = _person(section, user)
    if who in {_person(section, each) for each in voted}:
        return "again"
    if needed == 1:
        return ""
    if who == OPERATOR:
        return "unnamed"
    asked = not section.requester_votes and who in {_person(section, each) for each in requesters}
    return "asked" if asked else ""


def is_met(
    section: ApprovalsSection, voted: Collection[PersonRef], *, needed: int, requesters: Collection[PersonRef]
) -> bool:
    """Whether those who ``voted``, in order, are enough different people."""
    counted: list[PersonRef] = []
    for user in voted:
        if not objection_to(section, user, needed=needed, requesters=requesters, voted=counted):
            counted.append(user)
    return len(counted) >= needed


def _person(section: ApprovalsSection, user: PersonRef) -> PersonRef:
    return section.operator or OPERATOR if user == OPERATOR else user


def needed_for(quorum: Mapping[str, int], tool: str, given: Mapping[str, Any]) -> int:
    """The largest number among the fitting patterns; 1 if none fits."""
    if not quorum:
        return 1
    words = _words(" ".join([tool, *_texts(given)]))
    return max((people for pattern, people in quorum.items() if _fits(_words(pattern), words)), default=1)


def _fits(pattern: list[str], words: list[str]) -> bool:
    rest = iter(words)
    return bool(pattern) and all(word in rest for word in pattern)


def _words(text: str) -> list[str]:
    return _WORDS.findall(_QUOTING.sub("", text).lower())


def _texts(given: Mapping[str, Any]) -> Iterator[str]:
    """Every text in the input, at any depth."""
    waiting: list[Any] = [given]
    while waiting:
        value = waiting.pop(0)
        if isinstance(value, str):
            yield value
        elif isinstance(value, Mapping):
            waiting[:0] = list(value.values())
        elif isinstance(value, list | tuple):
            waiting[:0] = list(value)


def ask(
    uow: UnitOfWork, turn: TurnRow, asked: Mapping[str, Approval | Question], settings: RepoSettings
) -> str | None:
    """Write a row for each question, by row ID: one call, or the questions of one call in order. The turn
    waits, and a card asks; returns the operation that posts it."""
    turn = uow.turns.get(turn.id) or turn
    rows = [_row(uow, turn, row_id, each, settings) for row_id, each in asked.items()]
    shared = _shared_card(uow, rows[0])
    # Mention the people who asked the agent: it waits for them.
    card = shared or uow.post(place_of(turn), card_of(rows, uow.redact), mention=turn.user_id)
    rows = [replace(row, message_op_id=card) for row in rows]
    for row in rows:
        uow.approvals.add(row)
    if shared:
        show(uow, rows[0])
    for row in rows:
        _attach(uow, place_of(turn), row)
    if turn.state == "running":
        uow.turns.update(turn.id, state=move(turn.state, "ask"))
        show_waiting(uow, turn)
    return card


def settle(
    uow: UnitOfWork,
    row: ApprovalRow,
    state: ApprovalState,
    by: PersonRef = NO_PERSON,
    reason: str = "",
    *,
    ticked: Collection[str] = (),
) -> bool:
    """Decide a pending row and update its card; the turn continues when nothing else is pending.

    ``reason`` is the decider's reason, the answer to a question, or why nobody decided. ``ticked`` boxes of
    other questions stay ticked. False, and no change, if it was decided before.
    """
    if not uow.approvals.decide(row.id, state, by, reason, at=uow.stamp):
        return False
    show(uow, row, ticked)
    turn = uow.turns.get(row.turn_id)
    if turn and turn.state == "waiting" and not waited_for(uow, row.turn_id):
        uow.turns.update(row.turn_id, state=move(turn.state, "answered"))
        show_waiting(uow, turn, over=True)
    return True


def show(uow: UnitOfWork, row: ApprovalRow, ticked: Collection[str] = ()) -> None:
    """Update the row's card, with its ``ticked`` boxes."""
    if not row.message_op_id:
        return
    turn = uow.turns.get(row.turn_id)
    place = place_of(turn) if turn else ThreadPlace(row.conversation, None, row.turn_id)
    rows = uow.approvals.find(message_op_id=row.message_op_id)
    uow.edit(place, row.message_op_id, card_of(rows, uow.redact, ticked), value="notice")


def close_all(uow: UnitOfWork, turn_id: str, verdict: str) -> None:
    """The turn is over: refuse its open questions, and show that on their cards."""
    for row in waited_for(uow, turn_id):
        settle(uow, row, "expired", reason=verdict)


def waited_for(uow: UnitOfWork, turn_id: str) -> list[ApprovalRow]:
    """The open questions of the turn's agent, oldest first."""
    return [row for row in uow.approvals.find(state="pending", turn_id=turn_id) if row.tool != POLL_TOOL]


def asked_in_chat(uow: UnitOfWork, turn_id: str, limit: int) -> Iterator[tuple[ApprovalRow, MessageRef]]:
    """The turn's open requests whose cards are in the chat, with their cards."""
    for row in uow.approvals.find(state="pending", turn_id=turn_id)[:limit]:
        card = uow.outbox.get(row.message_op_id)
        if card is not None and card.ref:
            yield row, card.ref


def _attach(uow: UnitOfWork, place: ThreadPlace, row: ApprovalRow) -> None:
    """What its card leaves out, as a file."""
    name, whole = too_long(row, uow.redact)
    if name:
        content = whole.encode("utf-8", "replace")
        title = "The whole plan" if row.tool == PLAN_TOOL else "The whole request"
        uow.add(place, Upload(filename=name, title=title, content=content, thread=place.thread))


def answers_before(uow: UnitOfWork, turn: TurnRow) -> tuple[tuple[str, str], ...]:
    """(question, answer) of the run that this turn continues: it may have ended before its agent received
    them all."""
    earlier = uow.turns.find(newest=LOOKED_AT, conversation=turn.conversation)
    last = next((each for each in earlier if each.id != turn.id and each.started_at), None)
    if last is None or last.agent != turn.agent:
        return ()
    rows = [row for row in uow.approvals.find(turn_id=last.id) if row.tool == QUESTION_TOOL]
    return tuple(
        (str(given_of(row).get("question", "")), row.reason or "") for row in rows if row.state == "allowed"
    )


def is_granted(
    uow: UnitOfWork, turn: TurnRow, session_id: str, asked: Approval, settings: RepoSettings
) -> bool:
    """Whether people have allowed it for this session: then nobody is asked again. One person's grant is not
    enough if more are needed now."""
    if _needed(uow, turn, asked, settings) > 1:
        return False
    wanted = pattern_of(asked.tool, asked.input)
    granted = uow.approvals.granted(turn.conversation, turn.agent, session_id)
    return any(row.tool == asked.tool and pattern_of(row.tool, called_with(row)) == wanted for row in granted)


def _row(
    uow: UnitOfWork, turn: TurnRow, row_id: str, asked: Approval | Question, settings: RepoSettings
) -> ApprovalRow:
    minutes = settings.config.approvals.expiry_minutes
    expires_at = iso(uow.now + timedelta(minutes=minutes)) if minutes else ""
    row = _row_of(uow, turn, row_id, *action_of(asked, settings.path))
    return replace(row, expires_at=expires_at, needed=_needed(uow, turn, asked, settings))


def _row_of(
    uow: UnitOfWork, turn: TurnRow, row_id: str, tool: str, given: Mapping[str, object]
) -> ApprovalRow:
    action_json = canonical(tool, given)
    return ApprovalRow(
        id=row_id,
        turn_id=turn.id,
        conversation=turn.conversation,
        tool=tool,
        action_json=action_json,
        digest=digest_of(action_json),
        requested_at=uow.stamp,
        expires_at="",
    )


def requesters_of(uow: UnitOfWork, turn: TurnRow) -> frozenset[PersonRef]:
    """Everybody who asked for this turn."""
    said = uow.messages.find(turn_id=turn.id)
    return frozenset({turn.user_id, *(message.from_id for message in said)})


def _needed(uow: UnitOfWork, turn: TurnRow, asked: Approval | Question, settings: RepoSettings) -> int:
    if isinstance(asked, Question) or asked.tool == PLAN_TOOL:
        return 1
    section = settings.config.approvals
    return approvals_needed(section, requesters_of(uow, turn), asked.tool, asked.input)


def _shared_card(uow: UnitOfWork, row: ApprovalRow) -> str | None:
    """The card that this request joins, if one was posted a moment ago."""
    pending = [each for each in waited_for(uow, row.turn_id) if _may_share(each.tool)]
    if not pending or not _may_share(row.tool) or pending[-1].message_op_id is None:
        return None
    rows = uow.approvals.find(message_op_id=pending[-1].message_op_id)
    age_s = (uow.now - datetime.fromisoformat(rows[0].requested_at)).total_seconds()
    fits = len(rows) < MOST_TOGETHER and sum(map(chars_of, [*rows, row])) <= CARD_CHARS
    return pending[-1].message_op_id if age_s <= TOGETHER_S and fits else None


def _may_share(tool: str) -> bool:
    return tool not in (QUESTION_TOOL, PLAN_TOOL)


def open_poll(uow: UnitOfWork, turn_id: str, body: str, config: Config) -> bool:
    """Post an agent's question in passing, with a button for each option; False, and no post, if it has no
    options. The agent does not wait. The first press counts; or a reply in the thread, as the person's next
    message. A program's output gets no buttons: to an agent the answer is prose, to a shell a command."""
    turn = uow.turns.get(turn_id)
    question, options = options_in(body)
    if turn is None or not options or not talks(config, turn.agent):
        return False
    row = _row_of(uow, turn, uuid.uuid4().hex, POLL_TOOL, {"question": question, "options": list(options)})
    op_id = uow.post(place_of(turn), card_of([row], uow.redact), mention=turn.user_id)
    uow.approvals.add(replace(row, message_op_id=op_id))
    return True


def answer_poll(
    uow: UnitOfWork, config: Config, event: ButtonClicked, row: ApprovalRow, turn: TurnRow
) -> Todo:
    """The pressed option becomes a message from the person who pressed it."""
    options, choice = options_of(row), event.value.partition(":")[2]
    if not choice.isdecimal() or len(choice) > 2 or int(choice) >= len(options):
        return Todo().logged("WRN", f"{event.user} chose an option that the question does not have")
    decision = may(admitted(event.user), "answer", using(config, turn.channel_id, turn.agent))
    if not decision.allowed:
        uow.post(place_of(turn), decision.message, mention=event.user, value="notice")
        return Todo().logged("WRN", f"{event.user} may not answer {turn.agent}")
    words = options[int(choice)]
    uow.approvals.change({"votes": with_vote(row, event.user, event.user_name)}, id=row.id, state="pending")
    if not settle(uow, row, "allowed", event.user, words):
        return Todo()
    said = Incoming(
        channel=turn.channel_id,
        # The card stands for the message: its marks show the progress.
        ref=event.message,
        root=turn.thread or event.message,
        user=event.user,
        text=words,
        prefix=turn.agent,
        conversation=turn.conversation,
    )
    return enqueue(uow, _taking_all(config), said, counts=False)


def is_polled(uow: UnitOfWork, config: Config, event: MessagePosted) -> bool:
    """Whether a question in passing is open in the thread of this message."""
    conversation = conversation_id(config, event.channel, event.root)
    pending = uow.approvals.find(state="pending")
    return any(row.tool == POLL_TOOL and row.conversation == conversation for row in pending)


def close_polls(uow: UnitOfWork, config: Config, event: MessagePosted, words: str) -> None:
    """A message in the thread answers the question asked before it."""
    conversation = conversation_id(config, event.channel, event.root)
    for row in uow.approvals.find(state="pending"):
        if row.tool == POLL_TOOL and row.conversation == conversation:
            settle(uow, row, "allowed", event.user, words[:SAME_AS_TYPED])


def _taking_all(config: Config) -> Config:
    """Never reject an answer because the agent is busy: we asked for it."""
    if config.agent.busy != "reject":
        return config
    return replace(config, agent=replace(config.agent, busy="queue"))
