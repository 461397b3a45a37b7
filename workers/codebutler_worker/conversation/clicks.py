"""What a click on one of our buttons does, and the edit of a message whose run has begun. A decision is taken once,
however often a button is clicked."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from codebutler.config.permission import Action, admitted, may
from codebutler.config.schema import Config
from codebutler.domain.message import ASK_AGAIN_ACTION, DROP_ACTION, RETRY_ACTION, STOP_ACTION, Message
from codebutler.domain.model import ButtonClicked, MessageEdited, Prompt, Request
from codebutler.text.markup import plain
from codebutler_worker.conversation.deciding import DECISIONS, already_decided, decide_click, no_effect
from codebutler_worker.conversation.marks import WORKING, clear_end, clear_mark, end_turn
from codebutler_worker.conversation.messages import BUSY, Incoming, is_crowded, take_in
from codebutler_worker.conversation.parked import (
    CONTINUED_REASON,
    DROPPED_REASON,
    LIMITS,
    carry_on,
    drop_parked,
    end_parking,
)
from codebutler_worker.conversation.queue import CROWDED, HANDLED, STALE, close_turn, withdraw_turn
from codebutler_worker.conversation.undo import undo
from codebutler_worker.memory import keeping
from codebutler_worker.present.lines import one_line
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
from codebutler_worker.runtime.turns import LIVE, Todo, agent_name, talks, using, words_of
from codebutler_worker.store.rows import MessageRow, TurnRow
from codebutler_worker.store.unit_of_work import ThreadPlace, UnitOfWork, place_of

STOPPED_REASON = "stopped"
_NEEDING: Mapping[str, Action] = {RETRY_ACTION: "continue", UNDO_ACTION: "undo"}
ONCE = (
    "You have already asked again: the answer is in this thread. To ask once more, edit your message again."
)


def click(uow: UnitOfWork, config: Config, event: ButtonClicked) -> Todo:
    """Do what the button says. A button for another channel's turn, or for an unknown one, does nothing, and says so.

    To continue or undo is to use the turn's agent, which the rules may not grant to whoever clicks; the parent, which
    let the click in, does not know the turn.
    """
    if event.action_id in DECISIONS:
        return decide_click(uow, config, event)
    if event.action_id == ASK_AGAIN_ACTION:
        return ask_again(uow, config, event)
    if event.action_id in keeping.DECISIONS:
        return keeping.decide(uow, config, event)
    handler = _HANDLERS.get(event.action_id)
    turn_id, _, other = event.value.partition(ANOTHER)
    turn = uow.turns.get(turn_id) if handler else None
    if handler is None or turn is None or turn.channel_id != event.channel:
        return no_effect(uow, event)
    agent = agent_name(config, other) if other else turn.agent
    if other and not talks(config, agent):
        # A shell would take as a command what was asked of an agent.
        return Todo().logged("WRN", f"{event.user} pressed a button that its card does not have")
    if action := _NEEDING.get(event.action_id):
        decision = may(admitted(event.user), action, using(config, event.channel, agent))
        if not decision.allowed:
            uow.post(place_of(turn), decision.told, value="notice")
            return Todo().logged("WRN", f"{event.user} may not {action} a turn of {turn.agent}")
    if event.action_id == RETRY_ACTION and turn.reason == CROWDED and is_crowded(uow, config, event.user):
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
    go_on(uow, turn, event.user, event.message_ts, agent)
    return Todo()


def can_go_on(turn: TurnRow) -> bool:
    """Whether a person may continue a turn that is over, or that waits for its agent's service."""
    if turn.reason == CONTINUED_REASON:
        return turn.state == "parked"
    stopped = turn.state == "stopped" and turn.reason == STOPPED_REASON
    waits = turn.state in ("interrupted", "parked")
    return stopped or waits or (turn.state == "failed" and turn.reason in LIMITS)


def go_on(uow: UnitOfWork, turn: TurnRow, user: str, asked_ts: str | None = None, agent: str = "") -> None:
    """Queue a turn that goes on with one for which ``can_go_on`` holds, with another ``agent`` if one is named. The
    message that offered it, at ``asked_ts`` or found here, says so."""
    if turn.state == "parked":
        carry_on(uow, turn, user, agent=agent)
        other = agent not in ("", turn.agent)
        end_parking(uow, turn, f"▶ Continued on {plain(agent)}." if other else CONTINUED)
        return
    text = _question(uow, turn)
    card = uow.outbox.last_offer(turn.id, RETRY_ACTION) if asked_ts is None else None
    follow_up = carry_on(uow, turn, user, agent=agent)
    uow.turns.update(turn.id, reason=CONTINUED_REASON)
    for message in uow.messages.of_turn(follow_up.id):
        clear_end(uow, place_of(follow_up), message, turn.state)
    if asked_ts := asked_ts or (card.ts if card else None):
        uow.edit_ts(place_of(follow_up), asked_ts, decided(text, CONTINUED))


def _undo(uow: UnitOfWork, event: ButtonClicked, turn: TurnRow, _agent: str) -> Todo:
    undo(
        uow,
        turn,
        event.user,
        ThreadPlace(turn.conversation, event.thread_ts or event.message_ts),
        event.message_ts,
    )
    return Todo()


def _drop(uow: UnitOfWork, event: ButtonClicked, turn: TurnRow, _agent: str) -> Todo:
    if turn.state == "parked":
        drop_parked(uow, turn)
        return Todo()
    if turn.state != "interrupted" or turn.reason == CONTINUED_REASON:
        return already_decided(uow, event)
    text = _question(uow, turn)
    close_turn(uow, turn.id, DROPPED_REASON)
    told = uow.edit_ts(place_of(turn), event.message_ts, decided(text, DROPPED))
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
    UNDO_ACTION: _undo,
    DROP_ACTION: _drop,
}


def edited_late(uow: UnitOfWork, event: MessageEdited, request: Request, message: MessageRow) -> Todo:
    """Tell what happens to the edit of a message whose turn has begun."""
    turn = uow.turns.get(message.turn_id or "")
    if turn is None:
        return Todo()
    if not isinstance(request, Prompt):
        uow.post(place_of(turn), COMMAND)
        return Todo()
    if not request.text.strip() or (request.text, request.prefix) == (message.content, message.agent):
        return Todo()
    uow.messages.set_text(event.channel, event.ts, request.text)
    uow.messages.set_agent(event.channel, event.ts, request.prefix)
    offer = f"{turn.id}-again-{event.ts}"
    if uow.outbox.get(offer) is None:
        uow.post(place_of(turn), edited(turn.state, f"{turn.id}:{event.ts}"), op_id=offer)
    return Todo().logged("MSG", f'{event.user} edited: "{one_line(event.text)}"')


def ask_again(uow: UnitOfWork, config: Config, event: ButtonClicked) -> Todo:
    """Start a new run as if whoever pressed had sent the edited text: under the same rules, on their account."""
    turn_id, _, ts = event.value.partition(":")
    turn, message = uow.turns.get(turn_id), uow.messages.get(event.channel, ts)
    if turn is None or message is None or turn.channel_id != event.channel:
        return no_effect(uow, event)
    if message.turn_id != turn.id:
        return no_effect(uow, event, ONCE)
    agent = agent_name(config, message.agent)
    decision = may(admitted(event.user), "ask", using(config, event.channel, agent, message.content))
    if not decision.allowed:
        uow.post(place_of(turn), decision.told)
        return Todo().logged("WRN", f"{event.user} may not ask {message.id} again: {decision.reason}")
    if turn.state in LIVE and config.agent.busy == "reject":
        uow.post(place_of(turn), BUSY)
        return Todo()
    return _asked(uow, config, event, turn, message)


def _asked(uow: UnitOfWork, config: Config, event: ButtonClicked, turn: TurnRow, message: MessageRow) -> Todo:
    ts = message.platform_msg_id
    said = Incoming(
        channel=event.channel,
        ts=ts,
        order=message.order,
        thread_ts=None if message.thread_ts == ts else message.thread_ts,
        user=event.user,
        text=message.content,
        prefix=message.agent,
    )
    uow.messages.renew(event.channel, ts)
    todo = take_in(uow, config, said)
    uow.edit_ts(place_of(turn), event.message_ts, Message(markdown=AGAIN))
    clear_mark(uow, place_of(turn), message, WORKING)
    clear_end(uow, place_of(turn), message, turn.state)
    return todo
