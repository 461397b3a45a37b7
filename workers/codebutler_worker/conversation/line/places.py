"""The line of queued turns: which of them starts next, and the places of those that have to wait."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from codebutler_worker.desk.draft import Draft, iso, place_of
from codebutler_worker.present import progress
from codebutler_worker.store.rows import TurnRow


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


def tell_places(draft: Draft, line: Sequence[TurnRow], told: Mapping[str, int]) -> dict[str, int]:
    """Post or edit each one's place in its own thread; returns the places as they are told now.

    The post becomes the turn's progress message when it starts. ``told`` is what was told before; it is not kept
    over a restart, which tells every place once more.
    """
    places = {turn.id: min(number, progress.FAR + 1) for number, turn in enumerate(line, start=1)}
    for turn in line:
        message = progress.in_line(places[turn.id], turn.id)
        if turn.progress_op_id is None:
            posted = draft.post(place_of(turn), message, value="progress")
            draft.uow.turns.update(turn.id, progress_op_id=posted)
        elif told.get(turn.id) != places[turn.id]:
            draft.edit(place_of(turn), turn.progress_op_id, message)
    return places
