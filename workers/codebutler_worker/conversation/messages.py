"""Stores a message for an agent as rows of a turn, within one transaction.

A message joins its conversation's queued turn until that starts (debounce), if it is for the same agent and
gets its answer in the same thread; otherwise it opens a new turn. One written too long ago, or above its
author's limit, is kept but does not run by itself. A message in a session's thread goes to its terminal, not
to an agent; it stays with the session's turn until it has been typed: if the worker dies first, it gets that
turn's outcome as its mark.
"""

from __future__ import annotations

import uuid
from datetime import timedelta

from msgspec import Struct
from msgspec.structs import replace

from codebutler.config.permission import admitted, may
from codebutler.config.programs import is_session, is_shell, program_of
from codebutler.config.schema import Config
from codebutler.config.section import DailyLimit
from codebutler.domain.message import Message
from codebutler.domain.model import File, React
from codebutler.domain.refs import ConversationRef, MessageRef, PersonRef
from codebutler.protocol.messages import Audit
from codebutler.text.wording import one_line
from codebutler_worker.conversation.marks import QUEUED, WORKING, end_message, is_shown, set_mark
from codebutler_worker.conversation.queue import CROWDED, HANDLED, STALE, is_unconfirmed
from codebutler_worker.media.files import is_voice
from codebutler_worker.present.notices import crowded, handled, stale
from codebutler_worker.runtime.turns import (
    LIVE,
    Steer,
    Todo,
    Typed,
    agent_for,
    audit_of,
    conversation_id,
    using,
)
from codebutler_worker.store.rows import AttachmentRow, MessageRow, TurnRow, message_id
from codebutler_worker.store.unit_of_work import ThreadPlace, UnitOfWork, iso, place_of

MAX_FILES = 20
BUSY = "⏳ Already working in this conversation: send it again after the answer, or say `!stop` first."
TOGETHER = "↪ Answered together with the next message."
LATE = "🕰️ You wrote this while I was offline, so it was not typed. Send it again if you still need it."
WORDS_ONLY = "📎 Files cannot be typed into a session."


class Incoming(Struct, frozen=True, kw_only=True):
    """A message for an agent. ``ref`` is "" if the chat shows none (a slash command). ``root``: the thread it belongs
    to; its own ref if it starts one. ``order`` as in the event; "" if a message of ours stands for it, whose ref is
    its order."""

    channel: ConversationRef
    ref: MessageRef
    root: MessageRef
    user: PersonRef
    text: str
    prefix: str | None = None
    late: bool = False
    handled: bool = False
    conversation: str | None = None
    order: str = ""
    files: tuple[File, ...] = ()
    job: str = ""


def keep_message(uow: UnitOfWork, incoming: Incoming, turn_id: str | None) -> None:
    """Write the message and its files, or its latest text, as part of a turn (None = no turn)."""
    files = attachments_of(incoming) if incoming.files else []
    for file in files:
        uow.attachments.add(file, known="keep")
    key = incoming.ref or MessageRef(incoming.conversation or "")
    row = MessageRow(
        id=message_id(incoming.channel, key),
        from_id=incoming.user,
        channel_id=incoming.channel,
        content=incoming.text,
        timestamp=uow.stamp,
        platform_msg_id=incoming.ref,
        order=incoming.order or incoming.ref,
        thread=incoming.root,
        turn_id=turn_id,
        agent=incoming.prefix,
        late=incoming.late,
        is_voice=any(file.is_voice for file in files),
    )
    if not uow.messages.add(row, known="keep"):
        fields = (
            {"content": incoming.text} if turn_id is None else {"content": incoming.text, "turn_id": turn_id}
        )
        uow.messages.update(row.id, **fields)


def attachments_of(incoming: Incoming) -> list[AttachmentRow]:
    """Its files, which are fetched when its run starts."""
    return [
        AttachmentRow(
            message_id=message_id(incoming.channel, incoming.ref),
            file_id=file.id,
            position=position,
            name=file.name,
            mimetype=file.mimetype,
            size_bytes=file.size_bytes,
            is_voice=is_voice(file),
        )
        for position, file in enumerate(incoming.files[:MAX_FILES])
    ]


def enqueue(
    uow: UnitOfWork, config: Config, incoming: Incoming, *, counts: bool = True, stale: bool = False
) -> Todo:
    """Put a message into a turn, or reply that the conversation is busy (``agent.busy`` "reject"). If it ``counts`` and
    too many of its author's are waiting, or if it is ``stale`` (written too long ago, or perhaps handled before), keep
    it and ask once per conversation whether it is still wanted."""
    reason = ""
    if stale:
        reason = HANDLED if incoming.handled else STALE
    elif counts and uow.messages.is_crowded(incoming.user, config.agent.queue_per_user):
        reason = CROWDED
    conversation = incoming.conversation or conversation_id(config, incoming.channel, incoming.root)
    agent = agent_for(uow, config, conversation, incoming.prefix)
    is_chosen = incoming.prefix is None and agent != config.agent.default
    if is_chosen and (refused := _refused(uow, config, incoming, conversation, agent)):
        return refused
    if reason:
        return _ask_first(uow, config, incoming, conversation, agent, reason)
    live = [turn for turn in uow.turns.find(state=LIVE) if turn.conversation == conversation]
    queued = [turn for turn in uow.turns.find(state="queued") if turn.conversation == conversation]
    is_program = program_of(config, agent) is not None
    turn = _joinable(uow, config, queued[-1], incoming, agent) if queued and not is_program else None
    if turn is None and live and config.agent.busy == "reject":
        keep_message(uow, incoming, None)
        place = ThreadPlace(conversation, incoming.root or None)
        end_message(uow, place, incoming.ref, "refused", after=uow.post(place, BUSY, value="notice"))
        return Todo()
    waits = False
    if turn is None:
        turn = opened(uow, config, incoming, conversation, agent)
    else:
        turn = _joined(uow, config, turn, incoming)
        waits = any(is_shown(uow, each, QUEUED) for each in uow.messages.find(turn_id=turn.id)[:1])
    keep_message(uow, incoming, turn.id)
    if waits and (message := uow.messages.get(message_id(incoming.channel, incoming.ref))) is not None:
        set_mark(uow, place_of(turn), message, QUEUED)
    steers = config.agent.busy == "steer" and live and live[0].agent == agent
    if steers and _same_account(config, live[0], incoming):
        return Todo(steer=(Steer(live[0].id, turn.id),))
    return Todo() if live else Todo(begins=turn.thread)


def _same_account(config: Config, turn: TurnRow, incoming: Incoming) -> bool:
    """Whether the message can be charged to that turn: if people have budgets, turns are not shared."""
    return config.budget.user == DailyLimit() or turn.user_id == incoming.user


def _refused(
    uow: UnitOfWork, config: Config, incoming: Incoming, conversation: str, agent: str
) -> Todo | None:
    """What becomes of a message for an agent that its thread has chosen, if its author may not use it; else None. The
    parent, which let it in, knows the configured agent only."""
    decision = may(admitted(incoming.user), "ask", using(config, incoming.channel, agent, incoming.text))
    if decision.allowed:
        return None
    keep_message(uow, incoming, None)
    place = ThreadPlace(conversation, incoming.root or None)
    end_message(uow, place, incoming.ref, "refused", after=uow.post(place, decision.message, value="notice"))
    # The parent let it in as a prompt for the configured agent, and wrote that down.
    record = Audit(
        user=incoming.user,
        thread=incoming.root,
        kind=agent,
        text=one_line(incoming.text, 1000),
        decision=f"refused: {decision.reason}",
    )
    return Todo(audit=(record,))


def _joinable(
    uow: UnitOfWork, config: Config, turn: TurnRow, incoming: Incoming, agent: str
) -> TurnRow | None:
    """A turn that waits only because others run keeps its own thread: a top-level message joins within the
    debounce or not at all."""
    if turn.agent != agent or not _same_account(config, turn, incoming):
        return None
    if turn.job != incoming.job:
        return None
    if turn.thread == incoming.root:
        return turn
    opener = uow.messages.get(message_id(turn.channel_id, turn.thread))
    top_level = opener is not None and opener.turn_id == turn.id
    fresh = turn.not_before > uow.stamp
    return turn if incoming.root == incoming.ref and top_level and fresh else None


def _joined(uow: UnitOfWork, config: Config, turn: TurnRow, incoming: Incoming) -> TurnRow:
    due = iso(uow.now + timedelta(seconds=config.agent.debounce_seconds))
    joined = replace(turn, not_before=due, thread=incoming.root)
    if turn.progress_op_id and turn.thread != joined.thread:
        uow.edit(place_of(turn), turn.progress_op_id, Message(markdown=TOGETHER))
        joined = replace(joined, progress_op_id=None)
    uow.turns.update(
        turn.id,
        not_before=joined.not_before,
        thread=joined.thread,
        progress_op_id=joined.progress_op_id,
    )
    return joined


def opened(uow: UnitOfWork, config: Config, incoming: Incoming, conversation: str, agent: str) -> TurnRow:
    """Queue a new turn."""
    due = ""
    # Nobody completes a command with a second message.
    if program_of(config, agent) is None:
        due = iso(uow.now + timedelta(seconds=config.agent.debounce_seconds))
    turn = TurnRow(
        id=uuid.uuid4().hex,
        conversation=conversation,
        channel_id=incoming.channel,
        thread=incoming.root,
        agent=agent,
        created_at=uow.stamp,
        not_before=due,
        user_id=incoming.user,
        job=incoming.job,
    )
    uow.turns.add(turn)
    return turn


def _ask_first(
    uow: UnitOfWork, config: Config, incoming: Incoming, conversation: str, agent: str, reason: str
) -> Todo:
    latest = uow.turns.find(newest=1, conversation=conversation)
    if latest and latest[0].agent == agent and _may_join(latest[0], incoming, reason):
        turn = latest[0]
    else:
        queued = opened(uow, config, incoming, conversation, agent)
        turn = replace(queued, state="interrupted", reason=reason)
        uow.turns.update(turn.id, state=turn.state, reason=reason, finished_at=uow.stamp)
        uow.post(place_of(turn), _question(config, turn, incoming.text))
    if reason == HANDLED:
        # Set by an earlier run of ours that the store does not remember.
        for mark in (WORKING, QUEUED):
            uow.add(place_of(turn), React(target=incoming.ref, mark=mark, remove=True))
    keep_message(uow, incoming, turn.id)
    return Todo()


def _question(config: Config, turn: TurnRow, text: str) -> Message:
    if turn.reason == CROWDED:
        return crowded(turn.id, config.agent.queue_per_user)
    return handled(turn.id, text) if turn.reason == HANDLED else stale(turn.id, text)


def _may_join(turn: TurnRow, incoming: Incoming, reason: str) -> bool:
    whose = reason != CROWDED or turn.user_id == incoming.user
    return is_unconfirmed(turn) and turn.reason == reason and whose


def type_in(uow: UnitOfWork, config: Config, incoming: Incoming) -> Todo | None:
    """Take a plain message for the session that runs in its thread; None if there is none."""
    if incoming.prefix is not None or incoming.root == incoming.ref:
        return None
    live = uow.turns.find(state=LIVE)
    turn = next(
        (each for each in live if each.thread == incoming.root and is_session(config, each.agent)), None
    )
    if turn is None:
        return None
    place = place_of(turn)
    # The parent has let it in as a prompt for the default agent.
    text = _commands(config, turn.agent, incoming.text)
    decision = may(admitted(incoming.user), "type", using(config, incoming.channel, turn.agent, text))
    refused = decision.message
    if decision.allowed and incoming.late:
        refused = LATE
    elif decision.allowed and not incoming.text.strip():
        refused = WORDS_ONLY
    if refused:
        keep_message(uow, incoming, None)
        uow.post(place, refused)
        end_message(uow, place, incoming.ref, "refused")
        # The parent let it in as a prompt, and logged it as one.
        record = audit_of(turn, incoming.text, f"refused: {decision.reason}", user=incoming.user)
        return Todo(audit=() if decision.allowed else (record,))
    keep_message(uow, incoming, turn.id)
    return Todo(typed=(Typed(turn.id, incoming.channel, incoming.ref, incoming.text),))


def _commands(config: Config, agent: str, text: str) -> str:
    """The part of it that a shell would run: a key press is none."""
    if not is_shell(config, agent):
        return ""
    # Imported here: only a worker with a session needs the keys in memory.
    from codebutler_worker.agents.shell.run import is_key

    return "" if is_key(text) else text


def settle_typed(uow: UnitOfWork, typed: Typed, refusal: str) -> None:
    """Mark a message as typed, or say why it was not (``refusal``)."""
    turn = uow.turns.get(typed.turn_id)
    message = uow.messages.get(message_id(typed.channel, typed.ref))
    if turn is None or message is None or message.turn_id != turn.id:
        return
    uow.messages.update(message_id(typed.channel, typed.ref), turn_id=None)
    place = place_of(turn)
    if refusal:
        uow.post(place, refusal)
    end_message(uow, place, typed.ref, "refused" if refusal else "done")
    # While it belonged to the turn it may have got the turn's mark.
    set_mark(uow, place, message, WORKING, remove=True)
