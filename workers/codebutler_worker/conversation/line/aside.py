"""Messages that are kept but do not run by themselves: written too long ago, or one too many of their author's."""

from __future__ import annotations

from dataclasses import replace

from codebutler.config.schema import Config
from codebutler.message import Message
from codebutler.model import React
from codebutler_worker.conversation.line.incoming import Incoming, keep_message
from codebutler_worker.conversation.line.marks import QUEUED, WORKING
from codebutler_worker.conversation.line.queueing import enqueue, opened
from codebutler_worker.conversation.line.withdrawing import CROWDED, HANDLED, STALE, is_aside
from codebutler_worker.desk.draft import Draft, place_of
from codebutler_worker.desk.naming import agent_name, conversation_id
from codebutler_worker.desk.todo import Todo
from codebutler_worker.present.notices import crowded, handled, stale
from codebutler_worker.store.rows import TurnRow


def park(draft: Draft, config: Config, said: Incoming) -> Todo:
    """Keep a message that was written too long ago, or may be done with, and ask once per conversation whether it
    still counts."""
    return _aside(draft, config, said, HANDLED if said.handled else STALE)


def take_in(draft: Draft, config: Config, said: Incoming) -> Todo:
    """Put a message into a turn; one too many of its author's is kept until they say so again."""
    if is_crowded(draft, config, said.user):
        return _aside(draft, config, said, CROWDED)
    return enqueue(draft, config, said)


def is_crowded(draft: Draft, config: Config, user: str) -> bool:
    """Whether so many messages of the user wait that no more are let in (``agent.queuePerUser``)."""
    most = config.agent.queue_per_user
    return most > 0 and draft.uow.messages.waiting_of(user) >= most


def _aside(draft: Draft, config: Config, said: Incoming, reason: str) -> Todo:
    conversation = said.conversation or conversation_id(config, said.channel, said.root_ts)
    turn = draft.uow.turns.latest_of(conversation)
    if turn is None or not _may_join(config, turn, said, reason):
        queued = opened(draft, config, said, conversation)
        turn = replace(queued, state="interrupted", reason=reason)
        draft.uow.turns.update(turn.id, state=turn.state, reason=reason, finished_at=draft.stamp)
        draft.post(place_of(turn), _question(config, turn, said.text))
    if reason == HANDLED:
        # Set in a life that we do not remember.
        for name in (WORKING, QUEUED):
            draft.react(place_of(turn), React(target_ts=said.ts, name=name, remove=True))
    keep_message(draft, said, turn.id)
    return Todo()


def _question(config: Config, turn: TurnRow, text: str) -> Message:
    if turn.reason == CROWDED:
        return crowded(turn.id, config.agent.queue_per_user)
    return handled(turn.id, text) if turn.reason == HANDLED else stale(turn.id, text)


def _may_join(config: Config, turn: TurnRow, said: Incoming, reason: str) -> bool:
    same_agent = turn.agent == agent_name(config, said.prefix)
    whose = reason != CROWDED or turn.user_id == said.user
    return is_aside(turn) and turn.reason == reason and same_agent and whose
