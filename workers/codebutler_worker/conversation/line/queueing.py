"""Messages into turns, within one transaction.

A message joins its conversation's queued turn while that has not started (debounce), if it is for the same
agent and is answered in the same thread; otherwise it opens a turn of its own.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import timedelta

from codebutler.config.programs import program_of
from codebutler.config.schema import Config, Limit
from codebutler.message import Message
from codebutler_worker.conversation.line.incoming import Incoming, keep_message
from codebutler_worker.conversation.line.marks import QUEUED, end_message, is_shown, set_mark
from codebutler_worker.desk.draft import Draft, Place, iso, place_of
from codebutler_worker.desk.naming import agent_name, conversation_id
from codebutler_worker.desk.states import LIVE
from codebutler_worker.desk.todo import Steer, Todo
from codebutler_worker.store.rows import TurnRow

BUSY = "⏳ Already working in this conversation: say it again after the answer, or say `!stop` first."
TOGETHER = "↪ Answered together with what was said next."


def enqueue(draft: Draft, config: Config, said: Incoming) -> Todo:
    """Put a message into a turn, or say that the conversation is busy (``agent.busy`` "reject")."""
    conversation = said.conversation or conversation_id(config, said.channel, said.root_ts)
    agent = agent_name(config, said.prefix)
    live = [turn for turn in draft.uow.turns.in_states(*LIVE) if turn.conversation == conversation]
    is_program = program_of(config, agent) is not None
    turn = None if is_program else _joinable(draft, config, conversation, said)
    if turn is None and live and config.agent.busy == "reject":
        keep_message(draft, said, None)
        place = Place(conversation, said.root_ts or None)
        end_message(draft, place, said.ts, "refused", after=draft.post(place, BUSY, value="notice"))
        return Todo()
    turn = _joined(draft, config, turn, said) if turn else opened(draft, config, said, conversation)
    waits = any(is_shown(draft, each, QUEUED) for each in draft.uow.messages.of_turn(turn.id)[:1])
    keep_message(draft, said, turn.id)
    if waits and (message := draft.uow.messages.get(said.channel, said.ts)) is not None:
        set_mark(draft, place_of(turn), message, QUEUED)
    steers = config.agent.busy == "steer" and live and live[0].agent == agent
    if steers and _same_account(config, live[0], said):
        return Todo(steer=(Steer(live[0].id, turn.id),))
    return Todo() if live else Todo(begins=turn.thread_ts)


def _same_account(config: Config, turn: TurnRow, said: Incoming) -> bool:
    """Whether what is said may go on the account of a turn: where people have budgets, each has turns of their own."""
    return config.budget.user == Limit() or turn.user_id == said.user


def _joinable(draft: Draft, config: Config, conversation: str, said: Incoming) -> TurnRow | None:
    """A turn that waits only because others run keeps its own thread: a top-level message joins within the
    debounce or not at all."""
    agent = agent_name(config, said.prefix)
    queued = [turn for turn in draft.uow.turns.in_states("queued") if turn.conversation == conversation]
    if not queued or queued[-1].agent != agent or not _same_account(config, queued[-1], said):
        return None
    turn = queued[-1]
    if turn.job != said.job:
        return None
    if turn.thread_ts == said.root_ts:
        return turn
    opener = draft.uow.messages.get(turn.channel_id, turn.thread_ts)
    top_level = opener is not None and opener.turn_id == turn.id
    fresh = turn.not_before > draft.stamp
    return turn if said.thread_ts is None and top_level and fresh else None


def _joined(draft: Draft, config: Config, turn: TurnRow, said: Incoming) -> TurnRow:
    joined = replace(turn, not_before=_due(draft, config), thread_ts=said.root_ts)
    if turn.progress_op_id and turn.thread_ts != joined.thread_ts:
        draft.edit(place_of(turn), turn.progress_op_id, Message(markdown=TOGETHER))
        joined = replace(joined, progress_op_id=None)
    draft.uow.turns.update(
        turn.id,
        not_before=joined.not_before,
        thread_ts=joined.thread_ts,
        progress_op_id=joined.progress_op_id,
    )
    return joined


def opened(draft: Draft, config: Config, said: Incoming, conversation: str) -> TurnRow:
    """A new turn in the line."""
    turn = TurnRow(
        id=uuid.uuid4().hex,
        conversation=conversation,
        channel_id=said.channel,
        thread_ts=said.root_ts,
        agent=agent_name(config, said.prefix),
        created_at=draft.stamp,
        # Nobody completes a command with a second message.
        not_before=_due(draft, config) if program_of(config, agent_name(config, said.prefix)) is None else "",
        user_id=said.user,
        job=said.job,
    )
    draft.uow.turns.add(turn)
    return turn


def _due(draft: Draft, config: Config) -> str:
    return iso(draft.now + timedelta(seconds=config.agent.debounce_seconds))
