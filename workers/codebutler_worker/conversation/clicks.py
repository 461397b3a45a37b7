"""What a click on one of our buttons does. A decision is taken once, however often it is clicked."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from codebutler.config.permission import Action, admitted, may
from codebutler.config.schema import Config
from codebutler.domain.message import ASK_AGAIN_ACTION, DROP_ACTION, RETRY_ACTION, STOP_ACTION
from codebutler.domain.model import ButtonClicked
from codebutler.text.markup import plain
from codebutler_worker.conversation.asking.deciding import DECISIONS, decide_click
from codebutler_worker.conversation.edits import ask_again
from codebutler_worker.conversation.marks import clear_end, end_turn
from codebutler_worker.conversation.messages import is_crowded
from codebutler_worker.conversation.parked import (
    CONTINUED_REASON,
    DROPPED_REASON,
    LIMITS,
    carry_on,
    drop_parked,
    unpark,
)
from codebutler_worker.conversation.queue import CROWDED, HANDLED, STALE, close_turn, withdraw_turn
from codebutler_worker.conversation.turn.undo import undo
from codebutler_worker.desk.draft import Draft, Place, place_of
from codebutler_worker.desk.naming import agent_name, talks, using
from codebutler_worker.desk.no_effect import already_decided, no_effect
from codebutler_worker.desk.states import LIVE
from codebutler_worker.desk.todo import Todo
from codebutler_worker.memory import keeping
from codebutler_worker.present.lines import one_line
from codebutler_worker.present.notices import (
    ANOTHER,
    CONTINUED,
    CROWDED_TEXT,
    DROPPED,
    STILL_CROWDED,
    decided,
    failed_text,
    handled_text,
    interrupted_text,
    stale_text,
    stopped_text,
)
from codebutler_worker.present.undo import UNDO_ACTION
from codebutler_worker.store.rows import TurnRow

STOPPED_REASON = "stopped"
_NEEDING: Mapping[str, Action] = {RETRY_ACTION: "continue", UNDO_ACTION: "undo"}


def click(draft: Draft, config: Config, event: ButtonClicked) -> Todo:
    """Do what the button says. A button of another channel's turn, or of none we know, does nothing, and says so.

    To continue or undo is to use the turn's agent, which the rules may not grant to whoever clicks; the parent, which
    let the click in, does not know the turn.
    """
    if event.action_id in DECISIONS:
        return decide_click(draft, config, event)
    if event.action_id == ASK_AGAIN_ACTION:
        return ask_again(draft, config, event)
    if event.action_id in keeping.DECISIONS:
        return keeping.decide(draft, config, event)
    handler = _HANDLERS.get(event.action_id)
    turn_id, _, other = event.value.partition(ANOTHER)
    turn = draft.uow.turns.get(turn_id) if handler else None
    if handler is None or turn is None or turn.channel_id != event.channel:
        return no_effect(draft, event)
    agent = agent_name(config, other) if other else turn.agent
    if other and not talks(config, agent):
        # A shell would take as a command what was asked of an agent.
        return Todo().logged("WRN", f"{event.user} pressed a button that its card does not have")
    if action := _NEEDING.get(event.action_id):
        decision = may(admitted(event.user), action, using(config, event.channel, agent))
        if not decision.allowed:
            draft.post(place_of(turn), decision.told, value="notice")
            return Todo().logged("WRN", f"{event.user} may not {action} a turn of {turn.agent}")
    if event.action_id == RETRY_ACTION and turn.reason == CROWDED and is_crowded(draft, config, event.user):
        draft.post(place_of(turn), STILL_CROWDED)
        return Todo()
    return handler(draft, event, turn, agent)


def request_of(draft: Draft, turn: TurnRow) -> str:
    """The first words of what the turn was asked."""
    messages = draft.uow.messages.of_turn(turn.id)
    return one_line(messages[0].content) if messages else ""


def _stop(draft: Draft, _event: ButtonClicked, turn: TurnRow, _agent: str) -> Todo:
    if turn.state == "queued":
        withdraw_turn(draft, turn)
    return Todo(stop=(turn.id,)) if turn.state in LIVE else Todo()


def _retry(draft: Draft, event: ButtonClicked, turn: TurnRow, agent: str) -> Todo:
    if not can_go_on(turn):
        return already_decided(draft, event)
    go_on(draft, turn, event.user, event.message_ts, agent)
    return Todo()


def can_go_on(turn: TurnRow) -> bool:
    """Whether a person may let a turn that is over, or waits for its agent's service, go on."""
    if turn.reason == CONTINUED_REASON:
        return turn.state == "parked"
    stopped = turn.state == "stopped" and turn.reason == STOPPED_REASON
    waits = turn.state in ("interrupted", "parked")
    return stopped or waits or (turn.state == "failed" and turn.reason in LIMITS)


def go_on(draft: Draft, turn: TurnRow, user: str, asked_ts: str | None = None, agent: str = "") -> None:
    """Queue a turn that goes on with one for which ``can_go_on`` holds, with another ``agent`` if one is named. The
    message that offered it, at ``asked_ts`` or found here, says so."""
    if turn.state == "parked":
        carry_on(draft, turn, user, agent=agent)
        other = agent not in ("", turn.agent)
        unpark(draft, turn, f"▶ Continued on {plain(agent)}." if other else CONTINUED)
        return
    text = _question(draft, turn)
    card = draft.uow.outbox.last_offer(turn.id, RETRY_ACTION) if asked_ts is None else None
    follow_up = carry_on(draft, turn, user, agent=agent)
    draft.uow.turns.update(turn.id, reason=CONTINUED_REASON)
    for message in draft.uow.messages.of_turn(follow_up.id):
        clear_end(draft, place_of(follow_up), message, turn.state)
    if asked_ts := asked_ts or (card.ts if card else None):
        draft.edit_ts(place_of(follow_up), asked_ts, decided(text, CONTINUED))


def _undo(draft: Draft, event: ButtonClicked, turn: TurnRow, _agent: str) -> Todo:
    undo(
        draft,
        turn,
        event.user,
        Place(turn.conversation, event.thread_ts or event.message_ts),
        event.message_ts,
    )
    return Todo()


def _drop(draft: Draft, event: ButtonClicked, turn: TurnRow, _agent: str) -> Todo:
    if turn.state == "parked":
        drop_parked(draft, turn)
        return Todo()
    if turn.state != "interrupted" or turn.reason == CONTINUED_REASON:
        return already_decided(draft, event)
    text = _question(draft, turn)
    close_turn(draft, turn.id, DROPPED_REASON)
    told = draft.edit_ts(place_of(turn), event.message_ts, decided(text, DROPPED))
    end_turn(draft, turn, "stopped", after=told)
    return Todo()


def _question(draft: Draft, turn: TurnRow) -> str:
    if turn.reason == STALE:
        return stale_text(request_of(draft, turn))
    if turn.reason == HANDLED:
        return handled_text(request_of(draft, turn))
    if turn.reason == CROWDED:
        return CROWDED_TEXT
    if turn.state == "interrupted":
        return interrupted_text(request_of(draft, turn), turn.result)
    if turn.state == "stopped":
        return stopped_text(request_of(draft, turn))
    return failed_text(turn.result or "")


_HANDLERS: Mapping[str, Callable[[Draft, ButtonClicked, TurnRow, str], Todo]] = {
    STOP_ACTION: _stop,
    RETRY_ACTION: _retry,
    UNDO_ACTION: _undo,
    DROP_ACTION: _drop,
}
