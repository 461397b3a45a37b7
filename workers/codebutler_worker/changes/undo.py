"""Undoes what a run changed. Undoing is a turn too: it is queued, recorded and recovered like any other, and can
itself be undone.

The rows of a race: several agents do the same task, each in a worktree of its own, and a person picks one's work.

The agents' runs are ordinary ones, in conversations of their own. The race itself is a deferred command, from its
message to the card that compares them, and then a second one until somebody has decided.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from codebutler.config.programs import UNDO
from codebutler.domain.errors import CodeButlerError
from codebutler.domain.message import said
from codebutler.domain.refs import NO_PERSON, NOWHERE, MessageRef, PersonRef
from codebutler.text.markup import plain
from codebutler.text.wording import count
from codebutler_worker.agents.backend import AgentBackend, AgentEvent, Finished, ToolUse, TurnRequest
from codebutler_worker.changes.card import CheckResult
from codebutler_worker.present.notices import ALREADY_UNDONE, UNDO_BUSY, UNDOING, undone_text
from codebutler_worker.runtime.deferred import sent_as
from codebutler_worker.runtime.turns import LIVE, words_of
from codebutler_worker.store.rows import (
    DeferredRow,
    MessageRow,
    TurnRow,
    channel_of,
    message_id,
    race_in,
    racers_conversation,
)
from codebutler_worker.store.unit_of_work import ThreadPlace, UnitOfWork
from codebutler_worker.tree.tree import Tree

LOOKED_AT = 50
_UNDO_KEY = "undo-"
WORDS_CHARS = 60
UNKNOWN = "I no longer know what to undo: say `!undo` again."


def undo_key(turn_id: str) -> MessageRef:
    """The key of the message that asks to undo a turn: there is at most one."""
    return MessageRef(f"{_UNDO_KEY}{turn_id}")


def changed_by(newest: Iterable[TurnRow]) -> TurnRow | None:
    """The first of these turns that changed (or, if its worker died, may have changed) the working tree."""
    return next((turn for turn in newest if _changed(turn)), None)


def _changed(turn: TurnRow) -> bool:
    return turn.tree_before is not None and turn.tree_after != turn.tree_before


def to_put_back(uow: UnitOfWork, turn: TurnRow) -> tuple[str, str | None] | None:
    """For an undoing turn: the commits between which the change lies."""
    for message in uow.messages.find(turn_id=turn.id):
        undone = uow.turns.get(message.id.partition(f":{_UNDO_KEY}")[2])
        if undone is not None and undone.tree_before is not None:
            return undone.tree_before, undone.tree_after
    return None


def undo(uow: UnitOfWork, turn: TurnRow, user: PersonRef, place: ThreadPlace, card: MessageRef) -> None:
    """Queue the undo of ``turn``, once, and say so on its card at ``card`` in ``place``. Nothing else may be running:
    it could be writing."""
    key = undo_key(turn.id)
    if turn.tree_before is None or uow.messages.get(message_id(turn.channel_id, key)) is not None:
        uow.post(place, ALREADY_UNDONE)
        return
    if uow.turns.find(state=LIVE):
        uow.post(place, UNDO_BUSY)
        return
    words = words_of(uow, turn, WORDS_CHARS) or "…"
    queue_after(uow, replace(turn, thread=place.thread or NOWHERE), UNDO, key, f"undo: {words}", user)
    uow.edit_ref(place, card, said(UNDOING.format(words=plain(words))))


def queue_after(
    uow: UnitOfWork, turn: TurnRow, agent: str, key: MessageRef, text: str, user: PersonRef
) -> None:
    """Queue a turn of ``agent`` about another turn, in its thread, for ``user``."""
    give_task(uow, follow_up(uow, turn, agent, user), key, text, agent)


def give_task(uow: UnitOfWork, turn: TurnRow, key: MessageRef, text: str, agent: str | None = None) -> None:
    """Write the message that asks for the turn; it is not shown in the chat. ``key`` identifies it. If it names the
    ``agent``, no other one may answer."""
    uow.messages.add(
        MessageRow(
            id=message_id(turn.channel_id, key),
            from_id=turn.user_id,
            channel_id=turn.channel_id,
            content=text,
            timestamp=uow.stamp,
            thread=turn.thread,
            turn_id=turn.id,
            agent=agent,
        )
    )


def follow_up(
    uow: UnitOfWork,
    turn: TurnRow,
    agent: str,
    user: PersonRef,
    *,
    reason: str | None = None,
    attempts: int = 0,
) -> TurnRow:
    """Queue a turn of ``agent`` that follows another one, in its thread and on ``user``'s account."""
    queued = TurnRow(
        id=uuid.uuid4().hex,
        conversation=turn.conversation,
        channel_id=turn.channel_id,
        thread=turn.thread,
        agent=agent,
        created_at=uow.stamp,
        not_before=uow.stamp,
        reason=reason,
        user_id=user,
        attempts=attempts,
        job=turn.job,
    )
    uow.turns.add(queued)
    return queued


class UndoBackend(AgentBackend):
    """Restores what changed between the two commits of ``TurnRequest.put_back``. It has no sessions."""

    name = "undo"

    def __init__(self, tree: Callable[[Path], Awaitable[Tree]]) -> None:
        self._tree = tree
        self._under_way: set[asyncio.Task[Finished]] = set()

    async def start(self, turn: TurnRequest) -> AsyncGenerator[AgentEvent]:
        """Run the turn. A partial undo would be worse than a complete one, so once started it is not stopped."""
        yield ToolUse(turn.turn_id, "Undo", " ".join(turn.prompt.split())[:80])
        task = asyncio.create_task(self._undo(turn), name=f"undo of {turn.turn_id}")
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        yield await asyncio.shield(task)

    async def close(self) -> None:
        """Wait for what has started."""
        await asyncio.gather(*self._under_way, return_exceptions=True)

    async def _undo(self, turn: TurnRequest) -> Finished:
        if turn.put_back is None:
            return Finished(ok=False, text=UNKNOWN, reason="failed")
        try:
            found = await (await self._tree(turn.workdir)).put_back(*turn.put_back, "apply")
        except CodeButlerError as error:
            return Finished(ok=False, text=f"Nothing was undone: {error}.", reason="failed")
        if not found.undone:
            text = f"Nothing was undone: {count(len(found.left), 'file')} changed since."
            return Finished(ok=False, text=text, reason="failed")
        return Finished(ok=True, text=undone_text(found), reason="done")


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
    return [
        run
        for each in race.conversations(command.conversation)
        for run in uow.turns.find(newest=1, conversation=each)
    ]


def are_over(runs: Collection[TurnRow]) -> bool:
    """Whether all have ended. One that was interrupted waits until a person has continued or dropped it."""
    return all(run.state in OVER for run in runs)


def was_picked(uow: UnitOfWork, turn: TurnRow) -> bool:
    """Whether it is a run of an agent whose work in a race was merged."""
    return not race_in(turn.conversation) and any(
        message.key.startswith(_KEY) for message in uow.messages.find(turn_id=turn.id)
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
    return [(row, read(row)) for row in uow.deferred.find() if row.name == RACE]
