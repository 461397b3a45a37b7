"""Turns whose agent was refused by its service are parked until the service takes it again, then continued; turns that
were running when the worker ended are interrupted, and their threads ask what to do.

When to continue, and how often, follows from what the agent said and from the turn's row, so it survives a restart. A
person may continue sooner, with another agent too, or drop it. To continue is a turn of its own, since an agent run is
never repeated. In a store that was restored from a backup nothing that waits is started by itself, either.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from codebutler.config.schema import Config
from codebutler.domain.errors import CodeButlerError
from codebutler.domain.message import said
from codebutler.platform.backups import Restored
from codebutler.protocol.messages import Audit
from codebutler_worker.agents.backend import Finished
from codebutler_worker.agents.record import session_of
from codebutler_worker.agents.survey import Survey
from codebutler_worker.conversation.approvals import NOT_RUN, close_all
from codebutler_worker.conversation.marks import end_turn
from codebutler_worker.conversation.queue import CROWDED, HANDLED, STALE, never_started
from codebutler_worker.present.notices import (
    DROPPED,
    RESUMED,
    decided,
    interrupted,
    parked_text,
    program_interrupted,
)
from codebutler_worker.present.progress import SIGNS
from codebutler_worker.runtime.runtime import Runtime
from codebutler_worker.runtime.turns import LIVE, agent_name, audit_of, move, talks, words_of
from codebutler_worker.store.rows import TurnRow
from codebutler_worker.store.unit_of_work import ThreadPlace, UnitOfWork, place_of

CONTINUED_REASON = "continued"
LIMIT = "limit"
LIMITS = ("max_turns", "timeout", "stalled", "auth", "limit", "overloaded")
"""Failures after which there is something to go on with, once their cause is gone."""
DROPPED_REASON = "dropped"
OVERLOAD_PAUSES_S = (30.0, 120.0, 300.0)
"""After the agent's own retries."""
MOST_PARKINGS = 5
MOST_OTHERS = 3
SURVEY_S = 5.0
SOONEST_S = 30.0
LATEST_S = 8 * 86_400.0
"""A week's limit, and a day more; a later time is no time that a service would say."""
LOOK_AGAIN_S = 10.0
"""The longest sleep before the clock is looked at again: it may be set, and the machine may sleep."""


def carry_on(uow: UnitOfWork, turn: TurnRow, user: str, *, agent: str = "", attempts: int = 0) -> TurnRow:
    """Queue a turn that goes on with ``turn`` on ``user``'s account, and move its messages there.

    ``agent``: another one than before. What becomes of ``turn`` itself is the caller's.
    """
    follow_up = TurnRow(
        id=uuid.uuid4().hex,
        conversation=turn.conversation,
        channel_id=turn.channel_id,
        thread_ts=turn.thread_ts,
        agent=agent or turn.agent,
        created_at=uow.stamp,
        not_before=uow.stamp,
        reason=_why(turn),
        user_id=user,
        attempts=attempts,
        job=turn.job,
    )
    uow.turns.add(follow_up)
    uow.messages.move(turn.id, follow_up.id)
    return follow_up


def _why(turn: TurnRow) -> str:
    """Why the follow-up runs, as its prompt tells the agent."""
    if turn.reason in (CROWDED, HANDLED) or never_started(turn):
        return ""
    if turn.state == "interrupted":
        return STALE if turn.reason == STALE else "interrupted"
    if turn.state == "stopped":
        return "stopped" if turn.started_at else ""
    return LIMIT


def resume_at(finished: Finished, attempts: int, now: datetime) -> datetime | None:
    """When to carry on with a turn that ended so; None if not by itself. Pure.

    ``attempts``: how often it was parked before.
    """
    match finished.reason:
        case "overloaded" if attempts < len(OVERLOAD_PAUSES_S):
            return now + timedelta(seconds=OVERLOAD_PAUSES_S[attempts])
        case "limit" if finished.resets_at_s is not None and attempts < MOST_PARKINGS:
            wait_s = finished.resets_at_s - now.timestamp()
            # Also false for what is no number.
            return now + timedelta(seconds=max(wait_s, SOONEST_S)) if wait_s <= LATEST_S else None
    return None


def others(surveys: Sequence[Survey], agent: str, config: Config) -> tuple[str, ...]:
    """The agents that could go on in the place of ``agent``, by their prefixes. Pure.

    The rehearsal agent understands plain sentences only: it is offered where the configuration names it.
    """
    named = {rule.prefix for rule in config.commands} | {config.agent.default}
    able = [survey.prefix for survey in surveys if survey.ready]
    fit = [
        name for name in able if talks(config, agent_name(config, name)) and agent_name(config, name) != agent
    ]
    return tuple(name for name in fit if name != "rehearsal" or name in named)[:MOST_OTHERS]


async def others_than(runtime: Runtime, agent: str) -> tuple[str, ...]:
    """The same, asked now; none where that takes long."""
    try:
        async with asyncio.timeout(SURVEY_S):
            surveys = await runtime.agents.survey()
    except (TimeoutError, CodeButlerError) as error:
        runtime.log("DBG", f"no other agent is offered: {error!r}")
        return ()
    return others(surveys, agent, runtime.settings.config)


def resume_due(uow: UnitOfWork, parked: Sequence[TurnRow]) -> tuple[float | None, list[TurnRow]]:
    """Carry on with every parked turn whose time has come; returns the seconds until the next look (None if nothing is
    left to wait for), and the others."""
    waiting = []
    for turn in parked:
        if turn.not_before > uow.stamp:
            waiting.append(turn)
        else:
            carry_on(uow, turn, turn.user_id, attempts=turn.attempts)
            end_parking(uow, turn, RESUMED)
    due_s = [(datetime.fromisoformat(turn.not_before) - uow.now).total_seconds() for turn in waiting]
    return max(1.0, min(LOOK_AGAIN_S, *due_s)) if due_s else None, waiting


def end_parking(uow: UnitOfWork, turn: TurnRow, verdict: str, reason: str = CONTINUED_REASON) -> str | None:
    """The turn waits no more: write why, and say it on its card. Returns the operation that says it, if any does."""
    state = move(turn.state, "stop")
    uow.turns.update(turn.id, state=state, reason=reason, finished_at=uow.stamp)
    if turn.progress_op_id is None:
        return None
    at = datetime.fromisoformat(turn.not_before) if turn.not_before else uow.now.astimezone(UTC)
    told = decided(parked_text(turn.result or "", at), verdict)
    return uow.edit(place_of(turn), turn.progress_op_id, told, value="notice")


def drop_parked(uow: UnitOfWork, turn: TurnRow) -> None:
    """It is no longer wanted: end it."""
    told = end_parking(uow, turn, DROPPED, DROPPED_REASON)
    end_turn(uow, turn, "stopped", after=told)


def recover(uow: UnitOfWork, programs: frozenset[str] = frozenset()) -> list[Audit]:
    """Mark what was running as interrupted, and ask. Returns the record of each such turn.

    A turn of ``programs`` has failed: a command cannot be gone on with, and nobody shall run it twice by a click.
    """
    records = []
    found = uow.turns.in_states(*LIVE)
    for turn in found:
        close_all(uow, turn.id, NOT_RUN)
        is_program = turn.agent in programs
        state = move(turn.state, "fail" if is_program else "interrupt")
        uow.turns.update(turn.id, state=state, finished_at=uow.stamp)
        place = place_of(turn)
        if turn.progress_op_id:
            uow.edit(place, turn.progress_op_id, said(f"{SIGNS['interrupted']} interrupted"))
        if is_program:
            last = uow.post(place, program_interrupted(words_of(uow, turn), session_of(turn.id)))
            end_turn(uow, turn, "failed", after=last)
        else:
            end_turn(uow, turn, "interrupted")
            asked = interrupted(turn.id, words_of(uow, turn), turn.result)
            uow.post(place, asked, mention=turn.user_id)
        records.append(audit_of(turn, words_of(uow, turn), state))
    return records


def after_restore(uow: UnitOfWork, restored: Restored, channel_id: str) -> None:
    """What waits in the backup may have been answered since: it counts as started, so that recovery asks
    instead of running it (again). The channel is told once."""
    for turn in uow.turns.in_states("queued", "parked"):
        uow.turns.update(turn.id, state=move(turn.state, "start"), started_at=uow.stamp)
    uow.post(ThreadPlace(channel_id, None), restored_text(restored), value="notice")


def restored_text(restored: Restored) -> str:
    """What the people in the channel have to know."""
    aside = f" The damaged file is kept as `{restored.aside.name}`." if restored.aside else ""
    return (
        f"⚠️ This repository's store was {'damaged' if restored.aside else 'lost'} and is restored from the "
        f"backup of {restored.taken_at:%Y-%m-%d %H:%M} UTC. What was said here since then is lost: "
        f"threads started later begin anew, and a message that still shows ⏳ or 👀 must be sent again.{aside}"
    )
