"""The native agent's log: one JSON object a line for each request and each call."""

from __future__ import annotations

from typing import Any

import msgspec

from codebutler.domain.clock import Clock
from codebutler_worker.agents.native.model import Call, Tokens
from codebutler_worker.agents.record import SessionLog
from codebutler_worker.tools.outcome import Result

ARGUMENT_CHARS = 2000
RESULT_CHARS = 2000


class AgentLog:
    """Writes into the turn's session log. ``container_id`` names the walls where there is no container."""

    def __init__(self, log: SessionLog, clock: Clock, container_id: str) -> None:
        log.ending = ""
        self._log = log
        self._clock = clock
        self._container_id = container_id

    def asked(self, model: str, tokens: Tokens, duration_s: float, calls: int) -> None:
        """The model answered."""
        self._write("model", model=model, duration_s=round(duration_s, 3), calls=calls, **_counts(tokens))

    def called(self, call: Call, result: Result, duration_s: float) -> None:
        """A tool was called, or was refused."""
        self._write(
            "tool",
            tool=call.name,
            arguments=call.arguments[:ARGUMENT_CHARS],
            container_id=result.container or self._container_id,
            argv=list(result.argv),
            duration_s=round(duration_s, 3),
            exit_code=result.exit_code,
            truncated=result.truncated,
            ok=result.ok,
            result=result.text[:RESULT_CHARS],
        )

    def ended(self, stopped_reason: str, tokens: Tokens, cost_usd: float | None, turns: int) -> None:
        """The turn is over."""
        self._write("end", stopped_reason=stopped_reason, cost_usd=cost_usd, turns=turns, **_counts(tokens))

    def noted(self, event: str, text: str) -> None:
        """Anything else that explains what happened."""
        self._write(event, text=text)

    def _write(self, event: str, **told: Any) -> None:
        stamp = self._clock.now().isoformat(timespec="milliseconds")
        entry = {"time": stamp, "event": event, "session": self._log.session, **told}
        self._log.write(msgspec.json.encode(entry) + b"\n")


def _counts(tokens: Tokens) -> dict[str, int]:
    return {
        "input_tokens": tokens.input,
        "output_tokens": tokens.output,
        "cached_tokens": tokens.cached_input,
    }
