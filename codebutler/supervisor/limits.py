"""How much of the parent's attention one worker may claim. Pure: time is an argument."""

from __future__ import annotations

from dataclasses import dataclass

FRAMES_PER_S = 5000.0
LOG_LINES_PER_S = 200.0
LOG_BURST = 2000.0
LOG_TEXT_CHARS = 8000
AUDITS_PER_S = 20.0
AUDIT_BURST = 500.0
AUDIT_FIELD_CHARS = 200
OPERATION_BYTES = 256 * 2**10
SENDS_IN_FLIGHT = 256
SEND_BYTES_IN_FLIGHT = 64 * 2**20
DELIVERIES_IN_FLIGHT = 64


@dataclass(slots=True)
class TokenBucket:
    """Holds at most ``burst`` tokens and gains ``rate`` of them per second."""

    rate: float
    burst: float
    tokens: float
    at_s: float

    @classmethod
    def full(cls, rate: float, burst: float, now_s: float) -> TokenBucket:
        """A bucket that nothing was taken from."""
        return cls(rate, burst, burst, now_s)

    def take(self, now_s: float) -> bool:
        """Whether there was a token to take."""
        self._refill(now_s)
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True

    def wait_s(self, now_s: float) -> float:
        """How long until there is a token."""
        self._refill(now_s)
        return max(0.0, (1 - self.tokens) / self.rate)

    def _refill(self, now_s: float) -> None:
        self.tokens = min(self.burst, self.tokens + max(0.0, now_s - self.at_s) * self.rate)
        self.at_s = now_s


class LogGate:
    """Lets a worker's records through at a bounded rate and says how many it held back."""

    def __init__(self, now_s: float) -> None:
        self._bucket = TokenBucket.full(LOG_LINES_PER_S, LOG_BURST, now_s)
        self._dropped = 0

    def admit(self, text: str, now_s: float) -> list[str]:
        """The lines to write now: none, the text, or a note of what was dropped and the text."""
        if not self._bucket.take(now_s):
            self._dropped += 1
            return []
        return [*self.flush(), shorten(text)]

    def flush(self) -> list[str]:
        """The note of what was dropped, if anything was."""
        dropped, self._dropped = self._dropped, 0
        return [f"{dropped} log lines dropped: the worker wrote too fast"] if dropped else []


def shorten(text: str, limit_chars: int = LOG_TEXT_CHARS) -> str:
    """At most ``limit_chars`` characters, saying what is missing."""
    if len(text) <= limit_chars:
        return text
    return f"{text[:limit_chars]}… ({len(text) - limit_chars} characters more)"
