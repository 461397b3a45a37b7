"""How long a worker process has been doing what, and what follows from it. Pure: time is an argument."""

from __future__ import annotations

import math

from codebutler.protocol.messages import StopReason
from codebutler.supervisor.kit import Timing


class Vitals:
    """One process's; every moment is in seconds of one monotonic clock. ``idle_sleep_s``: 0 = it never sleeps."""

    def __init__(self, timing: Timing, idle_sleep_s: float, now_s: float) -> None:
        self.asked: StopReason | None = None
        """What it was told when it was asked to end."""
        self._timing = timing
        self._idle_sleep_s = idle_sleep_s
        self._started_s = self._seen_s = self._active_s = now_s
        self._ready_s: float | None = None
        self._force_s = math.inf

    def seen(self, now_s: float) -> None:
        """It gave a sign of life."""
        self._seen_s = now_s

    def active(self, now_s: float) -> None:
        """It worked, or was given work."""
        self._active_s = now_s

    def ready(self, now_s: float) -> None:
        """It can work from now on."""
        self._ready_s = self._active_s = now_s

    def ask(self, reason: StopReason, force_s: float) -> None:
        """It was asked to end, and is killed at ``force_s``. May be repeated: the sooner end counts."""
        self.asked = reason
        self._force_s = min(force_s, self._force_s)

    def lived_s(self, now_s: float) -> float:
        """For how long it could work."""
        return 0.0 if self._ready_s is None else now_s - self._ready_s

    def deadline_s(self) -> float:
        """When there may be something to do about it next."""
        if self.asked is not None:
            return self._force_s
        if self._ready_s is None:
            return self._started_s + self._timing.start_s
        sleep_s = self._active_s + self._idle_sleep_s if self._idle_sleep_s else math.inf
        return min(self._seen_s + self._timing.silence_s, sleep_s)

    def fault(self, now_s: float, *, held_up: bool) -> str:
        """Why it has to be killed, "" if it has not. ``held_up``: it is we who do not listen to it."""
        timing = self._timing
        if self.asked is not None:
            return "the worker did not end in time" if now_s >= self._force_s else ""
        if self._ready_s is None:
            late = now_s - self._started_s >= timing.start_s
            return f"the worker was not ready after {timing.start_s:g} s" if late else ""
        silent = now_s - self._seen_s >= timing.silence_s and not held_up
        return f"the worker has been silent for {timing.silence_s:g} s" if silent else ""

    def may_sleep(self, now_s: float, *, busy: bool, wanted: bool = False) -> bool:
        """Whether it has had nothing to do for long enough; ``busy``: it has something to do now. ``wanted``: its place
        is wanted for another, and it need not have been idle for long."""
        if self.asked is not None or self._ready_s is None:
            return False
        if busy:
            self._active_s = now_s
        if wanted and not busy:
            return True
        if not self._idle_sleep_s:
            return False
        return now_s - self._active_s >= self._idle_sleep_s
