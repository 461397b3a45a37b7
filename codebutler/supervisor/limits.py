"""What one worker may claim of the parent: its frames, its operations, and what it reports (its log, its audit
records), limited in rate and length."""

from __future__ import annotations

from msgspec import structs

from codebutler.config.schema import RepoSettings
from codebutler.domain.clock import Clock
from codebutler.domain.errors import CodeButlerError, ProtocolError
from codebutler.observe.chain import AuditAct
from codebutler.protocol.messages import Audit, LogTag
from codebutler.supervisor.port import Services

FRAMES_PER_S = 5000.0
BYTES_PER_S = 8.0 * 2**20
BYTES_BURST = 16.0 * 2**20
PRINTED_PER_S = 1000.0
UNREAD_BYTES = 2**20
LOG_LINES_PER_S = 200.0
LOG_BURST = 2000.0
LOG_BYTES_PER_DAY = 8.0 * 2**20
DAY_S = 86400.0
LOG_TEXT_CHARS = 8000
AUDITS_PER_S = 20.0
AUDIT_BURST = 500.0
AUDIT_FIELDS = ("user", "thread", "kind", "decision")
AUDIT_FIELD_CHARS = 200
OPERATION_BYTES = 256 * 2**10
SENDS_IN_FLIGHT = 256
SEND_BYTES_IN_FLIGHT = 16 * 2**20
BLOCK_COST = 20
"""The highest cost of one byte of JSON once it is parsed: ``[{},{},…]``."""
DELIVERIES_IN_FLIGHT = 64
ERROR_CHARS = 300
LAST_ERROR_S = 60.0


class TokenBucket:
    """Holds at most ``burst`` tokens, is full at first, and gains ``rate`` of them per second."""

    def __init__(self, rate: float, burst: float, now_s: float) -> None:
        self._rate = rate
        self._burst = self._tokens = burst
        self._at_s = now_s

    def take(self, now_s: float, count: float = 1) -> bool:
        """Take ``count`` tokens; False if there are too few."""
        if self.owe(now_s, count) == 0:
            return True
        self._tokens += count
        return False

    def owe(self, now_s: float, count: float = 1) -> float:
        """Take tokens that may not be there yet; returns the seconds until they are."""
        gained = max(0.0, now_s - self._at_s) * self._rate
        self._tokens = min(self._burst, self._tokens + gained) - count
        self._at_s = now_s
        return max(0.0, -self._tokens / self._rate)


def shorten(text: str, limit_chars: int = LOG_TEXT_CHARS) -> str:
    """At most ``limit_chars`` characters, noting how many are missing."""
    if len(text) <= limit_chars:
        return text
    return f"{text[:limit_chars]}… ({len(text) - limit_chars} characters more)"


class Reports:
    """For one worker, through all its restarts: a new process gets no new share. ``name`` is its repository's.

    Its log lines are limited to a rate, and to a number of bytes per day, so that they do not displace what others
    wrote.
    """

    def __init__(self, name: str, services: Services, clock: Clock) -> None:
        self._name = name
        self._services = services
        self._clock = clock
        now_s = clock.monotonic()
        self._lines = TokenBucket(LOG_LINES_PER_S, LOG_BURST, now_s)
        self._bytes = TokenBucket(LOG_BYTES_PER_DAY / DAY_S, LOG_BYTES_PER_DAY, now_s)
        self._dropped = 0
        self._audits = TokenBucket(AUDITS_PER_S, AUDIT_BURST, now_s)
        self._last_error = ("", now_s)

    def note(self, tag: LogTag, text: str) -> None:
        """Log our own line about its life."""
        self._services.log(self._name, tag, text)

    def record(self, tag: LogTag, text: str) -> None:
        """Log a line of the worker, or one of ours about its requests, unless these are too many or too long. What was
        dropped is counted before the next line."""
        text, now_s = shorten(text), self._clock.monotonic()
        if not self._lines.take(now_s) or not self._bytes.take(now_s, len(text.encode(errors="replace"))):
            self._dropped += 1
            return
        if self._dropped:
            self._report_dropped(tag)
        self._services.log(self._name, tag, text)

    def _report_dropped(self, tag: LogTag) -> None:
        self.note(tag, f"{self._dropped} log lines dropped: the worker wrote too fast or too much")
        self._dropped = 0

    def audit(self, worker: RepoSettings, record: Audit) -> None:
        """Record, under the worker's own channel, what it says was executed. Raises ProtocolError for a flood, and
        CodeButlerError if it cannot be written."""
        if not self._audits.take(self._clock.monotonic()):
            raise ProtocolError("the worker floods the audit log")
        try:
            short = {name: shorten(getattr(record, name), AUDIT_FIELD_CHARS) for name in AUDIT_FIELDS}
            # No worker may fill the disk, or keep us busy redacting, with one record.
            fields = {**structs.asdict(record), **short, "text": shorten(record.text)}
            self._services.audit(AuditAct(channel=worker.channel_id, **fields))
        except OSError as error:
            # Nothing may run without a trace: a full disk must not become a way around the audit.
            raise CodeButlerError(f"the audit log cannot be written: {error.strerror}") from error

    def blame(self, text: str) -> None:
        """Remember ``text`` as the reason if the worker dies now."""
        self._last_error = (shorten(text, ERROR_CHARS), self._clock.monotonic())

    def close(self) -> str:
        """Log what was dropped; returns the error that it may have died of, "" if there was none recently."""
        if self._dropped:
            self._report_dropped("WRN")
        text, at_s = self._last_error
        self._last_error = ("", at_s)
        return text if self._clock.monotonic() - at_s < LAST_ERROR_S else ""
