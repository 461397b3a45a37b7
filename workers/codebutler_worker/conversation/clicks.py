"""Clicks on our buttons, and edits of a message whose run has started. A decision is taken once, however
often a button is clicked."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from codebutler.config.permission import Action, admitted, may
from codebutler.config.schema import Config
from codebutler.domain.message import (
    ASK_AGAIN_ACTION,
    DISCARD_ACTION,
    DROP_ACTION,
    RETRY_ACTION,
    STOP_ACTION,
    WAIT_ACTION,
    Message,
)
from codebutler.domain.model import ButtonClicked, MessageEdited, Prompt, Request
from codebutler.domain.refs import MessageRef, PersonRef
from codebutler.text.markup import plain
from codebutler.text.wording import one_line
from codebutler_worker.changes.undo import undo
from codebutler_worker.conversation.deciding import DECISIONS, already_decided, decide_click, no_effect
from codebutler_worker.conversation.end import wait_for_reset
from codebutler_worker.conversation.marks import WORKING, clear_end, end_turn, set_mark
from codebutler_worker.conversation.messages import BUSY, Incoming, enqueue
from codebutler_worker.conversation.parked import (
    CONTINUED_REASON,
    DROPPED_REASON,
    LIMITS,
    carry_on,
    drop_parked,
    end_parking,
)
from codebutler_worker.conversation.queue import CROWDED, HANDLED, STALE, close_turn, withdraw_turn
from codebutler_worker.memory import keeping
from codebutler_worker.present.notices import (
    AGAIN,
    ANOTHER,
    COMMAND,
    CONTINUED,
    CROWDED_TEXT,
    DROPPED,
    STILL_CROWDED,
    UNDO_ACTION,
    decided,
    edited,
    failed_text,
    handled_text,
    interrupted_text,
    stale_text,
    stopped_text,
)
from codebutler_worker.runtime.turns import LIVE, Todo, agent_for, agent_name, talks, using, words_of
from codebutler_worker.store.rows import DeferredRow, MessageRow, TurnRow, message_id
from codebutler_worker.store.unit_of_work import ThreadPlace, UnitOfWork, place_of

STOPPED_REASON = "stopped"
_NEEDING: Mapping[str, Action] = {
    RETRY_ACTION: "continue",
    WAIT_ACTION: "continue",
    UNDO_ACTION: "undo",
    DISCARD_ACTION: "merge",
}
DISCARDING = "🗑️ Discarding the worktree of this thread …"
ONCE = (
    "You have already asked again: the answer is in this thread. To ask once more, edit your message again."
)


def click(uow: UnitOfWork, config: Config, event: ButtonClicked) -> Todo:
    """Do what the button says. A button for an unknown turn, or one of another channel, only says so.

    To continue, undo or discard is to use the turn's agent, which the rules may deny to the person who
    clicks; the parent, which let the click in, does not know the turn.
    """
    if event.action_id in DECISIONS:
        return decide_click(uow, config, event)
    if event.action_id == ASK_AGAIN_ACTION:
        return ask_again(uow, config, event)
    if event.action_id in keeping.DECISIONS:
        return keeping.decide(uow, config, event)
    handler = _HANDLERS.get(event.action_id)
    turn_id, _, more = event.value.partition(ANOTHER)
    other = more if event.action_id == RETRY_ACTION else ""
    turn = uow.turns.get(turn_id) if handler else None
    if handler is None or turn is None or turn.channel_id != event.channel:
        return no_effect(uow, event)
    agent = agent_name(config, other) if other else turn.agent
    if other and not talks(config, agent):
        # A shell would take a request to an agent as a command.
        return Todo().logged("WRN", f"{event.user} pressed a button that its card does not have")
    if action := _NEEDING.get(event.action_id):
        decision = may(admitted(event.user), action, using(config, event.channel, agent))
        if not decision.allowed:
            uow.post(place_of(turn), decision.message, value="notice")
            return Todo().logged("WRN", f"{event.user} may not {action} a run of {turn.agent}")
    is_retry = event.action_id == RETRY_ACTION and turn.reason == CROWDED
    if is_retry and uow.messages.is_crowded(event.user, config.agent.queue_per_user):
        uow.post(place_of(turn), STILL_CROWDED)
        return Todo()
    return handler(uow, event, turn, agent)


def _stop(uow: UnitOfWork, _event: ButtonClicked, turn: TurnRow, _agent: str) -> Todo:
    if turn.state == "queued":
        withdraw_turn(uow, turn)
    return Todo(stop=(turn.id,)) if turn.state in LIVE else Todo()


def _retry(uow: UnitOfWork, event: ButtonClicked, turn: TurnRow, agent: str) -> Todo:
    if not can_go_on(turn):
        return already_decided(uow, event)
    go_on(uow, turn, event.user, event.message, agent)
    return Todo()


def _wait(uow: UnitOfWork, event: ButtonClicked, turn: TurnRow, _agent: str) -> Todo:
    return Todo() if wait_for_reset(uow, turn) else already_decided(uow, event)


def can_go_on(turn: TurnRow) -> bool:
    """Whether a person may continue a turn that is over, or that waits for its agent's service."""
    if turn.reason == CONTINUED_REASON:
        return turn.state == "parked"
    stopped = turn.state == "stopped" and turn.reason == STOPPED_REASON
    waits = turn.state in ("interrupted", "parked")
    return stopped or waits or (turn.state == "failed" and turn.reason in LIMITS)


def go_on(
    uow: UnitOfWork, turn: TurnRow, user: PersonRef, offer: MessageRef | None = None, agent: str = ""
) -> None:
    """Queue a turn that continues one for which ``can_go_on`` holds, with another ``agent`` if one is named.
    The message that offered it, at ``offer`` or found here, says so."""
    if turn.state == "parked":
        carry_on(uow, turn, user, agent=agent)
        other = agent not in ("", turn.agent)
        end_parking(uow, turn, f"▶ Continued on {plain(agent)}." if other else CONTINUED)
        return
    text = _question(uow, turn)
    card = uow.outbox.last_offer(turn.id, RETRY_ACTION) if offer is None else None
    follow_up = carry_on(uow, turn, user, agent=agent)
    uow.turns.update(turn.id, reason=CONTINUED_REASON)
    for message in uow.messages.find(turn_id=follow_up.id):
        clear_end(uow, place_of(follow_up), message, turn.state)
    if offer := offer or (card.ref if card else None):
        uow.edit_ref(place_of(follow_up), offer, decided(text, CONTINUED))


def _undo(uow: UnitOfWork, event: ButtonClicked, turn: TurnRow, _agent: str) -> Todo:
    undo(
        uow,
        turn,
        event.user,
        ThreadPlace(turn.conversation, event.thread or event.message),
        event.message,
    )
    return Todo()


def _discard(uow: UnitOfWork, event: ButtonClicked, turn: TurnRow, _agent: str) -> Todo:
    """The button names what the person agreed to: a worktree that has changed since stays."""
    place = ThreadPlace(turn.conversation, event.thread or event.message)
    row = DeferredRow(
        id=f"discard-{event.channel}-{event.message}",
        name="discard",
        argument=event.value.partition(ANOTHER)[2],
        conversation=turn.conversation,
        thread=place.thread,
        user_id=event.user,
        created_at=uow.stamp,
    )
    if not row.argument or uow.deferred.get(row.id) is not None:
        return already_decided(uow, event)
    uow.deferred.add(row)
    uow.edit_ref(place, event.message, Message(markdown=DISCARDING))
    return Todo(deferred=(row,))


def _drop(uow: UnitOfWork, event: ButtonClicked, turn: TurnRow, _agent: str) -> Todo:
    if turn.state == "parked":
        drop_parked(uow, turn)
        return Todo()
    if turn.state != "interrupted" or turn.reason == CONTINUED_REASON:
        return already_decided(uow, event)
    text = _question(uow, turn)
    close_turn(uow, turn.id, DROPPED_REASON)
    told = uow.edit_ref(place_of(turn), event.message, decided(text, DROPPED))
    end_turn(uow, turn, "stopped", after=told)
    return Todo()


def _question(uow: UnitOfWork, turn: TurnRow) -> str:
    if turn.reason == STALE:
        return stale_text(words_of(uow, turn))
    if turn.reason == HANDLED:
        return handled_text(words_of(uow, turn))
    if turn.reason == CROWDED:
        return CROWDED_TEXT
    if turn.state == "interrupted":
        return interrupted_text(words_of(uow, turn), turn.result)
    if turn.state == "stopped":
        return stopped_text(words_of(uow, turn))
    return failed_text(turn.result or "")


_HANDLERS: Mapping[str, Callable[[UnitOfWork, ButtonClicked, TurnRow, str], Todo]] = {
    STOP_ACTION: _stop,
    RETRY_ACTION: _retry,
    WAIT_ACTION: _wait,
    UNDO_ACTION: _undo,
    DROP_ACTION: _drop,
    DISCARD_ACTION: _discard,
}


def edited_late(uow: UnitOfWork, event: MessageEdited, request: Request, message: MessageRow) -> Todo:
    """Answer an edit of a message whose turn has started: the answer stands, and the edited text can be asked
    once. The row keeps that text, so the button also works after a restart."""
    turn = uow.turns.get(message.turn_id or "")
    if turn is None:
        return Todo()
    if not isinstance(request, Prompt):
        uow.post(place_of(turn), COMMAND)
        return Todo()
    if not request.text.strip() or (request.text, request.prefix) == (message.content, message.agent):
        return Todo()
    uow.messages.update(message_id(event.channel, event.ref), content=request.text, agent=request.prefix)
    offer = f"{turn.id}-again-{event.ref}"
    if uow.outbox.get(offer) is None:
        uow.post(place_of(turn), edited(turn.state, f"{turn.id}:{event.ref}"), op_id=offer)
    return Todo().logged("MSG", f'{event.user} edited: "{one_line(event.text)}"')


def ask_again(uow: UnitOfWork, config: Config, event: ButtonClicked) -> Todo:
    """Start a new run as if the person who pressed had sent the edited text: same rules, same budget."""
    turn_id, _, ref = event.value.partition(":")
    turn, message = uow.turns.get(turn_id), uow.messages.get(message_id(event.channel, MessageRef(ref)))
    if turn is None or message is None or turn.channel_id != event.channel:
        return no_effect(uow, event)
    if message.turn_id != turn.id:
        return no_effect(uow, event, ONCE)
    agent = agent_for(uow, config, turn.conversation, message.agent)
    decision = may(admitted(event.user), "ask", using(config, event.channel, agent, message.content))
    if not decision.allowed:
        uow.post(place_of(turn), decision.message)
        return Todo().logged("WRN", f"{event.user} may not ask {message.id} again: {decision.reason}")
    if turn.state in LIVE and config.agent.busy == "reject":
        uow.post(place_of(turn), BUSY)
        return Todo()
    return _asked(uow, config, event, turn, message)


def _asked(uow: UnitOfWork, config: Config, event: ButtonClicked, turn: TurnRow, message: MessageRow) -> Todo:
    ref = message.platform_msg_id
    said = Incoming(
        channel=event.channel,
        ref=ref,
        order=message.order,
        root=message.thread or ref,
        user=event.user,
        text=message.content,
        prefix=message.agent,
    )
    uow.messages.update(message_id(event.channel, ref), acked=0, late=0)
    todo = enqueue(uow, config, said)
    uow.edit_ref(place_of(turn), event.message, Message(markdown=AGAIN))
    set_mark(uow, place_of(turn), message, WORKING, remove=True)
    clear_end(uow, place_of(turn), message, turn.state)
    return todo
