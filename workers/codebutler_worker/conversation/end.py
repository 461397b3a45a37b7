"""The end of a turn: its outcome, its answer and its marks, in one transaction.

If its agent's usage limit is hit (``agent.onLimit``), the turn waits for the reset, a person is asked, or another agent
takes over. The turn that was handed over keeps the time of the reset. Until then, messages that name no agent go to the
successor as well; after it, to the first agent again. All of it follows from the rows, so a restart changes nothing,
and a turn that was refused never runs again: another one continues it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from codebutler.config.permission import admitted, may
from codebutler.config.programs import successor_of
from codebutler.config.schema import Config, OutputSection
from codebutler.domain.message import Message
from codebutler.domain.refs import NO_PERSON, ConversationRef, PersonRef
from codebutler.text.wording import amount, count, one_line, span
from codebutler_worker.agents.backend import Finished
from codebutler_worker.agents.survey import Survey
from codebutler_worker.changes.race import is_racing
from codebutler_worker.conversation.approvals import WITHDRAWN, close_all, requesters_of
from codebutler_worker.conversation.history import plan_kept
from codebutler_worker.conversation.marks import QUEUED, WORKING, end_turn, set_mark, show, show_waiting
from codebutler_worker.conversation.parked import ASKED, LIMIT, LIMITS, carry_on, others, resume_at, surveyed
from codebutler_worker.conversation.queue import BUDGET, STALE
from codebutler_worker.conversation.terminal import TerminalDisplay
from codebutler_worker.present.notices import (
    WRITTEN_LATE,
    answers_instead,
    asking,
    cannot_take_over,
    failed,
    parked,
    stopped,
    taken_over,
)
from codebutler_worker.present.progress import Outcome, TurnProgress, answer, collapsed, footer
from codebutler_worker.runtime.runtime import Runtime
from codebutler_worker.runtime.turns import (
    TurnEvent,
    agent_name,
    audit_of,
    move,
    prefixes_of,
    tag_of,
    talks,
    using,
)
from codebutler_worker.store.rows import TurnRow, race_in
from codebutler_worker.store.unit_of_work import UnitOfWork, iso, place_of

RESPONSE_CHARS = 200
MODEL_CHARS = 100
LONG_S = 30.0
"""After longer work the asker no longer watches: the last message mentions them."""
_EVENTS: dict[Outcome, TurnEvent] = {"done": "finish", "failed": "fail", "stopped": "stop", "parked": "park"}


class Hold(Struct, frozen=True):
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
        note = cannot_take_over(prefixes_of(agent)[-1], why)
        finished = replace(finished, text=f"{finished.text.rstrip('.')}. {note}")
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
        notice = answers_instead(_named(turn.agent), datetime.fromisoformat(until), _named(successor))
        uow.post(place_of(turn), notice, op_id=op_id, value="notice")
    return replace(turn, agent=successor)


def _named(agent: str) -> str:
    """The agent as people write it."""
    return prefixes_of(agent)[-1]


class Ending(Struct, frozen=True):
    """Everything known about a turn when it is over. ``elapsed_s`` counts from its start.

    ``stopped_by``: who stopped it from elsewhere; ``hold``: what it waits for, if it does; ``terminal``: of a
    program; ``asked``: whether its agent asked people anything.
    """

    turn: TurnRow
    finished: Finished
    outcome: Outcome
    view: TurnProgress
    elapsed_s: float
    session_id: str | None
    stopped_by: PersonRef = NO_PERSON
    hold: Hold | None = None
    terminal: TerminalDisplay | None = None
    asked: bool = False
    worked_s: float = 0.0


def record_end(runtime: Runtime, ending: Ending, prompt: str) -> None:
    """Write the outcome to the log, and what was executed to the audit log."""
    turn, finished, usage = ending.turn, ending.finished, ending.view.usage
    parts = [ending.outcome, span(ending.elapsed_s)]
    if usage.turns:
        parts.append(count(usage.turns, "turn"))
    if usage.cost_usd is not None:
        parts.append(amount("usd", usage.cost_usd))
    runtime.log(tag_of(runtime.settings.config, turn.agent), " · ".join(parts))
    text = one_line(finished.text, RESPONSE_CHARS)
    if ending.outcome in ("failed", "parked"):
        code = f"exit code {finished.exit_code}" if finished.exit_code is not None else ""
        runtime.log("WRN", f"{turn.agent}: {': '.join(part for part in (code, text) if part)}")
    elif finished.text:
        runtime.log("RSP", f'"{text}"')
    runtime.send(
        audit_of(
            turn,
            prompt,
            ending.outcome,
            exit_code=finished.exit_code,
            duration_s=round(ending.elapsed_s, 3),
        )
    )


def conclude(uow: UnitOfWork, output: OutputSection, ending: Ending) -> None:
    """Write the outcome and post it: the answer first, then the marks."""
    turn, outcome, usage = ending.turn, ending.outcome, ending.view.usage
    if ending.asked:
        close_all(uow, turn.id, WITHDRAWN)
    last = _post_outcome(uow, output, ending)
    current = uow.turns.get(turn.id) or turn
    if current.progress_op_id and ending.terminal is None:
        name = turn.agent if race_in(turn.conversation) else ""
        line = collapsed(outcome, ending.view, ending.elapsed_s, name)
        uow.edit(place_of(turn), current.progress_op_id, line)
    hold = ending.hold
    if outcome != "parked":
        end_turn(uow, turn, outcome, after=last)
    elif hold is not None:
        mark_hold(uow, turn, hold, last)
        _park(uow, ending, hold, last)
    uow.turns.update(
        turn.id,
        state=move(current.state, _EVENTS[outcome]),
        finished_at=uow.stamp,
        reason=ASKED if hold is not None and hold.asks else ending.finished.reason,
        result=ending.finished.text,
        session_id=ending.session_id,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cost_usd=usage.cost_usd,
        agent_turns=usage.turns,
        worked_s=ending.worked_s,
        plan=plan_kept(ending.view.plan) if ending.view.plan else "",
        model=one_line(ending.view.model, MODEL_CHARS),
    )
    if hold is not None and hold.successor:
        hand_over(uow, turn.id, hold.successor)
    # A session that was forgotten meanwhile stays forgotten.
    session, total_usd = uow.sessions.get(turn.conversation, turn.agent), ending.finished.total_cost_usd
    if session is not None and total_usd is not None and session.session_id == ending.session_id:
        uow.sessions.put(replace(session, total_cost_usd=total_usd, updated_at=uow.stamp))


def stopping(turn_id: str) -> str:
    """The operation that says a run is being stopped."""
    return f"{turn_id}-stopping"


def _post_outcome(uow: UnitOfWork, output: OutputSection, ending: Ending) -> str | None:
    """Returns the last operation's ID: the final mark must not appear before the answer."""
    place, finished = place_of(ending.turn), ending.finished
    mention = ending.turn.user_id if ending.elapsed_s > LONG_S else NO_PERSON
    last, conversation = None, ending.turn.conversation
    if ending.outcome != "parked" and race_in(conversation) and is_racing(uow, conversation):
        return None  # The race's card tells it.
    if ending.terminal is not None:
        return ending.terminal.finish(uow, finished, ending.elapsed_s, ending.turn.user_id)
    if ending.outcome == "done":
        foot = footer(ending.view.usage, ending.elapsed_s, ending.view.model or ending.turn.agent)
        if ending.turn.reason != STALE and any(row.late for row in uow.messages.find(turn_id=ending.turn.id)):
            foot = f"{foot} • {WRITTEN_LATE}"
        limit = output.max_chars_per_message
        for operation in answer(finished.text, foot, place.thread, limit, mention, redact=uow.redact):
            last = uow.add(place, operation)
    elif ending.outcome == "failed":
        resumable = finished.reason in LIMITS and ending.session_id is not None
        card = failed(ending.turn.id, finished.text, resumable=resumable)
        last = uow.post(place, card, mention=mention, value="notice")
    elif ending.hold is not None:
        last = post_hold(uow, ending.turn, finished.text, ending.hold, mention)
    elif ending.outcome == "stopped":
        line = Message(markdown=stopped(ending.view, ending.stopped_by))
        last = uow.edit(place, stopping(ending.turn.id), line, value="notice")
        last = last or uow.post(place, line, value="notice")
    return last


def _park(uow: UnitOfWork, ending: Ending, hold: Hold, card: str | None) -> None:
    """From now on the card is the message that is updated."""
    not_before = iso(hold.until) if hold.until else ""
    # Being over budget is no refusal: only several of those make us give up.
    attempts = ending.turn.attempts + (ending.finished.reason != BUDGET)
    uow.turns.update(ending.turn.id, not_before=not_before, attempts=attempts, progress_op_id=card)
