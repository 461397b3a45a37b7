"""The line of queued turns: which of them starts next, and the places of those that have to wait."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from codebutler_worker.conversation.line.marks import show_queued
from codebutler_worker.desk.draft import Draft, iso, place_of
from codebutler_worker.present import progress
from codebutler_worker.store.rows import TurnRow

MARK_AFTER_S = 1.0


@dataclass(frozen=True, slots=True)
class Choice:
    """What to start now, and after how many seconds the next one falls due (None = none will by itself)."""

    start: tuple[TurnRow, ...]
    next_due_s: float | None


@dataclass(frozen=True, slots=True)
class Apart:
    """Agents that take none of the others' room, but ``room`` of their own: the programs."""

    agents: frozenset[str]
    room: int


def choose(
    queued: Sequence[TurnRow],
    busy: Collection[str],
    now: datetime,
    *,
    debounce_s: float,
    room: int,
    apart: Apart | None = None,
) -> Choice:
    """Oldest first, one per conversation, in each conversation in order, ``room`` at most. Pure.

    A turn whose time lies further ahead than any debounce could put it is due: the clock was set back.
    """
    taken = set(busy)
    start: list[TurnRow] = []
    due_in_s: list[float] = []
    rooms = {False: room, True: apart.room if apart else 0}
    for turn in queued:
        if turn.conversation in taken:
            continue
        taken.add(turn.conversation)
        wait_s = _seconds_until(turn.not_before, now)
        if 0 < wait_s <= debounce_s + 1:
            due_in_s.append(wait_s)
            continue
        aside = apart is not None and turn.agent in apart.agents
        if rooms[aside] > 0:
            rooms[aside] -= 1
            start.append(turn)
    return Choice(tuple(start), min(due_in_s, default=None))


def _seconds_until(moment: str, now: datetime) -> float:
    if not moment or moment <= iso(now):
        return 0.0
    return (datetime.fromisoformat(moment) - now) / timedelta(seconds=1)


def in_line(
    queued: Sequence[TurnRow],
    busy: Collection[str],
    now: datetime,
    *,
    room: int,
    apart: Apart | None = None,
) -> list[TurnRow]:
    """Those that could not start even if they were due, in order. Pure."""
    due = [replace(turn, not_before="") for turn in queued]
    starting = {turn.id for turn in choose(due, busy, now, debounce_s=0, room=room, apart=apart).start}
    return [turn for turn in queued if turn.id not in starting]


@dataclass(frozen=True, slots=True)
class Shown:
    """What of a turn's waiting is shown: its mark, and its place (0 = not yet). It is not kept over a restart, which
    shows every place once more."""

    marked: bool = False
    place: int = 0


def tell_waiting(
    draft: Draft, line: Sequence[TurnRow], shown: Mapping[str, Shown], places_after_s: float | None
) -> tuple[dict[str, Shown], float | None]:
    """Mark who has waited for a moment, and tell who has waited longer their place in their own thread, None = nobody;
    returns what is shown now, and after how many seconds there is more to show.

    The message becomes the turn's progress message when it starts.
    """
    told: dict[str, Shown] = {}
    ahead_s: list[float] = []
    for number, turn in enumerate(line, start=1):
        waited_s = _waited_s(turn, draft.now)
        before = shown.get(turn.id, Shown())
        marked, place = before.marked, before.place
        if not marked and waited_s >= MARK_AFTER_S:
            show_queued(draft, turn)
            marked = True
        if places_after_s is not None and waited_s >= places_after_s:
            place = min(number, progress.FAR + 1)
            _tell_place(draft, turn, place, before.place)
        told[turn.id] = Shown(marked, place)
        limits_s = (MARK_AFTER_S, places_after_s or 0)
        ahead_s += [limit_s - waited_s for limit_s in limits_s if limit_s > waited_s]
    return told, min(ahead_s, default=None)


def _tell_place(draft: Draft, turn: TurnRow, place: int, told: int) -> None:
    message = progress.in_line(place, turn.id)
    if turn.progress_op_id is None:
        posted = draft.post(place_of(turn), message, value="progress")
        draft.uow.turns.update(turn.id, progress_op_id=posted)
    elif told != place:
        draft.edit(place_of(turn), turn.progress_op_id, message)


def _waited_s(turn: TurnRow, now: datetime) -> float:
    """Since it could have begun, had there been room; a moment for one whose time a clock that was set back has put
    far ahead."""
    since = max(turn.not_before, turn.created_at)
    waited_s = (now - datetime.fromisoformat(since)) / timedelta(seconds=1)
    return max(waited_s, -MARK_AFTER_S)
