"""What a turn's last result means, in our words. Pure.

The verdict is ``is_error`` of the last result: neither subtype nor the exit code tell (an API error is
``subtype: "success"``, an interrupted run exits 0; Claude Code 2.1.328).
"""

from __future__ import annotations

from codebutler_worker.agents.claude.schema import ResultLine
from codebutler_worker.agents.verdict import STOPPED, Verdict, one_line

LOG_IN = (
    "Claude Code is not logged in, or its login has expired: run `claude auth login` on the machine as the user who "
    "runs CodeButler, then choose Continue."
)
MAX_TURNS = "Stopped at the limit of model turns (claude.maxTurns): choose Continue to go on."
AS_ROOT = (
    "Claude Code does not skip permissions as root outside a sandbox: run CodeButler as an ordinary user."
)
SESSION_LOST = ("No conversation found", "--resume requires a valid session")
AUTH_ERRORS = frozenset({"authentication_failed", "oauth_org_not_allowed"})
BUSY_ERRORS = frozenset({"rate_limit", "overloaded"})
BUSY_STATUS = (429, 529)
SERVER_ERRORS = 500
"""From this status on the fault is the service's own, and passes."""


def judge(result: ResultLine, api_error: str | None, *, resets: bool = False) -> Verdict:
    """``api_error`` is the CLI's own word for the last API error of the turn, None if there was none; ``resets``:
    a usage limit was reached, and the CLI told when it ends."""
    if not result.is_error:
        return Verdict("done", result.result or "")
    said = one_line(result.result or " ".join(result.errors or []) or "no reason given")
    if result.subtype == "error_max_turns":
        return Verdict("max_turns", MAX_TURNS)
    if any(mark in said for mark in SESSION_LOST):
        return Verdict("session_lost", "The agent's earlier session is gone: send the message again.")
    if (result.terminal_reason or "").startswith("aborted"):
        return STOPPED
    if api_error in AUTH_ERRORS or result.api_error_status in (401, 403):
        return Verdict("auth", LOG_IN)
    if api_error == "billing_error" or (resets and result.api_error_status == 429):
        return Verdict("limit", f"The model service refuses more for now: {said}")
    if api_error in BUSY_ERRORS or result.api_error_status in BUSY_STATUS:
        return Verdict("overloaded", f"The model service is overloaded: {said}")
    if (result.api_error_status or 0) >= SERVER_ERRORS:
        return Verdict("overloaded", f"The model service is unavailable: {said}")
    return Verdict("failed", said)


def crash(exit_code: int | None, stderr: str) -> Verdict:
    """A run that ended without a result."""
    if "cannot be used with root" in stderr:
        return Verdict("unavailable", AS_ROOT)
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    detail = f": {one_line(lines[-1])}" if lines else ""
    return Verdict("failed", f"Claude Code ended without an answer (exit code {exit_code}){detail}")
