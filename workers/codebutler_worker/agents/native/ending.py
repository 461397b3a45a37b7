"""How a turn of the native agent ended, in the words of the AgentBackend port. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

from codebutler_worker.agents.backend import Finished, Reason, Usage
from codebutler_worker.agents.native.loop import Exit, Leave, Progress
from codebutler_worker.agents.native.model import ModelError, Trouble

_REASONS: dict[Exit, Reason] = {
    "done": "done",
    "needs_user": "done",
    "max_turns": "max_turns",
    "repeated_call": "stalled",
    "errors": "stalled",
    "budget": "limit",
    "stopped": "stopped",
}
_TROUBLES: dict[Trouble, Reason] = {
    "auth": "auth",
    "quota": "limit",
    "limit": "limit",
    "overloaded": "overloaded",
    "unreachable": "overloaded",
    "too_long": "failed",
    "refused": "failed",
}
MAX_TURNS = "Stopped at the limit of model turns (native.maxTurns): choose Continue to go on."
BUDGET = "Stopped at the limit of one run (native.maxUsd, native.maxTokens): choose Continue to go on."
TIMEOUT = "Stopped after {minutes:g} minutes (native.timeout): choose Continue to go on."
REPEATED = (
    "Stopped: the agent kept making the same call ({tool}). Tell it what to do instead, or choose Continue."
)
ERRORS = (
    "Stopped: three answers of the model in a row could not be used ({error}). Choose Continue to try again, or set "
    "another model (native.model)."
)
NO_WORDS = "Done."


def left(leave: Leave, progress: Progress, usage: Usage, before_usd: float) -> Finished:
    """The loop left by itself."""
    reason = _REASONS[leave.exit]
    match leave.exit:
        case "done" | "needs_user":
            text = progress.answer or NO_WORDS
        case "max_turns":
            text = MAX_TURNS
        case "budget":
            text = BUDGET
        case "stopped":
            text = "Stopped."
        case "repeated_call":
            text = REPEATED.format(tool=leave.unanswered[0].name if leave.unanswered else "a tool")
        case "errors":
            text = ERRORS.format(error=" ".join(progress.last_error.split())[:300].rstrip("."))
    return finished(reason, text, usage, before_usd)


def failed(error: ModelError, usage: Usage, before_usd: float, now: datetime) -> Finished:
    """The model did not answer."""
    end = finished(_TROUBLES[error.trouble], f"{str(error)[:1].upper()}{str(error)[1:]}", usage, before_usd)
    if error.retry_after_s is None:
        return end
    resets = (now + timedelta(seconds=error.retry_after_s)).timestamp()
    return Finished(end.ok, end.text, end.reason, usage, end.total_cost_usd, resets_at_s=resets)


def finished(reason: Reason, text: str, usage: Usage, before_usd: float) -> Finished:
    """``before_usd`` is what the session had cost before."""
    total = None if usage.cost_usd is None else before_usd + usage.cost_usd
    return Finished(reason == "done", text, reason, usage, total)
