"""What a transaction leaves to be done outside it, once it is committed."""

from __future__ import annotations

from dataclasses import dataclass, replace

from codebutler.protocol.messages import Audit, LogTag
from codebutler_worker.store.rows import DeferredRow


@dataclass(frozen=True, slots=True)
class Steer:
    """Try to put the queued turn's messages into the running turn."""

    running_id: str
    queued_id: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """A decision on its way to a turn's agent."""

    turn_id: str
    approval_id: str
    allow: bool
    text: str = ""


@dataclass(frozen=True, slots=True)
class Typed:
    """A message that is to be typed into the session of a running turn."""

    turn_id: str
    channel: str
    ts: str
    text: str


@dataclass(frozen=True, slots=True)
class Todo:
    """What remains to be done outside the transaction, once it is committed. ``forced``: stop at once, without
    asking first; ``stopped_by``: who is told in the thread as the one who stopped it; ``forgotten``: conversations
    that begin anew; ``begins``: the thread of a run that is about to begin."""

    stop: tuple[str, ...] = ()
    forced: bool = False
    stopped_by: str = ""
    deferred: tuple[DeferredRow, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    steer: tuple[Steer, ...] = ()
    typed: tuple[Typed, ...] = ()
    forgotten: tuple[str, ...] = ()
    begins: str = ""
    log: tuple[tuple[LogTag, str], ...] = ()
    audit: tuple[Audit, ...] = ()

    def logged(self, tag: LogTag, text: str) -> Todo:
        """The same, with one line more for the log."""
        return replace(self, log=(*self.log, (tag, text)))
