"""Parks turns whose agent's service refused them, and resumes them later; marks turns that were running when
the worker ended as interrupted, and asks in their threads.

When to resume, and how often, follows from what the agent said and from the turn's row, so it survives a
restart. A person may resume sooner, also with another agent, or drop it. Resuming queues a new turn, since an
agent run is never repeated. In a store restored from a backup, waiting turns do not start by themselves
either.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from codebutler.config.schema import Config
from codebutler.domain.errors import CodeButlerError
from codebutler.domain.message import said
from codebutler.domain.refs import ConversationRef, PersonRef
from codebutler.platform.backups import Restored
from codebutler.protocol.messages import Audit
from codebutler_worker.agents.backend import Finished
from codebutler_worker.agents.session_logs import session_of
from codebutler_worker.agents.survey import Survey
from codebutler_worker.conversation.approvals import NOT_RUN, close_all
from codebutler_worker.conversation.marks import end_turn, show_waiting
from codebutler_worker.conversation.queue import CROWDED, HANDED_OVER, HANDLED, STALE, never_started
from codebutler_worker.present.notices import (
    DROPPED,
    RESTARTING,
    RESUMED,
    asking_text,
    decided,
    interrupted,
    parked_text,
    program_interrupted,
)
from codebutler_worker.present.progress import SIGNS
from codebutler_worker.runtime.runtime import Runtime
from codebutler_worker.runtime.turns import LIVE, agent_name, audit_of, follow_up, move, talks, words_of
from codebutler_worker.store.rows import TurnRow
from codebutler_worker.store.unit_of_work import ThreadPlace, UnitOfWork, place_of

CONTINUED_REASON = "continued"
LIMIT = "limit"
RESTARTED = "restarted"
"""The reason of a turn that ended for a restart: the next worker resumes it if that was within this time:"""
RESTART_S = 900.0
ASKED = "limit asked"
"""Parked until a person says how to continue: no time resumes it."""
LIMITS = ("max_turns", "timeout", "stalled", "auth", "limit", "overloaded")
"""Failures that can be continued once their cause is gone."""
DROPPED_REASON = "dropped"
OVERLOAD_PAUSES_S = (30.0, 120.0, 300.0)
"""How long to wait before each new attempt, after the agent's own retries."""
MOST_PARKINGS = 5
MOST_OTHERS = 3
SURVEY_S = 5.0
SOONEST_S = 30.0
LATEST_S = 8 * 86_400.0
"""A weekly limit and one more day; no service means a later time."""
LOOK_AGAIN_S = 10.0
"""The longest sleep before the clock is checked again: it may be set, and the machine may sleep."""


def carry_on(
    uow: UnitOfWork, turn: TurnRow, user: PersonRef, *, agent: str = "", attempts: int = 0
) -> TurnRow:
    """Queue a turn that continues ``turn`` on ``user``'s account, and move its messages there.

    ``agent``: another one than before. The caller decides what becomes of ``turn`` itself.
    """
    if turn.reason == ASKED:
        show_waiting(uow, turn, over=True)
    why = _why(turn)
    reason = HANDED_OVER if why == LIMIT and agent not in ("", turn.agent) else why
    queued = follow_up(uow, turn, agent or turn.agent, user, reason=reason, attempts=attempts)
    uow.messages.change({"turn_id": queued.id}, turn_id=turn.id)
    return queued


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
    """When to resume a turn that ended so; None if a person has to. Pure.

    ``attempts``: how often it was parked before.
    """
    match finished.reason:
        case "overloaded" if attempts < len(OVERLOAD_PAUSES_S):
            return now + timedelta(seconds=OVERLOAD_PAUSES_S[attempts])
        case "limit" if finished.resets_at_s is not None and attempts < MOST_PARKINGS:
            wait_s = finished.resets_at_s - now.timestamp()
            # Also false for NaN.
            return now + timedelta(seconds=max(wait_s, SOONEST_S)) if wait_s <= LATEST_S else None
    return None


def others(surveys: Sequence[Survey], agent: str, config: Config) -> tuple[str, ...]:
    """The agents that could continue instead of ``agent``, by prefix. Pure."""
    return tuple(name for name in able(surveys, config) if agent_name(config, name) != agent)[:MOST_OTHERS]


def able(surveys: Sequence[Survey], config: Config) -> tuple[str, ...]:
    """The agents that could work now, by prefix. Pure.

    The rehearsal agent understands plain sentences only: it is offered if the configuration names it.
    """
    named = {rule.prefix for rule in config.commands} | {config.agent.default}
    fit = [each.prefix for each in surveys if each.ready and talks(config, agent_name(config, each.prefix))]
    return tuple(name for name in fit if name != "rehearsal" or name in named)


async def surveyed(runtime: Runtime) -> tuple[Survey, ...]:
    """The state of each agent, looked up now; none if that takes too long."""
    try:
        async with asyncio.timeout(SURVEY_S):
            return await runtime.agents.survey()
    except (TimeoutError, CodeButlerError) as error:
        runtime.log("DBG", f"no other agent is offered: {error!r}")
        return ()


def resume_due(uow: UnitOfWork, parked: Sequence[TurnRow]) -> tuple[float | None, list[TurnRow]]:
    """Resume every parked turn that is due; returns the seconds until the next check (None if none is
    parked), and the others."""
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
    """The turn no longer waits: store why, and show it on its card. Returns the operation that does, if any."""
    state = move(turn.state, "stop")
    uow.turns.update(turn.id, state=state, reason=reason, finished_at=uow.stamp)
    if turn.progress_op_id is None:
        return None
    at = datetime.fromisoformat(turn.not_before) if turn.not_before else None
    if turn.reason == ASKED:
        text = asking_text(turn.result or "", at)
    else:
        text = parked_text(turn.result or "", at or uow.now.astimezone(UTC))
    return uow.edit(place_of(turn), turn.progress_op_id, decided(text, verdict), value="notice")


def drop_parked(uow: UnitOfWork, turn: TurnRow) -> None:
    """It is no longer wanted: end it."""
    if turn.reason == ASKED:
        show_waiting(uow, turn, over=True)
    told = end_parking(uow, turn, DROPPED, DROPPED_REASON)
    end_turn(uow, turn, "stopped", after=told)


def leave_for_restart(uow: UnitOfWork, config: Config) -> None:
    """Running turns end for a restart: tell their threads, and let the next worker resume them. Only agents that read
    prose are resumed: an undo that began is not repeated automatically."""
    for turn in uow.turns.find(state=LIVE):
        if talks(config, turn.agent) and turn.reason != RESTARTED:
            uow.turns.update(turn.id, reason=RESTARTED, not_before=uow.stamp)
            uow.post(place_of(turn), RESTARTING, value="notice")


def _was_left_for_us(turn: TurnRow, now: datetime) -> bool:
    """Whether a restart ended it, and recently: after longer a person decides. Pure."""
    if turn.reason != RESTARTED:
        return False
    left_s = (now - datetime.fromisoformat(turn.not_before)).total_seconds()
    return abs(left_s) <= RESTART_S


def recover(uow: UnitOfWork, programs: frozenset[str] = frozenset()) -> list[Audit]:
    """Mark turns that were running as interrupted, and ask; or resume those that ended for a restart. Returns the
    record of each.

    A turn of ``programs`` has failed: a command cannot be continued, and a click must not run it twice.
    """
    records = []
    found = uow.turns.find(state=LIVE)
    for turn in found:
        words, decision = words_of(uow, turn), ""
        close_all(uow, turn.id, NOT_RUN)
        is_program = turn.agent in programs
        goes_on = not is_program and _was_left_for_us(turn, uow.now)
        state = move(turn.state, "fail" if is_program else "interrupt")
        uow.turns.update(turn.id, state=state, finished_at=uow.stamp)
        place = place_of(turn)
        if turn.progress_op_id:
            shown = "🔄 stopped for a restart" if goes_on else f"{SIGNS['interrupted']} interrupted"
            uow.edit(place, turn.progress_op_id, said(shown))
        if is_program:
            last = uow.post(place, program_interrupted(words, session_of(turn.id)))
            end_turn(uow, turn, "failed", after=last)
        elif goes_on:
            carry_on(uow, replace(turn, state=state), turn.user_id)
            uow.turns.update(turn.id, reason=CONTINUED_REASON)
            decision = RESTARTED
        else:
            end_turn(uow, turn, "interrupted")
            asked = interrupted(turn.id, words, turn.result)
            uow.post(place, asked, mention=turn.user_id)
        records.append(audit_of(turn, words, decision or state))
    return records


def after_restore(uow: UnitOfWork, restored: Restored, channel_id: ConversationRef) -> None:
    """A turn queued in the backup may have been answered since: it counts as started, so that recovery asks instead of
    running it again or resuming it. The channel is notified once."""
    for turn in uow.turns.find(state=LIVE):
        uow.turns.update(turn.id, reason=None)
    for turn in uow.turns.find(state=("queued", "parked")):
        uow.turns.update(turn.id, state=move(turn.state, "start"), started_at=uow.stamp)
    uow.post(ThreadPlace(f"{channel_id}:", None), restored_text(restored), value="notice")


def restored_text(restored: Restored) -> str:
    """The notice for the people in the channel."""
    aside = f" The damaged file is kept as `{restored.aside.name}`." if restored.aside else ""
    return (
        f"⚠️ This repository's store was {'damaged' if restored.aside else 'lost'} and was restored from "
        f"the backup of {restored.taken_at:%Y-%m-%d %H:%M} UTC. Everything since then is lost: threads "
        f"started since then start over. Resend messages that still show ⏳ or 👀 or got no answer.{aside}"
    )
