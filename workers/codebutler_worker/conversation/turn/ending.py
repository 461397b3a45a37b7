"""The end of a turn: its outcome, its answer and its marks, in one transaction."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from codebutler.config.schema import OutputSection
from codebutler.protocol.messages import Audit, LogTag
from codebutler_worker.agents.backend import Finished, Usage
from codebutler_worker.conversation.asking.approvals import WITHDRAWN, close_all
from codebutler_worker.conversation.line.again import LIMITS
from codebutler_worker.conversation.line.marks import end_turn, show_queued
from codebutler_worker.conversation.line.withdrawing import BUDGET, STALE
from codebutler_worker.conversation.turn.showing import Showing
from codebutler_worker.desk.draft import Draft, iso, place_of
from codebutler_worker.desk.handover import plan_kept
from codebutler_worker.desk.states import TurnEvent, move
from codebutler_worker.present.answer import answer, footer
from codebutler_worker.present.lines import count, money, one_line, span
from codebutler_worker.present.notices import WRITTEN_LATE, failed
from codebutler_worker.present.parking import parked
from codebutler_worker.present.progress import Outcome, collapsed
from codebutler_worker.present.reducer import View
from codebutler_worker.present.stopped import stopped
from codebutler_worker.store.rows import TurnRow

RESPONSE_CHARS = 200
LONG_S = 30.0
"""After longer work the asker has looked away: the last message calls them."""
_EVENTS: dict[Outcome, TurnEvent] = {"done": "finish", "failed": "fail", "stopped": "stop", "parked": "park"}


@dataclass(frozen=True, slots=True)
class Ending:
    """Everything known of a turn when it is over. ``elapsed_s`` counts from its start.

    ``resume_at``: when to carry on with it by itself; ``others`` are the agents that could go on instead.
    """

    turn: TurnRow
    finished: Finished
    view: View
    elapsed_s: float
    session_id: str | None
    stopping: bool = False
    stopped_by: str = ""
    resume_at: datetime | None = None
    others: tuple[str, ...] = ()
    showing: Showing | None = None
    worked_s: float = 0.0
    changed: tuple[str, ...] = ()

    @property
    def outcome(self) -> Outcome:
        """A turn that was done before the stop reached it is done."""
        if self.finished.ok:
            return "done"
        if self.stopping or self.finished.reason == "stopped":
            return "stopped"
        return "failed" if self.resume_at is None else "parked"

    @property
    def usage(self) -> Usage:
        """The final usage, or the last one heard of if the end brought none."""
        return self.view.usage if self.finished.usage == Usage() else self.finished.usage

    def log_lines(self, tag: LogTag) -> list[tuple[LogTag, str]]:
        """How the turn went, and what was said. ``tag`` is the agent's."""
        parts = [self.outcome, span(self.elapsed_s)]
        if self.usage.turns:
            parts.append(count(self.usage.turns, "turn"))
        if self.usage.cost_usd is not None:
            parts.append(money(self.usage.cost_usd))
        lines: list[tuple[LogTag, str]] = [(tag, " · ".join(parts))]
        if self.outcome in ("failed", "parked"):
            code = self.finished.exit_code
            said = one_line(self.finished.text, RESPONSE_CHARS)
            why = (f"exit code {code}" if code is not None else "", said)
            lines.append(("WRN", f"{self.turn.agent}: {': '.join(part for part in why if part)}"))
        elif self.finished.text:
            lines.append(("RSP", f'"{one_line(self.finished.text, RESPONSE_CHARS)}"'))
        return lines

    def audit(self, prompt: str) -> Audit:
        """The record of what was executed."""
        return Audit(
            user=self.turn.user_id,
            thread=self.turn.thread_ts,
            kind=self.turn.agent,
            text=one_line(prompt, 1000),
            decision=self.outcome,
            exit_code=self.finished.exit_code,
            duration_s=round(self.elapsed_s, 3),
        )


def conclude(draft: Draft, output: OutputSection, ending: Ending) -> None:
    """Write the outcome and say it: the answer first, then the marks."""
    turn, outcome = ending.turn, ending.outcome
    close_all(draft, turn.id, WITHDRAWN)
    last = _say(draft, output, ending)
    current = draft.uow.turns.get(turn.id) or turn
    if current.progress_op_id and ending.showing is None:
        view = replace(ending.view, usage=ending.usage)
        draft.edit(place_of(turn), current.progress_op_id, collapsed(outcome, view, ending.elapsed_s))
    if outcome == "parked":
        show_queued(draft, turn, after=last)
    else:
        end_turn(draft, turn, outcome, after=last)
    if outcome == "parked":
        _park(draft, ending, last)
    draft.uow.turns.update(
        turn.id,
        state=move(current.state, _EVENTS[outcome]),
        finished_at=draft.stamp,
        reason=ending.finished.reason,
        result=ending.finished.text,
        session_id=ending.session_id,
        input_tokens=ending.usage.input_tokens,
        output_tokens=ending.usage.output_tokens,
        cost_usd=ending.usage.cost_usd,
        agent_turns=ending.usage.turns,
        worked_s=ending.worked_s,
        plan=plan_kept(ending.view.plan),
    )
    _keep_total_cost(draft, ending)


def _say(draft: Draft, output: OutputSection, ending: Ending) -> str | None:
    """Returns the last operation's id: the final mark must not be there before the answer is."""
    place, finished = place_of(ending.turn), ending.finished
    mention = ending.turn.user_id if ending.elapsed_s > LONG_S else ""
    last = None
    if ending.showing is not None:
        return ending.showing.finish(draft, finished, ending.elapsed_s, ending.turn.user_id)
    if ending.outcome == "done":
        foot = footer(ending.usage, ending.elapsed_s, ending.view.model or ending.turn.agent)
        if ending.turn.reason != STALE and any(
            row.late for row in draft.uow.messages.of_turn(ending.turn.id)
        ):
            foot = f"{foot} • {WRITTEN_LATE}"
        limit = output.max_chars_per_message
        for operation in answer(finished.text, foot, place.thread_ts, limit, mention):
            last = draft.add(place, operation)
    elif ending.outcome == "failed":
        resumable = finished.reason in LIMITS and ending.session_id is not None
        said = failed(ending.turn.id, finished.text, resumable=resumable)
        last = draft.post(place, said, mention=mention, value="notice")
    elif ending.outcome == "parked" and ending.resume_at is not None:
        card = parked(ending.turn.id, finished.text, ending.resume_at, draft.now, ending.others)
        last = draft.post(place, card, mention=mention, value="notice")
    elif ending.outcome == "stopped":
        told = stopped(ending.view, ending.changed, ending.stopped_by)
        last = draft.post(place, told, value="notice")
    return last


def _park(draft: Draft, ending: Ending, card: str | None) -> None:
    """From now on the card is the message that is kept up to date."""
    not_before = iso(ending.resume_at) if ending.resume_at else ""
    # A budget is nobody's refusal, after which to give up.
    attempts = ending.turn.attempts + (ending.finished.reason != BUDGET)
    draft.uow.turns.update(ending.turn.id, not_before=not_before, attempts=attempts, progress_op_id=card)


def _keep_total_cost(draft: Draft, ending: Ending) -> None:
    """A session that was forgotten meanwhile stays forgotten."""
    turn, total_usd = ending.turn, ending.finished.total_cost_usd
    session = draft.uow.sessions.get(turn.conversation, turn.agent)
    if session is None or total_usd is None or session.session_id != ending.session_id:
        return
    draft.uow.sessions.put(replace(session, total_cost_usd=total_usd, updated_at=draft.stamp))
