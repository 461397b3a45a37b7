"""What a worker writes about itself: its log and its audit records, no faster and no longer than it may."""

from __future__ import annotations

from msgspec import structs

from codebutler.clock import Clock
from codebutler.config.schema import RepoSettings
from codebutler.errors import CodeButlerError, ProtocolError
from codebutler.protocol.messages import Audit, Log, LogTag
from codebutler.supervisor.limits import (
    AUDIT_BURST,
    AUDIT_FIELD_CHARS,
    AUDITS_PER_S,
    LogGate,
    TokenBucket,
    shorten,
)
from codebutler.supervisor.port import Services

ERROR_CHARS = 300
LAST_ERROR_S = 60.0


class Testimony:
    """One worker's, through all its lives: a new process has no new share. ``name`` is its repository's."""

    def __init__(self, name: str, services: Services, clock: Clock) -> None:
        self._name = name
        self._services = services
        self._clock = clock
        now_s = clock.monotonic()
        self._gate = LogGate(now_s)
        self._audits = TokenBucket.full(AUDITS_PER_S, AUDIT_BURST, now_s)
        self._last_error = ("", now_s)

    def note(self, tag: LogTag, text: str) -> None:
        """A line of ours about its life."""
        self._services.log(self._name, tag, text)

    def record(self, message: Log) -> None:
        """A line of its own, if it does not write too fast or too much."""
        if message.tag == "ERR":
            self.blame(message.text)
        self.remark(message.tag, message.text)

    def remark(self, tag: LogTag, text: str) -> None:
        """A line of its own, or one of ours about what it asked for: it could ask for very many."""
        for line in self._gate.admit(text, self._clock.monotonic()):
            self.note(tag, line)

    def audit(self, worker: RepoSettings, record: Audit) -> None:
        """Raises ProtocolError for a flood, and CodeButlerError if it cannot be written."""
        if not self._audits.take(self._clock.monotonic()):
            raise ProtocolError("the worker floods the audit log")
        try:
            self._services.audit(worker, _shortened(record))
        except OSError as error:
            # Nothing may be executed without a trace: a full disk must not become a way around the audit.
            raise CodeButlerError(f"the audit log cannot be written: {error.strerror}") from error

    def blame(self, text: str) -> None:
        """Should it die now, this is why."""
        self._last_error = (shorten(text, ERROR_CHARS), self._clock.monotonic())

    def close(self) -> str:
        """Say what was held back; returns the error that it may have died of, "" if there was none of late."""
        for line in self._gate.flush():
            self.note("WRN", line)
        text, at_s = self._last_error
        self._last_error = ("", at_s)
        return text if self._clock.monotonic() - at_s < LAST_ERROR_S else ""


def _shortened(record: Audit) -> Audit:
    """No worker may fill the disk, or keep us busy redacting, with one record."""
    fields = {name: shorten(getattr(record, name), AUDIT_FIELD_CHARS) for name in ("user", "thread", "kind")}
    decision = shorten(record.decision, AUDIT_FIELD_CHARS)
    return structs.replace(record, text=shorten(record.text), decision=decision, **fields)
