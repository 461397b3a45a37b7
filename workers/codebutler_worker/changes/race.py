"""A race: several agents do the same task, each in a worktree of its own, one card compares what they did, and a person
picks one's work.

The agents' runs are ordinary ones, in conversations of their own. The race itself is a deferred command, from its
message to the card that compares them, and then a second one until somebody has decided.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from codebutler.domain.message import (
    DIFF_ACTION,
    DISCARD_RACE_ACTION,
    PICK_RACE_ACTION,
    Button,
    Message,
    said,
)
from codebutler.domain.refs import NO_PERSON, NOWHERE, MessageRef, PersonRef
from codebutler.text.markup import plain, words
from codebutler.text.wording import amount, count, one_line, span
from codebutler_worker.changes.card import CheckResult, file_line, headline, result_line, review_link
from codebutler_worker.present.lines import code
from codebutler_worker.runtime.deferred import sent_as
from codebutler_worker.runtime.turns import prefixes_of, queue_after
from codebutler_worker.store.rows import DeferredRow, TurnRow, channel_of, race_in, racers_conversation
from codebutler_worker.store.unit_of_work import UnitOfWork
from codebutler_worker.tree.tree import Difference

RACE = "race"
"""The command's name."""
_KEY = "race-"
NOBODY = -1
RaceState = Literal["wanted", "running", "checking", "open", "merging", "clearing"]
UNDER_WAY: tuple[RaceState, ...] = ("wanted", "running", "checking")
"""The command's step before its card."""
OVER = ("done", "failed", "stopped")
FILES_SHOWN = 4
ANSWER_CHARS = 500
WHY_CHARS = 300
PICK_ONE = "🏁 Pick one: its work is merged, the other's is discarded."
ONE_LEFT = "🏁 Only one of them changed anything."
UNCHANGED = "It changed no files."
NOT_KNOWN = "⚠️ Its changes are unknown: see the log."
NONE_LEFT = "🏁 Neither of them changed anything."


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
            uow.deferred.go_on(row.id, written(replace(race, is_cut_short=True)))
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
    argument = written(replace(race, state=state, picked=picked, by=user))
    uow.deferred.go_on(row.id, argument)
    return replace(row, argument=argument, attempts=0)


def _races(uow: UnitOfWork) -> list[tuple[DeferredRow, Race]]:
    return [(row, read(row)) for row in uow.deferred.find() if row.name == RACE]


class Work(Struct, frozen=True):
    """All that an agent has changed (None = nothing), and the snapshots between which it lies."""

    found: Difference | None = None
    before: str = ""
    after: str = ""
    is_known: bool = True


class Contender(Struct, frozen=True):
    """One agent's part: its last run, its work, and the checks on that."""

    run: TurnRow
    work: Work
    checked: Checked

    @property
    def can_be_picked(self) -> bool:
        """Whether there is, or may be, anything to continue with."""
        return self.run.state == "done" or self.work.found is not None or not self.work.is_known


def racing_line(agents: Sequence[str]) -> str:
    """A race has begun."""
    return (
        f"🏁 {named(agents)} work on this, each in its own worktree, based on the last commit. "
        "When both have finished, a card compares them."
    )


def finished_line(agents: Sequence[str], checks: Sequence[str] = ()) -> str:
    """The runs have ended; ``checks`` run on each."""
    running = f" Running {', '.join(map(code, checks))} on each …" if checks else ""
    return f"🏁 {named(agents)} have finished.{running}"


def compared(repo: str, entries: Sequence[Contender], redact: Callable[[str], str]) -> Message:
    """The card: each agent's result, and buttons to pick one."""
    able = [each for each in entries if each.can_be_picked]
    head = PICK_ONE if len(able) > 1 else ONE_LEFT if able else NONE_LEFT
    parts = [_part(repo, number, each, redact) for number, each in enumerate(entries, start=1)]
    buttons = [button for each in able for button in _buttons(each)]
    buttons += [Button("Discard both", DISCARD_RACE_ACTION, able[0].run.id, "danger")] if able else []
    return said("\n\n".join([head, *parts]), *buttons)


def _buttons(entry: Contender) -> list[Button]:
    name, run_id = prefixes_of(entry.run.agent)[-1], entry.run.id
    diff = [Button(f"Diff {name}", DIFF_ACTION, run_id)] if entry.work.found else []
    return [*diff, Button(f"Pick {name}", PICK_RACE_ACTION, run_id, "primary")]


def _part(repo: str, number: int, entry: Contender, redact: Callable[[str], str]) -> str:
    run, found = entry.run, entry.work.found
    lines = [f"**{number}. {named([run.agent])}** · {_outcome(run)}"]
    if run.state != "done" and (why := one_line(redact(run.result or ""), WHY_CHARS)):
        lines.append(f"> {plain(why)}")
    if found is None:
        lines.append(UNCHANGED if entry.work.is_known else NOT_KNOWN)
    else:
        lines += [f"{headline(found)}{review_link(repo, run.id)}", *map(file_line, found.files[:FILES_SHOWN])]
        more = len(found.files) - FILES_SHOWN
        lines += [f"… and {count(more, 'more file')}"] if more > 0 else []
    lines += [*map(result_line, entry.checked.results), *filter(None, [entry.checked.note])]
    if run.state == "done" and (text := one_line(words(redact(run.result or "")), ANSWER_CHARS)):
        lines.append(f"> {plain(text)}")
    return "\n".join(lines)


def _outcome(run: TurnRow) -> str:
    """``✅ done in 2m05s · $0.12``."""
    if run.started_at is None:
        return "⏹️ did not start"
    end = datetime.fromisoformat(run.finished_at or run.started_at)
    seconds = run.worked_s or (end - datetime.fromisoformat(run.started_at)).total_seconds()
    how = {"done": "✅ done in", "failed": "❌ failed after"}.get(run.state, "🛑 stopped after")
    tokens = run.input_tokens + run.output_tokens
    cost = amount("tokens", tokens) if tokens else ""
    if run.cost_usd is not None:
        cost = amount("usd", run.cost_usd)
    return " · ".join(part for part in (f"{how} {span(seconds)}", cost) if part)


def named(agents: Sequence[str]) -> str:
    """`` `claude` and `kimi` ``, as people name them."""
    return " and ".join(code(prefixes_of(agent)[-1]) for agent in agents)
