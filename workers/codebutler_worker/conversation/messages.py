"""Words for an agent become rows, and part of a turn, within one transaction.

A message joins its conversation's queued turn while that has not started (debounce), if it is for the same agent and
is answered in the same thread; otherwise it opens a turn of its own. Written too long ago, or one too many of its
author's, it is kept but does not run by itself.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from datetime import timedelta

from codebutler.config.programs import program_of
from codebutler.config.schema import Config, DailyLimit
from codebutler.domain.message import Message
from codebutler.domain.model import File, React
from codebutler_worker.conversation.marks import QUEUED, WORKING, end_message, is_shown, set_mark
from codebutler_worker.conversation.queue import CROWDED, HANDLED, STALE, is_aside
from codebutler_worker.desk.draft import Draft, Place, iso, place_of
from codebutler_worker.desk.naming import agent_name, conversation_id
from codebutler_worker.desk.states import LIVE
from codebutler_worker.desk.todo import Steer, Todo
from codebutler_worker.media.kinds import is_voice
from codebutler_worker.present.notices import crowded, handled, stale
from codebutler_worker.store.rows import AttachmentRow, MessageRow, TurnRow, message_id

MAX_FILES = 20
BUSY = "⏳ Already working in this conversation: say it again after the answer, or say `!stop` first."
TOGETHER = "↪ Answered together with what was said next."


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """Words for an agent. ``ts`` is "" where the chat shows no message (a slash command). ``order`` as in the event; ""
    where a message of ours stands for them, whose ts is its order."""

    channel: str
    ts: str
    thread_ts: str | None
    user: str
    text: str
    prefix: str | None = None
    late: bool = False
    handled: bool = False
    conversation: str | None = None
    order: str = ""
    files: tuple[File, ...] = ()
    job: str = ""

    @property
    def root_ts(self) -> str:
        """The thread it belongs to; its own ts where it begins one."""
        return self.thread_ts or self.ts


def keep_message(draft: Draft, said: Incoming, turn_id: str | None) -> None:
    """Write the message and its files, or what has become of it, as part of a turn (None = of none)."""
    files = _files(said) if said.files else []
    for file in files:
        draft.uow.attachments.add(file)
    row = MessageRow(
        id=message_id(said.channel, said.ts or said.conversation or ""),
        from_id=said.user,
        channel_id=said.channel,
        content=said.text,
        timestamp=draft.stamp,
        platform_msg_id=said.ts,
        order=said.order or said.ts,
        thread_ts=said.root_ts,
        turn_id=turn_id,
        agent=said.prefix,
        late=said.late,
        is_voice=any(file.is_voice for file in files),
    )
    if draft.uow.messages.get(said.channel, row.key) is None:
        draft.uow.messages.add(row)
        return
    draft.uow.messages.set_text(said.channel, said.ts, said.text)
    if turn_id is not None:
        draft.uow.messages.attach(said.channel, said.ts, turn_id)


def _files(said: Incoming) -> list[AttachmentRow]:
    return [
        AttachmentRow(
            message_id=message_id(said.channel, said.ts),
            file_id=file.id,
            position=position,
            name=file.name,
            mimetype=file.mimetype,
            size_bytes=file.size_bytes,
            is_voice=is_voice(file.mimetype, file.subtype, file.name),
        )
        for position, file in enumerate(said.files[:MAX_FILES])
    ]


def enqueue(draft: Draft, config: Config, said: Incoming) -> Todo:
    """Put a message into a turn, or say that the conversation is busy (``agent.busy`` "reject")."""
    conversation = said.conversation or conversation_id(config, said.channel, said.root_ts)
    agent = agent_name(config, said.prefix)
    live = [turn for turn in draft.uow.turns.in_states(*LIVE) if turn.conversation == conversation]
    queued = [turn for turn in draft.uow.turns.in_states("queued") if turn.conversation == conversation]
    is_program = program_of(config, agent) is not None
    turn = _joinable(draft, config, queued[-1], said) if queued and not is_program else None
    if turn is None and live and config.agent.busy == "reject":
        keep_message(draft, said, None)
        place = Place(conversation, said.root_ts or None)
        end_message(draft, place, said.ts, "refused", after=draft.post(place, BUSY, value="notice"))
        return Todo()
    waits = False
    if turn is None:
        turn = opened(draft, config, said, conversation)
    else:
        turn = _joined(draft, config, turn, said)
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
    return config.budget.user == DailyLimit() or turn.user_id == said.user


def _joinable(draft: Draft, config: Config, turn: TurnRow, said: Incoming) -> TurnRow | None:
    """A turn that waits only because others run keeps its own thread: a top-level message joins within the
    debounce or not at all."""
    if turn.agent != agent_name(config, said.prefix) or not _same_account(config, turn, said):
        return None
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
