"""The queue of turns that have not started: which starts next, the places of those that wait, and withdrawing.

A turn above a budget is parked until the next day. No message is lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from codebutler.config.programs import uses_model
from codebutler.config.schema import Config
from codebutler.domain.clock import zone_of
from codebutler.domain.message import said
from codebutler.domain.refs import ConversationRef, MessageRef
from codebutler.protocol.messages import TotalUse
from codebutler_worker.conversation.marks import MARK_AFTER_S, QUEUED, end_turn, show
from codebutler_worker.present import progress
from codebutler_worker.present.notices import parked
from codebutler_worker.runtime.budget import account_of, end_of, used_today, used_up, used_up_text
from codebutler_worker.runtime.turns import move
from codebutler_worker.store.rows import MessageRow, TurnRow, main_conversation, message_id, race_in
from codebutler_worker.store.unit_of_work import UnitOfWork, iso, place_of

WITHDRAWN = "withdrawn"
STEERED = "steered"
HELD = "held"
NOT_RUN: Mapping[str, str] = {
    STEERED: "↪ Passed on to the running agent.",
    WITHDRAWN: "🛑 Withdrawn.",
    HELD: "⏸️ Queued with your earlier message.",
}
STALE = "stale"
HANDLED = "handled"
CROWDED = "crowded"
BUDGET = "budget"
HANDED_OVER = "handed over"
"""The reason of a turn that continues another agent's, which was refused."""
UNCONFIRMED = (STALE, HANDLED, CROWDED)
"""Why a turn that never started waits until somebody continues it."""


class NextTurns(Struct, frozen=True):
    """What to start now, and the seconds until the next one is due (None = none will be by itself)."""

    start: tuple[TurnRow, ...]
    next_due_s: float | None


class Slots(Struct, frozen=True):
    """How many agents may run at once, and how many ``programs``, which have places of their own. The agents of a race
    share a place."""

    agents: int
    for_programs: int = 0
    programs: frozenset[str] = frozenset()


def choose(
    queued: Sequence[TurnRow], busy: Mapping[str, str], now: datetime, slots: Slots, *, debounce_s: float
) -> NextTurns:
    """Oldest first, one per conversation, in each conversation in order, as many as have a place; ``busy``: the
    conversations in which an agent runs, and which. Messages in a conversation wait for the race in it. Pure.

    A turn due further ahead than any debounce could put it is due now: the clock was set back.
    """
    occupied, stamp = {*busy, *map(main_conversation, busy)}, iso(now)
    races = {race_in(each) for each in busy} - {""}
    start: list[TurnRow] = []
    due_in_s: list[float] = []
    programs = sum(agent in slots.programs for agent in busy.values())
    agents = len({race_in(each) or each for each in busy}) - programs
    free = {False: slots.agents - agents, True: slots.for_programs - programs}
    for turn in queued:
        if turn.conversation in occupied:
            continue
        occupied |= {turn.conversation, main_conversation(turn.conversation)}
        race, wait_s = race_in(turn.conversation), 0.0
        if turn.not_before > stamp:
            wait_s = (datetime.fromisoformat(turn.not_before) - now) / timedelta(seconds=1)
        if 0 < wait_s <= debounce_s + 1:
            due_in_s.append(wait_s)
        elif race in races:
            start.append(turn)
        elif free[is_program := turn.agent in slots.programs] > 0:
            free[is_program] -= 1
            races |= {race} - {""}
            start.append(turn)
    return NextTurns(tuple(start), min(due_in_s, default=None))


def in_line(
    queued: Sequence[TurnRow],
    busy: Mapping[str, str],
    now: datetime,
    slots: Slots,
    started: Sequence[TurnRow] = (),
) -> list[TurnRow]:
    """Turns that have no place even if they were due, once ``started`` of them run; in order. Pure."""
    rest = [turn for turn in queued if turn not in started]
    running = {**busy, **{turn.conversation: turn.agent for turn in started}}
    due = [replace(turn, not_before="") for turn in rest]
    starting = {turn.id for turn in choose(due, running, now, slots, debounce_s=0).start}
    return [turn for turn in rest if turn.id not in starting]


class ShownWait(Struct, frozen=True):
    """How a turn's waiting is shown: its mark, and its place (0 = not yet). Not kept over a restart, which
    shows every place once more."""

    marked: bool = False
    place: int = 0


def tell_waiting(
    uow: UnitOfWork, line: Sequence[TurnRow], shown: Mapping[str, ShownWait], places_after_s: float | None
) -> tuple[dict[str, ShownWait], float | None]:
    """Mark turns that have waited for a moment, and tell those that have waited longer their place, in their
    own thread, None = nobody; returns what is shown now, and the seconds until there is more to show.

    The message becomes the turn's progress message when it starts.
    """
    now_shown: dict[str, ShownWait] = {}
    ahead_s: list[float] = []
    for number, turn in enumerate(line, start=1):
        waited_s = _waited_s(turn, uow.now)
        before = shown.get(turn.id, ShownWait())
        marked, place = before.marked, before.place
        if not marked and waited_s >= MARK_AFTER_S:
            show(uow, turn, QUEUED)
            marked = True
        if places_after_s is not None and waited_s >= places_after_s:
            place = min(number, progress.FAR + 1)
            _tell_place(uow, turn, place, before.place)
        now_shown[turn.id] = ShownWait(marked, place)
        limits_s = (MARK_AFTER_S, places_after_s or 0)
        ahead_s += [limit_s - waited_s for limit_s in limits_s if limit_s > waited_s]
    return now_shown, min(ahead_s, default=None)


def _tell_place(uow: UnitOfWork, turn: TurnRow, place: int, shown: int) -> None:
    message = progress.in_line(place, turn.id)
    if turn.progress_op_id is None:
        posted = uow.post(place_of(turn), message, value="progress")
        uow.turns.update(turn.id, progress_op_id=posted)
    elif shown != place:
        uow.edit(place_of(turn), turn.progress_op_id, message)


def _waited_s(turn: TurnRow, now: datetime) -> float:
    """Since it could have started, given a free place; a moment for a turn that a clock set back has put far
    ahead."""
    since = max(turn.not_before, turn.created_at)
    waited_s = (now - datetime.fromisoformat(since)) / timedelta(seconds=1)
    return max(waited_s, -MARK_AFTER_S)


def withdraw_message(uow: UnitOfWork, message: MessageRow) -> None:
    """Take a message out of a turn that has not started; a turn without messages is over."""
    turn_id = message.turn_id
    uow.messages.update(message_id(message.channel_id, message.key), turn_id=None)
    if turn_id is not None and not uow.messages.find(turn_id=turn_id):
        close_turn(uow, turn_id, WITHDRAWN)


def withdraw_turn(uow: UnitOfWork, turn: TurnRow) -> None:
    """Stop a turn that has not started."""
    close_turn(uow, turn.id, "stopped")
    end_turn(uow, turn, "stopped")


def close_turn(uow: UnitOfWork, turn_id: str, reason: str) -> None:
    """Write a turn that will not run (or run on) as stopped."""
    turn = uow.turns.get(turn_id)
    if turn is not None:
        if turn.state in ("queued", "parked") and turn.progress_op_id:
            words = NOT_RUN.get(reason, NOT_RUN[WITHDRAWN])
            uow.edit(place_of(turn), turn.progress_op_id, said(words))
        state = move(turn.state, "stop")
        uow.turns.update(turn_id, state=state, finished_at=uow.stamp, reason=reason)


def waiting_turn(
    uow: UnitOfWork, channel: ConversationRef, ref: MessageRef
) -> tuple[MessageRow, TurnRow] | None:
    """A message and its turn, if that has not started yet (or asks whether to)."""
    message = uow.messages.get(message_id(channel, ref))
    if message is None or message.turn_id is None:
        return None
    turn = uow.turns.get(message.turn_id)
    waits = turn is not None and (turn.state == "queued" or is_unconfirmed(turn) or never_started(turn))
    return (message, turn) if turn is not None and waits else None


def is_unconfirmed(turn: TurnRow) -> bool:
    """Whether it has not started and needs somebody to continue it."""
    return turn.state == "interrupted" and turn.reason in UNCONFIRMED


def never_started(turn: TurnRow) -> bool:
    """Whether it was parked before it could start."""
    return turn.state == "parked" and turn.started_at is None


def park_for_budget(uow: UnitOfWork, turn: TurnRow, config: Config, elsewhere: TotalUse) -> bool:
    """Whether the queued turn has to wait for a new day or month, or (in a race) ends; if so, stores and announces
    that."""
    if not uses_model(config, turn.agent):
        return False
    line = used_up(used_today(uow, config, account_of(turn), elsewhere))
    if line is None:
        return False
    if race_in(turn.conversation):
        # The other agent's work can be picked today.
        close_turn(uow, turn.id, BUDGET)
        uow.turns.update(turn.id, result=used_up_text(line))
        return True
    show(uow, turn, QUEUED)
    if (earlier := _waits_already(uow, turn)) is not None:
        uow.messages.change({"turn_id": earlier.id}, turn_id=turn.id)
        close_turn(uow, turn.id, HELD)
        return True
    until = end_of(line.period, uow.now, zone_of(config.budget.timezone))
    text = used_up_text(line)
    card = parked(turn.id, text, until, uow.now, ())
    posted = uow.edit(place_of(turn), turn.progress_op_id, card) if turn.progress_op_id else None
    shown = turn.progress_op_id if posted else uow.post(place_of(turn), card)
    uow.turns.update(
        turn.id,
        state=move(turn.state, "park"),
        reason=BUDGET,
        result=text,
        not_before=iso(until),
        progress_op_id=shown,
    )
    return True


def _waits_already(uow: UnitOfWork, turn: TurnRow) -> TurnRow | None:
    """The same person's turn in the same thread that waits for the new day as well: they start as one."""
    same = (turn.conversation, turn.thread, turn.agent, turn.user_id, turn.job)
    for other in uow.turns.find(state="parked"):
        mine = (other.conversation, other.thread, other.agent, other.user_id, other.job)
        if mine == same and other.reason == BUDGET and other.started_at is None:
            return other
    return None
