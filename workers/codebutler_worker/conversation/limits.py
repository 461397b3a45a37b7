"""What follows when an agent's usage limit is hit (``agent.onLimit``): its turn waits for the reset, a person is asked,
or another agent takes over.

The turn that was handed over keeps the time of the reset. Until then, messages that name no agent go to the successor
as well; after it, to the first agent again. All of it follows from the rows, so a restart changes nothing, and a turn
that was refused never runs again: another one continues it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from codebutler.config.permission import admitted, may
from codebutler.config.programs import successor_of
from codebutler.config.schema import Config
from codebutler.domain.refs import ConversationRef, PersonRef
from codebutler_worker.agents.backend import Finished
from codebutler_worker.agents.survey import Survey
from codebutler_worker.conversation.approvals import requesters_of
from codebutler_worker.conversation.parked import ASKED, LIMIT, carry_on, others, resume_at, surveyed
from codebutler_worker.conversation.queue import QUEUED, WORKING, set_mark, show, show_waiting
from codebutler_worker.present.notices import answers_instead, asking, cannot_take_over, parked, taken_over
from codebutler_worker.runtime.runtime import Runtime
from codebutler_worker.runtime.turns import agent_name, move, prefixes_of, talks, using
from codebutler_worker.store.rows import TurnRow
from codebutler_worker.store.unit_of_work import UnitOfWork, place_of


@dataclass(frozen=True, slots=True)
class Hold:
    """A turn on hold. ``until``: when it resumes or, if somebody is asked (``asks``) or another agent continues, when
    the limit resets, None = unknown. ``others``: the agents that could continue instead; ``successor``: the one that
    does, at once; ``may_wait``: whether a person may let it wait for the reset."""

    until: datetime | None
    others: tuple[str, ...] = ()
    asks: bool = False
    successor: str = ""
    may_wait: bool = True


async def after_refusal(runtime: Runtime, turn: TurnRow, finished: Finished) -> tuple[Finished, Hold | None]:
    """The hold for a turn that its agent's service refused, None if the turn has failed; and its end, which says why
    the agent that should take over does not."""
    until = resume_at(finished, turn.attempts, runtime.clock.now())
    config = runtime.settings.config
    if finished.reason != LIMIT:
        instead = others(await surveyed(runtime), turn.agent, config) if until else ()
        return finished, Hold(until, instead) if until else None
    people = await runtime.store.run(lambda uow: requesters_of(uow, turn))
    return at_limit(config, turn, finished, until, await surveyed(runtime), people)


def at_limit(
    config: Config,
    turn: TurnRow,
    finished: Finished,
    until: datetime | None,
    surveys: Sequence[Survey],
    people: Collection[PersonRef],
) -> tuple[Finished, Hold | None]:
    """The same for a usage limit that resets at ``until``. Pure."""
    agent, settings = agent_name(config, successor_of(config)), config.agent
    if successor_of(config) and agent != turn.agent:
        why = _objection(config, turn, agent, surveys, people)
        if not why:
            return finished, Hold(until, successor=agent)
        told = cannot_take_over(prefixes_of(agent)[-1], why)
        finished = replace(finished, text=f"{finished.text.rstrip('.')}. {told}")
    asks = settings.on_limit == "ask"
    if until is None and not asks:
        return finished, None
    instead = others(surveys, turn.agent, config)
    may_wait = settings.resume_at_reset
    return finished, Hold(until, instead, asks=asks or not may_wait, may_wait=may_wait)


def _objection(
    config: Config, turn: TurnRow, agent: str, surveys: Sequence[Survey], people: Collection[PersonRef]
) -> str:
    """Why the agent cannot take the turn over, "" if it can."""
    if not talks(config, agent):
        return "it is not an agent here"
    found = next((one for one in surveys if one.prefix == prefixes_of(agent)[-1]), None)
    if found is not None and not found.ready:
        return found.note or "it does not work here now"
    if not _may_use(config, turn.channel_id, agent, people):
        return "not everybody who asked may use it"
    return ""


def _may_use(config: Config, channel: ConversationRef, agent: str, people: Collection[PersonRef]) -> bool:
    where = using(config, channel, agent)
    return all(may(admitted(person), "ask", where).allowed for person in people)


def post_hold(uow: UnitOfWork, turn: TurnRow, line: str, hold: Hold, mention: PersonRef) -> str | None:
    """Say what the turn waits for, or who continues it; returns the operation that does."""
    if hold.successor:
        card = taken_over(_named(turn.agent), line, hold.until, _named(hold.successor))
    elif hold.asks:
        card = asking(turn.id, line, hold.until, hold.others, may_wait=hold.may_wait)
        mention = turn.user_id
    elif hold.until is not None:
        card = parked(turn.id, line, hold.until, uow.now, hold.others)
    else:
        return None
    return uow.post(place_of(turn), card, mention=mention, value="notice")


def mark_hold(uow: UnitOfWork, turn: TurnRow, hold: Hold, after: str | None) -> None:
    """Show on its messages that it waits, for a person or for the time."""
    if not hold.asks:
        show(uow, turn, QUEUED, after=after)
        return
    show_waiting(uow, turn)
    for message in uow.messages.find(turn_id=turn.id):
        set_mark(uow, place_of(turn), message, WORKING, remove=True, after=after)


def hand_over(uow: UnitOfWork, turn_id: str, successor: str) -> None:
    """End the parked turn; another one of ``successor`` continues it."""
    if (turn := uow.turns.get(turn_id)) is not None:
        carry_on(uow, turn, turn.user_id, agent=successor)
        uow.turns.update(turn.id, state=move(turn.state, "stop"))


def wait_for_reset(uow: UnitOfWork, turn: TurnRow) -> bool:
    """Let a turn that asks resume at the reset; False if it does not ask (any more)."""
    if turn.state != "parked" or turn.reason != ASKED or not turn.not_before:
        return False
    uow.turns.update(turn.id, reason=LIMIT)
    show_waiting(uow, turn, over=True)
    show(uow, turn, QUEUED)
    if turn.progress_op_id is not None:
        until = datetime.fromisoformat(turn.not_before)
        card = parked(turn.id, turn.result or "", until, uow.now, ())
        uow.edit(place_of(turn), turn.progress_op_id, card, value="notice")
    return True


def answered_by(uow: UnitOfWork, turn: TurnRow, config: Config) -> TurnRow:
    """The queued turn, given to the successor if its agent is at its limit. A turn that a person continues, or whose
    messages name their agent, tries that agent."""
    successor = agent_name(config, successor_of(config))
    if not successor_of(config) or turn.agent == successor or turn.reason:
        return turn
    until = uow.turns.limited_until(turn.agent)
    if until <= uow.stamp or any(row.agent for row in uow.messages.find(turn_id=turn.id)):
        return turn
    if not talks(config, successor) or not _may_use(
        config, turn.channel_id, successor, requesters_of(uow, turn)
    ):
        return turn
    uow.turns.update(turn.id, agent=successor)
    op_id = f"{turn.conversation}:{turn.agent}:limited:{until}"
    if uow.outbox.get(op_id) is None:
        told = answers_instead(_named(turn.agent), datetime.fromisoformat(until), _named(successor))
        uow.post(place_of(turn), told, op_id=op_id, value="notice")
    return replace(turn, agent=successor)


def _named(agent: str) -> str:
    """The agent as people write it."""
    return prefixes_of(agent)[-1]
