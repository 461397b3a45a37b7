"""A message for an agent becomes rows and part of a turn, within one transaction.

A message joins its conversation's queued turn while that has not started (debounce), if it is for the same agent and
is answered in the same thread; otherwise it opens a turn of its own. Written too long ago, or one too many of its
author's, it is kept but does not run by itself. What people write in the thread of a session goes to its terminal, not
to an agent; it is kept with the session's turn until it has been typed: if the worker dies first, it is marked with it.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from datetime import timedelta

from codebutler.config.permission import admitted, may
from codebutler.config.programs import is_session, is_shell, program_of
from codebutler.config.schema import Config, DailyLimit
from codebutler.domain.message import Message
from codebutler.domain.model import File, React
from codebutler_worker.conversation.marks import QUEUED, WORKING, clear_mark, end_message, is_shown, set_mark
from codebutler_worker.conversation.queue import CROWDED, HANDLED, STALE, is_unconfirmed
from codebutler_worker.media.kinds import is_voice
from codebutler_worker.present.notices import crowded, handled, stale
from codebutler_worker.runtime.turns import (
    LIVE,
    Steer,
    Todo,
    Typed,
    agent_name,
    audit_of,
    conversation_id,
    using,
)
from codebutler_worker.store.rows import AttachmentRow, MessageRow, TurnRow, message_id
from codebutler_worker.store.unit_of_work import ThreadPlace, UnitOfWork, iso, place_of

MAX_FILES = 20
BUSY = "⏳ Already working in this conversation: send it again after the answer, or say `!stop` first."
TOGETHER = "↪ Answered together with what was said next."
LATE = "🕰️ You wrote this while I was offline, so it was not typed. Send it again if you still need it."
GONE = "The session has ended: nothing was typed."
WORDS_ONLY = "📎 Files cannot be typed into a session."


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


def keep_message(uow: UnitOfWork, said: Incoming, turn_id: str | None) -> None:
    """Write the message and its files, or its latest text, as part of a turn (None = of none)."""
    files = _files(said) if said.files else []
    for file in files:
        uow.attachments.add(file)
    row = MessageRow(
        id=message_id(said.channel, said.ts or said.conversation or ""),
        from_id=said.user,
        channel_id=said.channel,
        content=said.text,
        timestamp=uow.stamp,
        platform_msg_id=said.ts,
        order=said.order or said.ts,
        thread_ts=said.root_ts,
        turn_id=turn_id,
        agent=said.prefix,
        late=said.late,
        is_voice=any(file.is_voice for file in files),
    )
    if uow.messages.get(said.channel, row.key) is None:
        uow.messages.add(row)
        return
    uow.messages.set_text(said.channel, said.ts, said.text)
    if turn_id is not None:
        uow.messages.attach(said.channel, said.ts, turn_id)


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


def enqueue(uow: UnitOfWork, config: Config, said: Incoming) -> Todo:
    """Put a message into a turn, or say that the conversation is busy (``agent.busy`` "reject")."""
    conversation = said.conversation or conversation_id(config, said.channel, said.root_ts)
    agent = agent_name(config, said.prefix)
    live = [turn for turn in uow.turns.in_states(*LIVE) if turn.conversation == conversation]
    queued = [turn for turn in uow.turns.in_states("queued") if turn.conversation == conversation]
    is_program = program_of(config, agent) is not None
    turn = _joinable(uow, config, queued[-1], said) if queued and not is_program else None
    if turn is None and live and config.agent.busy == "reject":
        keep_message(uow, said, None)
        place = ThreadPlace(conversation, said.root_ts or None)
        end_message(uow, place, said.ts, "refused", after=uow.post(place, BUSY, value="notice"))
        return Todo()
    waits = False
    if turn is None:
        turn = opened(uow, config, said, conversation)
    else:
        turn = _joined(uow, config, turn, said)
        waits = any(is_shown(uow, each, QUEUED) for each in uow.messages.of_turn(turn.id)[:1])
    keep_message(uow, said, turn.id)
    if waits and (message := uow.messages.get(said.channel, said.ts)) is not None:
        set_mark(uow, place_of(turn), message, QUEUED)
    steers = config.agent.busy == "steer" and live and live[0].agent == agent
    if steers and _same_account(config, live[0], said):
        return Todo(steer=(Steer(live[0].id, turn.id),))
    return Todo() if live else Todo(begins=turn.thread_ts)


def _same_account(config: Config, turn: TurnRow, said: Incoming) -> bool:
    """Whether what is said may go on the account of a turn: where people have budgets, each has turns of their own."""
    return config.budget.user == DailyLimit() or turn.user_id == said.user


def _joinable(uow: UnitOfWork, config: Config, turn: TurnRow, said: Incoming) -> TurnRow | None:
    """A turn that waits only because others run keeps its own thread: a top-level message joins within the
    debounce or not at all."""
    if turn.agent != agent_name(config, said.prefix) or not _same_account(config, turn, said):
        return None
    if turn.job != said.job:
        return None
    if turn.thread_ts == said.root_ts:
        return turn
    opener = uow.messages.get(turn.channel_id, turn.thread_ts)
    top_level = opener is not None and opener.turn_id == turn.id
    fresh = turn.not_before > uow.stamp
    return turn if said.thread_ts is None and top_level and fresh else None


def _joined(uow: UnitOfWork, config: Config, turn: TurnRow, said: Incoming) -> TurnRow:
    joined = replace(turn, not_before=_due(uow, config), thread_ts=said.root_ts)
    if turn.progress_op_id and turn.thread_ts != joined.thread_ts:
        uow.edit(place_of(turn), turn.progress_op_id, Message(markdown=TOGETHER))
        joined = replace(joined, progress_op_id=None)
    uow.turns.update(
        turn.id,
        not_before=joined.not_before,
        thread_ts=joined.thread_ts,
        progress_op_id=joined.progress_op_id,
    )
    return joined


def opened(uow: UnitOfWork, config: Config, said: Incoming, conversation: str) -> TurnRow:
    """Queue a new turn."""
    turn = TurnRow(
        id=uuid.uuid4().hex,
        conversation=conversation,
        channel_id=said.channel,
        thread_ts=said.root_ts,
        agent=agent_name(config, said.prefix),
        created_at=uow.stamp,
        # Nobody completes a command with a second message.
        not_before=_due(uow, config) if program_of(config, agent_name(config, said.prefix)) is None else "",
        user_id=said.user,
        job=said.job,
    )
    uow.turns.add(turn)
    return turn


def _due(uow: UnitOfWork, config: Config) -> str:
    return iso(uow.now + timedelta(seconds=config.agent.debounce_seconds))


def park(uow: UnitOfWork, config: Config, said: Incoming) -> Todo:
    """Keep a message that was written too long ago, or may have been handled, and ask once per conversation whether
    it is still wanted."""
    return _ask_first(uow, config, said, HANDLED if said.handled else STALE)


def take_in(uow: UnitOfWork, config: Config, said: Incoming) -> Todo:
    """Put a message into a turn; where too many of its author's are waiting, keep it until they ask again."""
    if is_crowded(uow, config, said.user):
        return _ask_first(uow, config, said, CROWDED)
    return enqueue(uow, config, said)


def is_crowded(uow: UnitOfWork, config: Config, user: str) -> bool:
    """Whether so many messages of the user wait that no more are let in (``agent.queuePerUser``)."""
    most = config.agent.queue_per_user
    return most > 0 and uow.messages.waiting_of(user) >= most


def _ask_first(uow: UnitOfWork, config: Config, said: Incoming, reason: str) -> Todo:
    conversation = said.conversation or conversation_id(config, said.channel, said.root_ts)
    latest = uow.turns.newest(1, conversation)
    if latest and _may_join(config, latest[0], said, reason):
        turn = latest[0]
    else:
        queued = opened(uow, config, said, conversation)
        turn = replace(queued, state="interrupted", reason=reason)
        uow.turns.update(turn.id, state=turn.state, reason=reason, finished_at=uow.stamp)
        uow.post(place_of(turn), _question(config, turn, said.text))
    if reason == HANDLED:
        # Set in a life that we do not remember.
        for name in (WORKING, QUEUED):
            uow.react(place_of(turn), React(target_ts=said.ts, name=name, remove=True))
    keep_message(uow, said, turn.id)
    return Todo()


def _question(config: Config, turn: TurnRow, text: str) -> Message:
    if turn.reason == CROWDED:
        return crowded(turn.id, config.agent.queue_per_user)
    return handled(turn.id, text) if turn.reason == HANDLED else stale(turn.id, text)


def _may_join(config: Config, turn: TurnRow, said: Incoming, reason: str) -> bool:
    same_agent = turn.agent == agent_name(config, said.prefix)
    whose = reason != CROWDED or turn.user_id == said.user
    return is_unconfirmed(turn) and turn.reason == reason and same_agent and whose


def type_in(uow: UnitOfWork, config: Config, said: Incoming) -> Todo | None:
    """Take a plain message for the session that runs in its thread; None if none does."""
    if said.prefix is not None or said.thread_ts is None:
        return None
    live = uow.turns.in_states(*LIVE)
    turn = next(
        (each for each in live if each.thread_ts == said.thread_ts and is_session(config, each.agent)), None
    )
    if turn is None:
        return None
    place = place_of(turn)
    # The parent has let it in as a prompt for the default agent.
    text = _commands(config, turn.agent, said.text)
    decision = may(admitted(said.user), "type", using(config, said.channel, turn.agent, text))
    refused = decision.told
    if decision.allowed and said.late:
        refused = LATE
    elif decision.allowed and not said.text.strip():
        refused = WORDS_ONLY
    if refused:
        keep_message(uow, said, None)
        uow.post(place, refused)
        end_message(uow, place, said.ts, "refused")
        # The parent let it in as a prompt, and wrote that down.
        record = audit_of(turn, said.text, f"refused: {decision.reason}", user=said.user)
        return Todo(audit=() if decision.allowed else (record,))
    keep_message(uow, said, turn.id)
    return Todo(typed=(Typed(turn.id, said.channel, said.ts, said.text),))


def _commands(config: Config, agent: str, text: str) -> str:
    """What of it a shell would run: a key is none."""
    if not is_shell(config, agent):
        return ""
    # Not for every worker's memory: only one with a session needs to know the keys.
    from codebutler_worker.agents.shell.run import is_key

    return "" if is_key(text) else text


def settle_typed(uow: UnitOfWork, typed: Typed, refusal: str) -> None:
    """Mark a message as typed, or (``refusal``) say why it was not."""
    turn = uow.turns.get(typed.turn_id)
    message = uow.messages.get(typed.channel, typed.ts)
    if turn is None or message is None or message.turn_id != turn.id:
        return
    uow.messages.attach(typed.channel, typed.ts, None)
    place = place_of(turn)
    if refusal:
        uow.post(place, refusal)
    end_message(uow, place, typed.ts, "refused" if refusal else "done")
    # While it belonged to the turn it may have been given the turn's own mark.
    clear_mark(uow, place, message, WORKING)
