"""Before a turn: one for which a budget leaves no room is parked until the next day. Nothing that was asked is lost."""

from __future__ import annotations

from codebutler.config.schema import Config
from codebutler.config.zones import zone_of
from codebutler_worker.budget.rules import account_of, counts, day_of, used_today, used_up, used_up_text
from codebutler_worker.conversation.line.incoming import key_of
from codebutler_worker.conversation.line.marks import show_queued
from codebutler_worker.conversation.line.withdrawing import BUDGET, HELD, close_turn
from codebutler_worker.desk.draft import Draft, iso, place_of
from codebutler_worker.desk.states import move
from codebutler_worker.present.notices import parked
from codebutler_worker.store.rows import TurnRow


def hold(draft: Draft, turn: TurnRow, config: Config) -> bool:
    """Whether the queued turn has to wait for a new day; then that is written and said."""
    if not counts(turn.agent, config):
        return False
    line = used_up(used_today(draft, config, account_of(turn)))
    if line is None:
        return False
    show_queued(draft, turn)
    if (earlier := _waits_already(draft, turn)) is not None:
        for message in draft.uow.messages.of_turn(turn.id):
            draft.uow.messages.attach(message.channel_id, key_of(message), earlier.id)
        close_turn(draft, turn.id, HELD)
        return True
    _, until = day_of(draft.now, zone_of(config.budget.timezone))
    text = used_up_text(line)
    card = parked(turn.id, text, until, draft.now, ())
    posted = draft.edit(place_of(turn), turn.progress_op_id, card) if turn.progress_op_id else None
    shown = turn.progress_op_id if posted else draft.post(place_of(turn), card)
    draft.uow.turns.update(
        turn.id,
        state=move(turn.state, "park"),
        reason=BUDGET,
        result=text,
        not_before=iso(until),
        progress_op_id=shown,
    )
    return True


def _waits_already(draft: Draft, turn: TurnRow) -> TurnRow | None:
    """The same person's turn of the same thread that waits for the new day, too: they begin it as one."""
    same = (turn.conversation, turn.thread_ts, turn.agent, turn.user_id, turn.job)
    for other in draft.uow.turns.in_states("parked"):
        mine = (other.conversation, other.thread_ts, other.agent, other.user_id, other.job)
        if mine == same and other.reason == BUDGET and other.started_at is None:
            return other
    return None
