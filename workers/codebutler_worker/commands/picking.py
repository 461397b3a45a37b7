"""The decision about a race: one agent's work is merged and its session continues in the thread; the others' work is
removed.

Git finishes before a step is committed, so a worker that retries one finds it done.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from msgspec.structs import replace

from codebutler.config.permission import admitted, may
from codebutler.config.schema import Config, RepoSettings
from codebutler.domain.errors import CodeButlerError
from codebutler.domain.message import PICK_RACE_ACTION, Message, said
from codebutler.domain.model import ButtonClicked
from codebutler.platform.kill_points import reached
from codebutler.text.markup import plain
from codebutler.text.wording import one_line
from codebutler_worker.agents.backend import Usage
from codebutler_worker.changes.evidence import with_trailers
from codebutler_worker.changes.pending import posted_as
from codebutler_worker.changes.race import (
    ANSWER_CHARS,
    NOBODY,
    Race,
    decide,
    last_runs,
    named,
    undecided,
    written,
)
from codebutler_worker.commands.changes import commit_message
from codebutler_worker.commands.choices import save_choice
from codebutler_worker.commands.terminal import SHARED, TerminalSessions
from codebutler_worker.commands.worktrees import conflict_text, merge_line
from codebutler_worker.conversation.deciding import already_decided
from codebutler_worker.conversation.workdir import ask_to_resolve, is_busy
from codebutler_worker.present.lines import person
from codebutler_worker.present.progress import answer as answer_parts
from codebutler_worker.present.progress import footer
from codebutler_worker.runtime.deferred import Also, CommandReply
from codebutler_worker.runtime.runtime import Runtime
from codebutler_worker.runtime.turns import LIVE, Todo, using
from codebutler_worker.store.rows import DeferredRow, SessionRow, TurnRow
from codebutler_worker.store.unit_of_work import ThreadPlace, UnitOfWork
from codebutler_worker.tree.merging import Merged, merge
from codebutler_worker.tree.worktrees import KEPT_DAYS, existing

MERGING = "⏳ Merging the work of {name} …"
DISCARDING = "⏳ Discarding …"
NOT_MERGED = "❌ The work of {name} was not merged: {why}."
PICK_AGAIN = "press *Pick* again"
PICKED = "✅ {who} picked {name}. {what}."
DISCARDED = "🗑️ {who} discarded all the work."
NO_FILES = "It changed no files, so there was nothing to merge"
CONTINUES = "Replies in this thread continue with it."
BRANCH_KEPT = "Removed the work of {name}; for {days} days `git branch NAME {ref}` restores it."
NOT_REMOVED = "⚠️ The worktree of {name} was not removed: {why}."


def pick(uow: UnitOfWork, settings: RepoSettings, turn: TurnRow, event: ButtonClicked) -> Todo:
    """Carry out what a button of a race's card says, once. To discard takes permission for each agent."""
    race_row = undecided(uow, turn.conversation)
    if race_row is None or race_row[1].state != "open":
        return already_decided(uow, event)
    row, race = race_row
    place = ThreadPlace(row.conversation, row.thread)
    number, verdict = NOBODY, DISCARDING
    if event.action_id == PICK_RACE_ACTION:
        number = race.conversations(row.conversation).index(turn.conversation)
        verdict = MERGING.format(name=named([turn.agent]))
    for agent in race.agents if number == NOBODY else ():
        decision = may(admitted(event.user), "merge", using(settings.config, event.channel, agent))
        if not decision.allowed:
            uow.post(place, decision.message, value="notice")
            return Todo().logged("WRN", f"{event.user} may not discard the work of {agent}")
    _update_card(uow, place, race, verdict)
    return Todo(deferred=(decide(uow, row, race, number, event.user),))


def _update_card(uow: UnitOfWork, place: ThreadPlace, race: Race, *verdicts: str) -> None:
    """Show the outcome on the card; without verdicts, show its buttons again."""
    card = posted_as(uow, race.card) or Message()
    message = said("\n\n".join([card.markdown, "\n".join(verdicts)])) if verdicts else card
    uow.edit(place, race.card, message, value="notice")


async def merge_picked(runtime: Runtime, command: DeferredRow, race: Race) -> CommandReply:
    """Merge what was picked. A conflict becomes its agent's next task, and the card waits for another press."""
    conversation = race.conversations(command.conversation)[race.picked]
    run = (await runtime.commit(lambda uow: last_runs(uow, command, race)))[race.picked]
    config, merged = runtime.settings.config, None
    message = commit_message(runtime.redactor.redact(race.task))
    message = with_trailers(message, config.git.trailers, run)
    try:
        trees = await runtime.agents.worktrees()
        if existing(trees.repo, conversation) is not None:
            busy = partial(is_busy, runtime, conversation, LIVE)
            merged = await merge(trees, conversation, message, busy)
            reached("race.merged")
    except CodeButlerError as error:
        why = NOT_MERGED.format(name=named([run.agent]), why=plain(one_line(str(error), 500)))
        return _reopen(race, partial(_report_failure, race=race, text=why))
    if merged is not None and merged.conflicts:
        resolve = partial(_resolve_conflicts, settings=runtime.settings, race=race, run=run, merged=merged)
        return _reopen(race, resolve)
    outcome = merge_line(merged) if merged is not None else NO_FILES
    verdict = PICKED.format(who=person(race.by), name=named([run.agent]), what=outcome)
    if _has_thread(config, command):
        verdict = f"{verdict} {CONTINUES}"
    picked = replace(race, state="clearing", verdict=verdict)
    session_id = await _move_session(runtime, command, run)
    also = partial(_adopt_run, config=config, race=picked, run=run, session_id=session_id)
    return CommandReply(then=written(picked), also=also)


def _has_thread(config: Config, command: DeferredRow) -> bool:
    """Whether there is a conversation that can continue: a slash command has none."""
    return command.thread is not None or config.agent.scope == "channel"


def _reopen(race: Race, also: Also) -> CommandReply:
    return CommandReply(ok=False, then=written(replace(race, state="open")), waits=True, also=also)


def _report_failure(uow: UnitOfWork, command: DeferredRow, *, race: Race, text: str) -> None:
    place = ThreadPlace(command.conversation, command.thread)
    _update_card(uow, place, race)
    uow.post(place, text, mention=race.by, value="notice")


def _resolve_conflicts(
    uow: UnitOfWork,
    command: DeferredRow,
    *,
    settings: RepoSettings,
    race: Race,
    run: TurnRow,
    merged: Merged,
) -> None:
    """Ask the agent to resolve the conflicts, once for each of its runs: after that, the conflicts are different
    ones."""
    task = replace(command, id=f"{command.id}-{run.id}", conversation=run.conversation, user_id=race.by)
    passed_on = ask_to_resolve(uow, settings, task, merged)
    text = conflict_text(merged, passed_on=passed_on, again=PICK_AGAIN)
    _report_failure(uow, command, race=race, text=text)


async def _move_session(runtime: Runtime, command: DeferredRow, run: TurnRow) -> str:
    """The agent's session as the thread can resume it; "" if it cannot."""
    if run.agent not in SHARED or not run.session_id:
        return run.session_id or ""
    try:
        terminal = TerminalSessions(runtime.settings, runtime.agents.home)
        return await terminal.moved(run.agent, run.session_id, run.conversation, command.conversation)
    except CodeButlerError as error:
        runtime.log("WRN", f"cannot continue the session of {run.agent}: {error}")
        return ""


def _adopt_run(
    uow: UnitOfWork,
    command: DeferredRow,
    *,
    config: Config,
    race: Race,
    run: TurnRow,
    session_id: str,
) -> None:
    """From now on its runs are the thread's."""
    place = ThreadPlace(command.conversation, command.thread)
    if _has_thread(config, command):
        uow.turns.change({"conversation": command.conversation}, conversation=run.conversation)
        _continue_session(uow, command, run, session_id)
        agent = "" if run.agent == config.agent.default else run.agent
        save_choice(uow, command.conversation, agent=agent)
    _update_card(uow, place, race, race.verdict)
    text = run.result or ""
    if len(text) > ANSWER_CHARS or "\n" in text.strip():
        usage = Usage(run.input_tokens, run.output_tokens, run.cost_usd, run.agent_turns)
        footer_line, limit = footer(usage, run.worked_s, run.agent), config.output.max_chars_per_message
        for part in answer_parts(text, footer_line, command.thread, limit, redact=uow.redact):
            uow.add(place, part)


def _continue_session(uow: UnitOfWork, command: DeferredRow, run: TurnRow, session_id: str) -> None:
    used = uow.sessions.get(run.conversation, run.agent)
    if not session_id:
        return
    uow.sessions.put(
        SessionRow(
            conversation=command.conversation,
            channel_id=run.channel_id,
            thread=run.thread,
            agent=run.agent,
            session_id=session_id,
            updated_at=uow.stamp,
            total_cost_usd=used.total_cost_usd if used else 0.0,
        )
    )


async def remove_worktrees(runtime: Runtime, command: DeferredRow, race: Race) -> CommandReply:
    """Remove the worktrees. What was not merged is kept for a while, and the card says where."""
    verdicts = []
    for number, conversation in enumerate(race.conversations(command.conversation)):
        if existing(Path(runtime.settings.path), conversation) is None:
            continue
        name = named([race.agents[number]])
        try:
            trees = await runtime.agents.worktrees()
            fingerprint = await trees.fingerprint(await trees.state(conversation, await trees.target()))
            busy = partial(is_busy, runtime, conversation, LIVE)
            ref = await trees.discard(conversation, busy, runtime.clock.now(), fingerprint)
        except CodeButlerError as error:
            verdicts.append(NOT_REMOVED.format(name=name, why=plain(one_line(str(error), 300))))
        else:
            if number != race.picked:
                verdicts.append(BRANCH_KEPT.format(name=name, days=KEPT_DAYS, ref=ref))
    reached("race.cleared")
    head = race.verdict or DISCARDED.format(who=person(race.by))
    place = ThreadPlace(command.conversation, command.thread)
    return CommandReply(also=lambda uow, _: _update_card(uow, place, race, head, *verdicts))
