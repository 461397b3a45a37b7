"""Turns whose agent was refused by its service: kept until the service takes it again, then carried on.

When that is and how often is tried are pure decisions over what the agent said and the turn's row; both survive a
restart. A person may carry on sooner, with another agent too, or drop it. To go on is a turn of its own, since an agent
run is never repeated.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from codebutler.config.schema import Config
from codebutler.domain.errors import CodeButlerError
from codebutler_worker.agents.backend import Finished
from codebutler_worker.agents.survey import Survey
from codebutler_worker.conversation.marks import end_turn
from codebutler_worker.conversation.queue import CROWDED, HANDLED, STALE, was_held
from codebutler_worker.desk.desk import Desk
from codebutler_worker.desk.draft import Draft, place_of
from codebutler_worker.desk.naming import agent_name, talks
from codebutler_worker.desk.states import move
from codebutler_worker.present.notices import DROPPED, RESUMED, decided, parked_text
from codebutler_worker.store.rows import TurnRow

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


def carry_on(draft: Draft, turn: TurnRow, user: str, *, agent: str = "", attempts: int = 0) -> TurnRow:
    """Queue a turn that goes on with ``turn`` on ``user``'s account, and move its messages there.

    ``agent``: another one than before. What becomes of ``turn`` itself is the caller's.
    """
    follow_up = TurnRow(
        id=uuid.uuid4().hex,
        conversation=turn.conversation,
        channel_id=turn.channel_id,
        thread_ts=turn.thread_ts,
        agent=agent or turn.agent,
        created_at=draft.stamp,
        not_before=draft.stamp,
        reason=_why(turn),
        user_id=user,
        attempts=attempts,
        job=turn.job,
    )
    draft.uow.turns.add(follow_up)
    for message in draft.uow.messages.of_turn(turn.id):
        draft.uow.messages.attach(message.channel_id, message.key, follow_up.id)
    return follow_up


def _why(turn: TurnRow) -> str:
    """Why the follow-up runs, as its prompt tells the agent."""
    if turn.reason in (CROWDED, HANDLED) or was_held(turn):
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


async def others_than(desk: Desk, agent: str) -> tuple[str, ...]:
    """The same, asked now; none where that takes long."""
    try:
        async with asyncio.timeout(SURVEY_S):
            surveys = await desk.agents.survey()
    except (TimeoutError, CodeButlerError) as error:
        desk.report.log("DBG", f"no other agent is offered: {error!r}")
        return ()
    return others(surveys, agent, desk.settings.config)


def resume_due(draft: Draft, parked: Sequence[TurnRow]) -> tuple[float | None, list[TurnRow]]:
    """Carry on with every parked turn whose time has come; returns the seconds until the next look (None if nothing is
    left to wait for), and the others."""
    waiting = []
    for turn in parked:
        if turn.not_before > draft.stamp:
            waiting.append(turn)
        else:
            carry_on(draft, turn, turn.user_id, attempts=turn.attempts)
            unpark(draft, turn, RESUMED)
    due_s = [(datetime.fromisoformat(turn.not_before) - draft.now).total_seconds() for turn in waiting]
    return max(1.0, min(LOOK_AGAIN_S, *due_s)) if due_s else None, waiting


def unpark(draft: Draft, turn: TurnRow, verdict: str, reason: str = CONTINUED_REASON) -> str | None:
    """The turn waits no more: write why, and say it on its card. Returns the operation that says it, if any does."""
    state = move(turn.state, "stop")
    draft.uow.turns.update(turn.id, state=state, reason=reason, finished_at=draft.stamp)
    if turn.progress_op_id is None:
        return None
    at = datetime.fromisoformat(turn.not_before) if turn.not_before else draft.now.astimezone(UTC)
    told = decided(parked_text(turn.result or "", at), verdict)
    return draft.edit(place_of(turn), turn.progress_op_id, told, value="notice")


def drop_parked(draft: Draft, turn: TurnRow) -> None:
    """Nobody wants it any more."""
    told = unpark(draft, turn, DROPPED, DROPPED_REASON)
    end_turn(draft, turn, "stopped", after=told)
