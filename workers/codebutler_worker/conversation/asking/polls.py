"""Questions that an agent asks in passing (an envelope of type ``question``): it does not wait for the answer, which
comes to it as the person's next message. One press of a button counts, or what is written in the thread.

A program's output gets no buttons: the answer to an agent is prose, but to a shell it would be a command.
"""

from __future__ import annotations

import uuid
from dataclasses import replace

import msgspec

from codebutler.config.permission import admitted, may
from codebutler.config.schema import Config
from codebutler.domain.model import ButtonClicked, MessagePosted
from codebutler_worker.conversation.asking.approvals import settle
from codebutler_worker.conversation.asking.calls import POLL_TOOL, canonical, digest_of, options_of, with_vote
from codebutler_worker.conversation.asking.cards import card_of
from codebutler_worker.conversation.messages import Incoming, enqueue
from codebutler_worker.desk.draft import Draft, place_of
from codebutler_worker.desk.naming import conversation_id, talks, using
from codebutler_worker.desk.todo import Todo
from codebutler_worker.present.questions import options_in
from codebutler_worker.store.rows import ApprovalRow, TurnRow

SAME_AS_TYPED = 300
"""How much of what was typed is shown on the card."""


def open_poll(draft: Draft, turn_id: str, body: str, config: Config) -> bool:
    """Ask with a button for each option; False if there is nothing to press: then nothing is done."""
    turn = draft.uow.turns.get(turn_id)
    question, options = options_in(body)
    if turn is None or not options or not talks(config, turn.agent):
        return False
    action_json = canonical(POLL_TOOL, {"question": question, "options": list(options)})
    row = ApprovalRow(
        id=uuid.uuid4().hex,
        turn_id=turn.id,
        conversation=turn.conversation,
        tool=POLL_TOOL,
        action_json=action_json,
        digest=digest_of(action_json),
        requested_at=draft.stamp,
        expires_at="",
    )
    op_id = draft.post(place_of(turn), card_of([row], draft.redact))
    draft.uow.approvals.add(replace(row, message_op_id=op_id))
    return True


def answer_poll(draft: Draft, config: Config, event: ButtonClicked, row: ApprovalRow, turn: TurnRow) -> Todo:
    """The option that was pressed becomes a message of whoever pressed it."""
    options, choice = options_of(row), event.value.partition(":")[2]
    if not choice.isdecimal() or len(choice) > 2 or int(choice) >= len(options):
        return Todo().logged("WRN", f"{event.user} chose an option that the question does not have")
    decision = may(admitted(event.user), "answer", using(config, turn.channel_id, turn.agent))
    if not decision.allowed:
        draft.post(place_of(turn), decision.told, value="notice")
        return Todo().logged("WRN", f"{event.user} may not answer {turn.agent}")
    words = options[int(choice)]
    draft.uow.approvals.vote(row.id, with_vote(row, event.user, event.user_name))
    if not settle(draft, row, "allowed", event.user, words):
        return Todo()
    said = Incoming(
        channel=turn.channel_id,
        # The card stands for the message: it shows what becomes of the answer.
        ts=event.message_ts,
        thread_ts=turn.thread_ts or None,
        user=event.user,
        text=words,
        prefix=turn.agent,
        conversation=turn.conversation,
    )
    return enqueue(draft, _taking_all(config), said)


def is_polled(draft: Draft, config: Config, event: MessagePosted) -> bool:
    """Whether a question in passing is open where the message was written."""
    conversation = conversation_id(config, event.channel, event.root_ts)
    pending = draft.uow.approvals.pending()
    return any(row.tool == POLL_TOOL and row.conversation == conversation for row in pending)


def close_polls(draft: Draft, config: Config, event: MessagePosted, words: str) -> None:
    """What is written in the thread answers what was asked there before."""
    conversation = conversation_id(config, event.channel, event.root_ts)
    for row in draft.uow.approvals.pending():
        if row.tool == POLL_TOOL and row.conversation == conversation:
            settle(draft, row, "allowed", event.user, words[:SAME_AS_TYPED])


def _taking_all(config: Config) -> Config:
    """An answer that was asked for is not sent away because the agent is busy."""
    if config.agent.busy != "reject":
        return config
    return msgspec.structs.replace(config, agent=msgspec.structs.replace(config.agent, busy="queue"))
