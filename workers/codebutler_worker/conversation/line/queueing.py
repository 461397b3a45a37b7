"""Messages into turns and out of them again, within one transaction.

A message joins its conversation's queued turn while that has not started (debounce), if it is for the same
agent and is answered in the same thread; otherwise it opens a turn of its own.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

from codebutler.config.programs import program_of
from codebutler.config.schema import Config, Limit
from codebutler.model import File
from codebutler.protocol.messages import Audit, LogTag
from codebutler_worker.conversation.desk.desk import Draft, Place, iso
from codebutler_worker.conversation.desk.naming import agent_name, conversation_id
from codebutler_worker.conversation.desk.states import LIVE, move
from codebutler_worker.media.kinds import is_voice
from codebutler_worker.present.progress import Message
from codebutler_worker.store.rows import AttachmentRow, ErrandRow, MessageRow, TurnRow, message_id

QUEUED = "hourglass_flowing_sand"
WORKING = "eyes"
DONE = "white_check_mark"
FAILED = "x"
STOPPED = "octagonal_sign"

BUSY = "⏳ Already working in this conversation: say it again after the answer, or say `!stop` first."
WITHDRAWN = "withdrawn"
STEERED = "steered"
HELD = "held"
NOT_RUN: Mapping[str, str] = {
    STEERED: "↪ Told to the agent, which is at work.",
    WITHDRAWN: "🛑 Withdrawn.",
    HELD: "⏸️ Waits with what was said before.",
}
TOGETHER = "↪ Answered together with what was said next."
MAX_FILES = 20
STALE = "stale"
CROWDED = "crowded"
BUDGET = "budget"


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """Words for an agent. ``ts`` is "" where Slack shows no message (a slash command)."""

    channel: str
    ts: str
    thread_ts: str | None
    user: str
    text: str
    prefix: str | None = None
    late: bool = False
    conversation: str | None = None
    files: tuple[File, ...] = ()
    job: str = ""

    @property
    def root_ts(self) -> str:
        return self.thread_ts or self.ts


@dataclass(frozen=True, slots=True)
class Steer:
    """Try to put the queued turn's messages into the running turn."""

    running_id: str
    queued_id: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """A decision on its way to a turn's agent."""

    turn_id: str
    approval_id: str
    allow: bool
    text: str = ""


@dataclass(frozen=True, slots=True)
class Typed:
    """A message that is to be typed into the session of a running turn."""

    turn_id: str
    channel: str
    ts: str
    text: str


@dataclass(frozen=True, slots=True)
class Todo:
    """What remains to be done outside the transaction, once it is committed. ``forced``: stop at once, without
    asking first; ``stopped_by``: who is told in the thread as the one who stopped it; ``forgotten``: conversations
    that begin anew."""

    stop: tuple[str, ...] = ()
    forced: bool = False
    stopped_by: str = ""
    errands: tuple[ErrandRow, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    steer: tuple[Steer, ...] = ()
    typed: tuple[Typed, ...] = ()
    forgotten: tuple[str, ...] = ()
    log: tuple[tuple[LogTag, str], ...] = ()
    audit: tuple[Audit, ...] = ()

    def logged(self, tag: LogTag, text: str) -> Todo:
        return replace(self, log=(*self.log, (tag, text)))


def place_of(turn: TurnRow) -> Place:
    """Where a turn speaks."""
    return Place(turn.conversation, turn.thread_ts or None, turn.id)


def enqueue(draft: Draft, config: Config, said: Incoming) -> Todo:
    """Put a message into a turn, or say that the conversation is busy (``agent.busy`` "reject")."""
    conversation = said.conversation or conversation_id(config, said.channel, said.root_ts)
    agent = agent_name(config, said.prefix)
    live = [turn for turn in draft.uow.turns.in_states(*LIVE) if turn.conversation == conversation]
    is_program = program_of(config, agent) is not None
    turn = None if is_program else _joinable(draft, config, conversation, said)
    if turn is None and live and config.agent.busy == "reject":
        keep_message(draft, said, None)
        draft.post(Place(conversation, said.root_ts or None), BUSY)
        return Todo()
    turn = _joined(draft, config, turn, said) if turn else opened(draft, config, said, conversation)
    keep_message(draft, said, turn.id)
    draft.react(place_of(turn), said.ts, QUEUED)
    steers = config.agent.busy == "steer" and live and live[0].agent == agent
    if steers and _same_account(config, live[0], said):
        return Todo(steer=(Steer(live[0].id, turn.id),))
    return Todo()


def withdraw_message(draft: Draft, message: MessageRow) -> None:
    """Take a message out of a turn that has not started; a turn without messages is over."""
    turn_id = message.turn_id
    draft.uow.messages.detach(message.channel_id, key_of(message))
    if turn_id is not None and not draft.uow.messages.of_turn(turn_id):
        close_turn(draft, turn_id, WITHDRAWN)


def withdraw_turn(draft: Draft, turn: TurnRow) -> None:
    """Stop a turn that has not started."""
    close_turn(draft, turn.id, "stopped")
    swap_reactions(draft, turn, remove=(QUEUED,), name=STOPPED)


def close_turn(draft: Draft, turn_id: str, reason: str) -> None:
    """Write a turn that will not run (or run on) as stopped."""
    turn = draft.uow.turns.get(turn_id)
    if turn is not None:
        if turn.state in ("queued", "parked") and turn.progress_op_id:
            words = NOT_RUN.get(reason, NOT_RUN[WITHDRAWN])
            draft.edit(place_of(turn), turn.progress_op_id, Message(words))
        state = move(turn.state, "stop")
        draft.uow.turns.update(turn_id, state=state, finished_at=draft.stamp, reason=reason)


def swap_reactions(
    draft: Draft, turn: TurnRow, *, remove: tuple[str, ...], name: str = "", after: str | None = None
) -> None:
    """Change the reaction on every message of a turn, once the operation ``after`` is done; the new one comes
    first, so there is always one."""
    place = place_of(turn)
    for message in draft.uow.messages.of_turn(turn.id):
        if name:
            draft.react(place, message.platform_msg_id, name, after=after)
        for old in remove:
            draft.react(place, message.platform_msg_id, old, remove=True, after=after)


def key_of(message: MessageRow) -> str:
    """What names the message within its channel: its ts, or a slash command's conversation."""
    return message.id.partition(":")[2]


def waiting_turn(draft: Draft, channel: str, ts: str) -> tuple[MessageRow, TurnRow] | None:
    """A message and its turn, if that has not started yet (or waits for an answer whether it shall)."""
    message = draft.uow.messages.get(channel, ts)
    if message is None or message.turn_id is None:
        return None
    turn = draft.uow.turns.get(message.turn_id)
    waits = turn is not None and (turn.state == "queued" or is_aside(turn) or was_held(turn))
    return (message, turn) if turn is not None and waits else None


def is_aside(turn: TurnRow) -> bool:
    """Whether it has not started and does so only when somebody lets it."""
    return turn.state == "interrupted" and turn.reason in (STALE, CROWDED)


def was_held(turn: TurnRow) -> bool:
    """Whether it was parked before it could start."""
    return turn.state == "parked" and turn.started_at is None


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
        draft.edit(place_of(turn), turn.progress_op_id, Message(TOGETHER))
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


def keep_message(draft: Draft, said: Incoming, turn_id: str | None) -> None:
    """Write the message and its files, or what has become of it, as part of a turn (None = of none)."""
    files = _files(said)
    for file in files:
        draft.uow.attachments.add(file)
    row = MessageRow(
        id=message_id(said.channel, said.ts or said.conversation or ""),
        from_id=said.user,
        channel_id=said.channel,
        content=said.text,
        timestamp=draft.stamp,
        platform_msg_id=said.ts,
        thread_ts=said.root_ts,
        turn_id=turn_id,
        agent=said.prefix,
        late=said.late,
        is_voice=any(file.is_voice for file in files),
    )
    if draft.uow.messages.get(said.channel, key_of(row)) is None:
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
