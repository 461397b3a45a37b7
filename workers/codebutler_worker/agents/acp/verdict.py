"""How a turn over the Agent Client Protocol ended, in our words. Pure."""

from __future__ import annotations

import re

from codebutler_worker.agents.backend import STOPPED, Verdict, one_line

AUTH_REQUIRED = -32000
"""ACP's own error code: the agent wants its user to log in first."""
_BUSY = ("429", "rate limit", "rate_limit", "overloaded", "529", "503")
_DOWN = re.compile(r"\b(500|502|504|520|521|522|523|524)\b|connection[_ ]error")
"""A service that fails for now, as Kimi Code 2.1.0 tells of it: "500 …", "Connection error."."""
_SPENT = ("402", "quota", "insufficient balance", "billing")
_DENIED = ("401", "403", "auth_error", "authentication", "unauthorized")
_NO_REASON = "no reason given"


def judge_stop(stop_reason: str, title: str) -> Verdict:
    """What the agent itself says of the end of its turn (ACP 1, StopReason)."""
    match stop_reason:
        case "end_turn":
            return Verdict("done", "")
        case "cancelled":
            return STOPPED
        case "max_turn_requests":
            return Verdict(
                "max_turns", f"{title} stopped at its own limit of model turns: choose Continue to go on."
            )
        case "max_tokens":
            return Verdict(
                "failed", f"{title} met its model's token limit: ask for less at once, or begin a `!new` one."
            )
        case _:
            return Verdict("failed", f"{title} refused to go on: ask in other words, or begin a `!new` one.")


def judge_error(code: int, message: str, title: str, login: str) -> Verdict:
    """An error in answer to a request, or of the model service behind the agent; ``login`` says how to log in."""
    said = one_line(message or _NO_REASON)
    words = said.lower()
    if code == AUTH_REQUIRED or any(mark in words for mark in _DENIED):
        return Verdict("auth", f"{login} It says: {said}")
    if any(mark in words for mark in _SPENT):
        return Verdict("limit", f"The model service refuses more for now: {said}")
    if any(mark in words for mark in _BUSY):
        return Verdict("overloaded", f"The model service is overloaded: {said}")
    if _DOWN.search(words):
        return Verdict("overloaded", f"The model service is unavailable: {said}")
    return Verdict("failed", f"{title} failed: {said}")


def crash(title: str, exit_code: int | None, last_words: str) -> Verdict:
    """The program ended, or closed its output, in the middle of a turn."""
    lines = [line.strip() for line in last_words.splitlines() if line.strip()]
    detail = f": {one_line(lines[-1])}" if lines else ""
    return Verdict("failed", f"{title} ended without an answer (exit code {exit_code}){detail}")


def no_agent(title: str, exit_code: int | None, last_words: str) -> Verdict:
    """The program ended before it said a word of the protocol, whatever its exit code."""
    lines = [line.strip() for line in last_words.splitlines() if line.strip()]
    detail = f": {one_line(lines[0])}" if lines else ""
    told = (
        f"{title} does not speak the Agent Client Protocol: it ended at once (exit code {exit_code}){detail}"
    )
    return Verdict("unavailable", told)
