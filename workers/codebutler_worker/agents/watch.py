"""What has lasted how long in a turn. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from codebutler_worker.agents.backend import Reason


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a turn may take, in seconds; waiting for a person counts for nothing.

    ``start_s``: until the agent gives its first sign of life. ``stall_s``: silence while no tool runs (Claude Code's
    own watchdog takes 300 s). ``stop_s``: how long a turn that was asked to stop has to end by itself.
    ``background_s``: how long the answer waits for commands left in the background, by an agent that tells of them.
    """

    timeout_s: float
    start_s: float = 60.0
    stall_s: float = 600.0
    stop_s: float = 2.0
    background_s: float = 60.0


class Watch:
    """One turn's."""

    def __init__(self, now: float, limits: Limits) -> None:
        self.silent_s = 0.0
        self._last = now
        self._limits = limits
        self._spent_s = 0.0
        self._stall_s = min(limits.start_s, limits.stall_s)

    def heard(self) -> None:
        """The agent gave a sign of life."""
        self._stall_s = self._limits.stall_s
        self.silent_s = 0.0

    def pass_time(self, now: float, *, asking: bool) -> float:
        """Account for the time since the last call, and return it; ``asking``: a person is waited for."""
        passed_s, self._last = now - self._last, now
        if not asking:
            self._spent_s += passed_s
            self.silent_s += passed_s
        return passed_s

    def due(self, *, busy: bool) -> Reason | None:
        """Why the turn must end now; ``busy``: a tool runs, which is silent work."""
        if self._spent_s >= self._limits.timeout_s:
            return "timeout"
        if self.silent_s >= self._stall_s and not busy:
            return "stalled"
        return None
