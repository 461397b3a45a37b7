"""The end of a turn: its outcome, its answer and its marks, in one transaction."""

from __future__ import annotations

from dataclasses import dataclass, replace

from codebutler.config.schema import OutputSection
from codebutler.domain.message import Message
from codebutler.domain.refs import NO_PERSON, PersonRef
from codebutler.text.amounts import amount
from codebutler_worker.agents.backend import Finished
from codebutler_worker.changes.undo import is_racing
from codebutler_worker.conversation.approvals import WITHDRAWN, close_all
from codebutler_worker.conversation.history import plan_kept
from codebutler_worker.conversation.limits import Hold, hand_over, mark_hold, post_hold
from codebutler_worker.conversation.parked import ASKED, LIMITS
from codebutler_worker.conversation.queue import BUDGET, STALE, end_turn
from codebutler_worker.conversation.terminal import TerminalDisplay
from codebutler_worker.present.answer import answer, footer
from codebutler_worker.present.lines import count, one_line, span
from codebutler_worker.present.notices import WRITTEN_LATE, failed, stopped
from codebutler_worker.present.progress import Outcome, TurnProgress, collapsed
from codebutler_worker.runtime.runtime import Runtime
from codebutler_worker.runtime.turns import TurnEvent, audit_of, move, tag_of
from codebutler_worker.store.rows import TurnRow, race_in
from codebutler_worker.store.unit_of_work import UnitOfWork, iso, place_of

RESPONSE_CHARS = 200
MODEL_CHARS = 100
LONG_S = 30.0
"""After longer work the asker no longer watches: the last message mentions them."""
_EVENTS: dict[Outcome, TurnEvent] = {"done": "finish", "failed": "fail", "stopped": "stop", "parked": "park"}


@dataclass(frozen=True, slots=True)
class Ending:
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
    said = one_line(finished.text, RESPONSE_CHARS)
    if ending.outcome in ("failed", "parked"):
        code = f"exit code {finished.exit_code}" if finished.exit_code is not None else ""
        runtime.log("WRN", f"{turn.agent}: {': '.join(part for part in (code, said) if part)}")
    elif finished.text:
        runtime.log("RSP", f'"{said}"')
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
    last = _say(uow, output, ending)
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


def _say(uow: UnitOfWork, output: OutputSection, ending: Ending) -> str | None:
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
        said = failed(ending.turn.id, finished.text, resumable=resumable)
        last = uow.post(place, said, mention=mention, value="notice")
    elif ending.hold is not None:
        last = post_hold(uow, ending.turn, finished.text, ending.hold, mention)
    elif ending.outcome == "stopped":
        told = Message(markdown=stopped(ending.view, ending.stopped_by))
        last = uow.edit(place, stopping(ending.turn.id), told, value="notice")
        last = last or uow.post(place, told, value="notice")
    return last


def _park(uow: UnitOfWork, ending: Ending, hold: Hold, card: str | None) -> None:
    """From now on the card is the message that is updated."""
    not_before = iso(hold.until) if hold.until else ""
    # Being over budget is no refusal: only several of those make us give up.
    attempts = ending.turn.attempts + (ending.finished.reason != BUDGET)
    uow.turns.update(ending.turn.id, not_before=not_before, attempts=attempts, progress_op_id=card)
