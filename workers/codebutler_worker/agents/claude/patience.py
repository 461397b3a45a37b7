"""How long a turn of Claude Code is waited for: its result may be followed by more. Pure."""

from __future__ import annotations

from codebutler_worker.agents.backend import Reason
from codebutler_worker.agents.claude.translate import Translator
from codebutler_worker.agents.watch import Limits, Watch

CONTINUATION_S = 5.0
"""Silence after a result that means that nothing follows."""


class Patience:
    """One turn's Watch, and how long its result has been there."""

    def __init__(self, now: float, limits: Limits) -> None:
        self._watch = Watch(now, limits)
        self._background_s = limits.background_s
        self._answered_s = 0.0

    def heard(self) -> None:
        """The CLI gave a sign of life."""
        self._watch.heard()

    def pass_time(self, now: float, turn: Translator) -> None:
        """Account for the time since the last call, by what the turn is doing."""
        passed_s = self._watch.pass_time(now, asking=bool(turn.asking))
        self._answered_s = self._answered_s + passed_s if turn.result is not None else 0.0

    def due(self, turn: Translator) -> Reason | None:
        """Why the turn must end now: "done" when only what may be cut off is left."""
        answered = turn.result is not None and not turn.subagents
        if (reason := self._watch.due(busy=turn.busy or answered)) or not answered:
            return reason
        if turn.tasks:
            return "done" if self._answered_s >= self._background_s else None
        return "done" if self._watch.silent_s >= CONTINUATION_S else None
