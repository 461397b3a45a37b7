"""``!race``: the same task for two agents, each in a worktree of its own. One card compares them, and a person picks.

Each step is committed before the next one begins. If a worker dies, the next one repeats the step.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from codebutler.config.permission import admitted, may
from codebutler.config.schema import Check, Config
from codebutler.domain.errors import CodeButlerError
from codebutler.domain.message import Message, said
from codebutler.domain.model import React, TurnOutcome
from codebutler.domain.refs import ConversationRef
from codebutler.platform.kill_points import reached
from codebutler.text.markup import plain
from codebutler.text.wording import one_line
from codebutler_worker.agents.survey import Survey
from codebutler_worker.changes.card import INTERRUPTED, NOT_RUN, STOPPED
from codebutler_worker.changes.checking import checks_of, run_checks
from codebutler_worker.changes.race import (
    RACE,
    Checked,
    Contender,
    Race,
    Work,
    are_over,
    compared,
    finished_line,
    last_runs,
    queue_runs,
    racing_line,
    read,
    written,
)
from codebutler_worker.commands.picking import merge_picked, remove_worktrees
from codebutler_worker.commands.table import Invocation
from codebutler_worker.conversation.marks import END_MARKS, WORKING, set_mark
from codebutler_worker.conversation.messages import Incoming, attachments_of
from codebutler_worker.conversation.parked import able
from codebutler_worker.present.lines import code
from codebutler_worker.present.notices import STILL_CROWDED
from codebutler_worker.runtime.deferred import CommandReply
from codebutler_worker.runtime.runtime import Runtime
from codebutler_worker.runtime.turns import Todo, agent_name, prefixes_of, talks, using
from codebutler_worker.store.rows import DeferredRow, MessageRow, TurnRow, channel_of, key_of, message_id
from codebutler_worker.store.unit_of_work import ThreadPlace, UnitOfWork
from codebutler_worker.tree.tree import AFTER

RACERS = 2
LAST_RESORT = ("native", "rehearsal")
"""The built-in agent races only if no other can."""
SEARCHED_TURNS = 50
_RACE = re.compile(
    r"([a-z][\w-]*)(?:[\s,]+(?:and\s+|vs\.?\s+)?([a-z][\w-]*))?\s*:\s*(\S.*)", re.IGNORECASE | re.DOTALL
)
SAME = "A race needs two different agents: `!race claude kimi: TASK`."
UNKNOWN = "There is no agent {name} here: `!agents` lists them."
NOT_READY = "{name} is not ready here{note}. `!agents` lists the agents that are."
ALONE = "A race needs two agents, and only {name} is ready here. `!agents` shows what the others need."


def parse_race(argument: str, config: Config) -> tuple[tuple[str, ...], str]:
    """The agents that are named before a colon, and the task; no agents if the words there name none. Pure."""
    match = _RACE.fullmatch(argument.strip())
    if match is None:
        return (), argument.strip()
    names = tuple(agent_name(config, name.lower()) for name in match.groups()[:2] if name)
    return (names, match[3].strip()) if any(talks(config, name) for name in names) else ((), argument.strip())


def choose_racers(
    config: Config, requested: Sequence[str], surveys: Sequence[Survey], is_allowed: Callable[[str], bool]
) -> tuple[tuple[str, ...], str]:
    """The agents that race, or why there is no race: those named, otherwise the default one and another that is ready
    and that the person may use, preferably not the built-in one. Pure."""
    found = {agent_name(config, each.prefix): each for each in surveys}
    ready = [agent_name(config, name) for name in able(surveys, config)]
    others = sorted(ready, key=lambda name: (name != config.agent.default, name in LAST_RESORT))
    first = tuple(requested) or (config.agent.default,)
    agents = (*first, *(name for name in others if name not in first and is_allowed(name)))[:RACERS]
    for name in agents:
        if name in found and not found[name].ready:
            note = f": {plain(found[name].note)}" if found[name].note else ""
            return (), NOT_READY.format(name=code(prefixes_of(name)[-1]), note=note)
    if len(agents) < RACERS:
        return (), ALONE.format(name=code(prefixes_of(first[0])[-1]))
    return agents, ""


def run(invocation: Invocation) -> Todo:
    """Deferred: ask the agents whether they are installed."""
    uow, config = invocation.uow, invocation.settings.config
    requested, task = parse_race(invocation.argument, config)
    unknown = next((name for name in requested if not talks(config, name)), None)
    if unknown is not None:
        return invocation.reply(UNKNOWN.format(name=code(unknown)))
    if len(set(requested)) < len(requested):
        return invocation.reply(SAME)
    channel = channel_of(invocation.place.conversation)
    for agent in requested or (config.agent.default,):
        decision = may(admitted(invocation.user), "ask", using(config, channel, agent, task))
        if not decision.allowed:
            return invocation.reply(decision.message)
    if uow.messages.is_crowded(invocation.user, config.agent.queue_per_user):
        return invocation.reply(STILL_CROWDED)
    race = Race(key=uuid.uuid4().hex[:8], task=task, agents=requested)
    _record_request(invocation, race, channel)
    return invocation.defer(written(race))


def _record_request(invocation: Invocation, race: Race, channel: ConversationRef) -> None:
    """The message gets the race's marks, and each agent its files."""
    uow, ref = invocation.uow, key_of(invocation.message, channel)
    if ref and uow.messages.get(message_id(channel, ref)) is None:
        row = MessageRow(
            id=invocation.message,
            from_id=invocation.user,
            channel_id=channel,
            content=invocation.argument,
            timestamp=uow.stamp,
            platform_msg_id=ref,
            thread=invocation.place.thread or ref,
            agent=RACE,
            acked=True,
        )
        uow.messages.add(row)
        set_mark(uow, invocation.place, row, WORKING)
    for number in range(RACERS if invocation.files else 0):
        message = Incoming(
            channel=channel,
            ref=race.message(number),
            root=race.message(number),
            user=invocation.user,
            text=race.task,
            files=invocation.files,
        )
        for file in attachments_of(message):
            uow.attachments.add(file, known="keep")


async def answer(runtime: Runtime, command: DeferredRow) -> CommandReply:
    """The next step."""
    race = read(command)
    match race.state:
        case "wanted":
            return await _start_runs(runtime, command, race)
        case "running":
            return await _await_runs(runtime, command, race)
        case "checking" if len(race.checked) < len(race.agents):
            return await _check(runtime, command, race)
        case "checking":
            return await _compare(runtime, command, race)
        case "merging":
            return await merge_picked(runtime, command, race)
        case "clearing":
            return await remove_worktrees(runtime, command, race)
    return CommandReply(then=command.argument, waits=True)


async def _start_runs(runtime: Runtime, command: DeferredRow, race: Race) -> CommandReply:
    config, channel = runtime.settings.config, channel_of(command.conversation)

    def is_allowed(agent: str) -> bool:
        return may(admitted(command.user_id), "ask", using(config, channel, agent, race.task)).allowed

    try:
        agents, refusal = choose_racers(config, race.agents, await runtime.agents.survey(), is_allowed)
    except CodeButlerError as error:
        agents, refusal = (), f"❌ {plain(one_line(str(error), 300))}"
    if refusal:
        return CommandReply((said(refusal),), ok=False, also=partial(_mark_request, outcome="failed"))
    running = replace(race, state="running", agents=agents)
    return CommandReply(
        line=said(racing_line(agents)),
        then=written(running),
        waits=True,
        also=partial(queue_runs, race=running),
    )


async def _await_runs(runtime: Runtime, command: DeferredRow, race: Race) -> CommandReply:
    """Compare them once all have ended."""
    runs = await runtime.commit(lambda uow: last_runs(uow, command, race))
    if not are_over(runs):
        return CommandReply(then=command.argument, waits=True)
    checks = _enabled_checks(runtime)
    line = said(finished_line(race.agents, [check.name for check in checks])) if checks else None
    return CommandReply(line=line, then=written(replace(race, state="checking")))


def _enabled_checks(runtime: Runtime) -> list[Check]:
    found = checks_of(runtime.settings.config.checks, Path(runtime.settings.path))
    return [check for check in found if check.when != "never"]


async def _check(runtime: Runtime, command: DeferredRow, race: Race) -> CommandReply:
    """Run the checks on the next agent's work; not again if a worker died while they ran."""
    run = (await runtime.commit(lambda uow: last_runs(uow, command, race)))[len(race.checked)]
    checked = Checked()
    if race.is_cut_short:
        checked = Checked(note=STOPPED)
    elif command.attempts:
        checked = Checked(note=INTERRUPTED)
    elif (checks := _enabled_checks(runtime)) and (await _work_of(runtime, run)).found is not None:
        try:
            checked = Checked(tuple(await run_checks(runtime, run, checks)))
            reached("race.checked")
        except CodeButlerError as error:
            checked = Checked(note=NOT_RUN.format(why=plain(one_line(str(error), 300))))
    return CommandReply(then=written(replace(race, checked=(*race.checked, checked))))


async def _work_of(runtime: Runtime, run: TurnRow) -> Work:
    """All that an agent has changed in its worktree."""
    try:
        return await _difference(runtime, run)
    except CodeButlerError as error:
        runtime.log("WRN", f"unknown what {run.agent} changed in a race: {error}")
        return Work(is_known=False)


async def _difference(runtime: Runtime, run: TurnRow) -> Work:
    workdir = await runtime.agents.workdir(run.conversation)
    earlier = await runtime.commit(
        lambda uow: uow.turns.find(newest=SEARCHED_TURNS, conversation=run.conversation)
    )
    before = next((each.tree_before for each in reversed(earlier) if each.tree_before), None)
    if before is None or workdir == Path(runtime.settings.path):
        return Work()
    tree = await runtime.agents.tree(workdir)
    after = await tree.snapshot(f"{run.id}/{AFTER}")
    if after is None:
        return Work(is_known=False)
    found = await tree.difference(before, after.commit, limit_bytes=1)
    return Work(found, before, after.commit) if found.files else Work()


async def _compare(runtime: Runtime, command: DeferredRow, race: Race) -> CommandReply:
    """The card. From now on its buttons decide."""
    runs = await runtime.commit(lambda uow: last_runs(uow, command, race))
    entries = [
        Contender(run, await _work_of(runtime, run), checked)
        for run, checked in zip(runs, race.checked, strict=True)
    ]
    card = compared(runtime.settings.name, entries, runtime.redactor.redact)
    outcomes = {entry.run.state for entry in entries}
    outcome: TurnOutcome = "done" if "done" in outcomes else "failed" if "failed" in outcomes else "stopped"
    also = partial(_post_card, race=replace(race, state="open"), card=card, entries=entries, outcome=outcome)
    return CommandReply(line=said(finished_line(race.agents)), ok=outcome == "done", also=also)


def _post_card(
    uow: UnitOfWork,
    command: DeferredRow,
    *,
    race: Race,
    card: Message,
    entries: Sequence[Contender],
    outcome: TurnOutcome,
) -> None:
    for each in entries:
        if each.work.found is not None:
            uow.turns.update(each.run.id, tree_before=each.work.before, tree_after=each.work.after)
    place = ThreadPlace(command.conversation, command.thread)
    uow.post(place, card, mention=command.user_id, op_id=race.card)
    if card.buttons:
        uow.deferred.add(
            DeferredRow(
                id=race.decision,
                name=RACE,
                argument=written(race),
                conversation=command.conversation,
                thread=command.thread,
                user_id=command.user_id,
                created_at=uow.stamp,
            )
        )
    _mark_request(uow, command, outcome=outcome, after=race.card)


def _mark_request(
    uow: UnitOfWork, command: DeferredRow, *, outcome: TurnOutcome, after: str | None = None
) -> None:
    channel, place = channel_of(command.conversation), ThreadPlace(command.conversation, command.thread)
    ref = key_of(command.id, channel)
    if (message := uow.messages.get(message_id(channel, ref))) is not None:
        uow.add(place, React(target=ref, mark=END_MARKS[outcome], value="outcome"), after)
        set_mark(uow, place, message, WORKING, remove=True, after=after)
