"""The rows of a race: several agents do the same task, each in a worktree of its own, and a person picks one's work.

The agents' runs are ordinary ones, in conversations of their own. The race itself is a deferred command, from its
message to the card that compares them, and then a second one until somebody has decided.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Literal

import msgspec
from msgspec import Struct

from codebutler.domain.refs import NO_PERSON, NOWHERE, MessageRef, PersonRef
from codebutler_worker.changes.card import CheckResult
from codebutler_worker.changes.undo import queue_after
from codebutler_worker.runtime.deferred import sent_as
from codebutler_worker.store.rows import (
    DeferredRow,
    TurnRow,
    channel_of,
    race_in,
    racers_conversation,
)
from codebutler_worker.store.unit_of_work import UnitOfWork

RACE = "race"
"""The command's name."""
_KEY = "race-"
NOBODY = -1
RaceState = Literal["wanted", "running", "checking", "open", "merging", "clearing"]
UNDER_WAY: tuple[RaceState, ...] = ("wanted", "running", "checking")
"""The command's step before its card."""
OVER = ("done", "failed", "stopped")


class Checked(Struct, frozen=True, omit_defaults=True):
    """The results of the checks on one agent's work; ``note``: why there are none."""

    results: tuple[CheckResult, ...] = ()
    note: str = ""


class Race(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A race and its progress. ``key`` names it. ``agents``: those that a person named or, once it runs, all of them.
    ``checked``: the results for the first of them so far; ``is_cut_short``: a person has stopped the checks.
    ``picked``: the number of the agent that ``by`` has picked; ``verdict``: what the card says about that."""

    key: str
    task: str
    state: RaceState = "wanted"
    agents: tuple[str, ...] = ()
    checked: tuple[Checked, ...] = ()
    is_cut_short: bool = False
    picked: int = NOBODY
    by: PersonRef = NO_PERSON
    verdict: str = ""

    @property
    def decision(self) -> str:
        """The command that waits for somebody to decide."""
        return f"{_KEY}{self.key}"

    @property
    def card(self) -> str:
        """The operation that posts the card."""
        return sent_as(self.decision, "card")

    def message(self, number: int) -> MessageRef:
        """The key of the message that gives an agent the task."""
        return MessageRef(f"{_KEY}{self.key}-{number}")

    def conversations(self, main: str) -> tuple[str, ...]:
        """The conversations of its agents; ``main`` is the one in which the race is held."""
        return tuple(racers_conversation(main, self.key, number) for number in range(len(self.agents)))


def written(race: Race) -> str:
    """As a command's argument."""
    return msgspec.json.encode(race).decode()


def read(row: DeferredRow) -> Race:
    """The race that the command is about."""
    return msgspec.json.decode(row.argument, type=Race)


def queue_runs(uow: UnitOfWork, command: DeferredRow, race: Race) -> None:
    """Queue one run for each agent."""
    for number, conversation in enumerate(race.conversations(command.conversation)):
        agent = race.agents[number]
        about = TurnRow(
            id="",
            conversation=conversation,
            channel_id=channel_of(command.conversation),
            thread=command.thread or NOWHERE,
            agent=agent,
            created_at=uow.stamp,
        )
        queue_after(uow, about, agent, race.message(number), race.task, command.user_id)


def last_runs(uow: UnitOfWork, command: DeferredRow, race: Race) -> list[TurnRow]:
    """Each agent's newest run."""
    return [run for each in race.conversations(command.conversation) for run in uow.turns.newest(1, each)]


def are_over(runs: Collection[TurnRow]) -> bool:
    """Whether all have ended. One that was interrupted waits until a person has continued or dropped it."""
    return all(run.state in OVER for run in runs)


def was_picked(uow: UnitOfWork, turn: TurnRow) -> bool:
    """Whether it is a run of an agent whose work in a race was merged."""
    return not race_in(turn.conversation) and any(
        message.key.startswith(_KEY) for message in uow.messages.of_turn(turn.id)
    )


def is_racing(uow: UnitOfWork, conversation: str) -> bool:
    """Whether an agent works there in a race whose card is not posted yet."""
    key = race_in(conversation)
    return bool(key) and any(race.key == key and race.state in UNDER_WAY for _, race in _races(uow))


def due_races(uow: UnitOfWork, working: Collection[str]) -> list[DeferredRow]:
    """Those whose next step can be taken; ``working``: conversations in which an agent still runs, whatever the store
    says."""
    due = []
    for row, race in _races(uow):
        if race.state == "running":
            at_work = set(race.conversations(row.conversation)) & set(working)
            if at_work or not are_over(last_runs(uow, row, race)):
                continue
        if race.state != "open":
            due.append(row)
    return due


def stop_race_checks(uow: UnitOfWork, conversation: str | None) -> tuple[str, ...]:
    """Compare the agents of a conversation (None = of all) without the rest of their checks; returns the commands that
    have to start over."""
    stopped = []
    for row, race in _races(uow):
        if race.state == "checking" and conversation in (None, row.conversation):
            uow.deferred.go_on(row.id, written(msgspec.structs.replace(race, is_cut_short=True)))
            stopped.append(row.id)
    return tuple(stopped)


def undecided(uow: UnitOfWork, conversation: str) -> tuple[DeferredRow, Race] | None:
    """The race whose card has an agent with that conversation, until somebody has decided."""
    key = race_in(conversation)
    found = ((row, race) for row, race in _races(uow) if race.key == key and race.state not in UNDER_WAY)
    return next(found, None)


def decide(uow: UnitOfWork, row: DeferredRow, race: Race, picked: int, user: PersonRef) -> DeferredRow:
    """Have one agent's work merged (NOBODY's: all discarded); returns the command that does it."""
    state: RaceState = "clearing" if picked == NOBODY else "merging"
    argument = written(msgspec.structs.replace(race, state=state, picked=picked, by=user))
    uow.deferred.go_on(row.id, argument)
    return replace(row, argument=argument, attempts=0)


def _races(uow: UnitOfWork) -> list[tuple[DeferredRow, Race]]:
    return [(row, read(row)) for row in uow.deferred.all() if row.name == RACE]
