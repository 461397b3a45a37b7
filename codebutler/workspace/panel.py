"""The fault panel: injects faults into the app's connections and calls, and shows what they have met so far."""

from __future__ import annotations

from collections import deque
from typing import Literal

import msgspec
from msgspec import Struct

from codebutler.workspace.params import RateLimits, decoded
from codebutler.workspace.records import Json
from codebutler.workspace.socket import Hub


class Disconnect(msgspec.Struct, forbid_unknown_fields=True):
    """How the app's connections end; ``drop`` cuts them without warning, ``deafen`` keeps them open without
    events."""

    reason: Literal["warning", "refresh_requested", "link_disabled", "too_many_websockets", "drop", "deafen"]


class Panel:
    """Fault injection, disconnects, rate limits on and off, and all the counts."""

    def __init__(self, hub: Hub, faults: Faults, limits: RateLimits) -> None:
        self._hub = hub
        self._faults = faults
        self._limits = limits

    def state(self) -> Json:
        """Pending ``faults``, the socket's figures, and how often the app exceeded Slack's limits."""
        return {
            "faults": msgspec.to_builtins(self._faults.pending()),
            "connections": len(self._hub.connections),
            "pending": self._hub.pending,
            "counts": {
                "sent": self._hub.counts.sent,
                "acked": self._hub.counts.acked,
                "retried": self._hub.counts.retried,
                "lost": self._hub.counts.lost,
            },
            "limits": {"enforced": self._limits.enforced, "violations": dict(self._limits.violations)},
        }

    def order(self, body: bytes) -> None:
        """Add a fault. Raises MethodError invalid_arguments."""
        self._faults.add(decoded(body, Fault))

    def clear(self) -> None:
        """Clear all pending faults."""
        self._faults.clear()

    def disconnect(self, body: bytes) -> None:
        """End the app's connections in one of Slack's ways, or worse. Raises MethodError invalid_arguments."""
        reason = decoded(body, Disconnect).reason
        if reason == "drop":
            self._hub.connections.drop()
        elif reason == "deafen":
            self._hub.connections.deafen()
        else:
            self._hub.disconnect(reason)

    def enforce(self, *, on: bool) -> None:
        """Refuse calls over Slack's rate limits with 429, or only count them."""
        self._limits.enforced = on


Kind = Literal["rate_limit", "status", "error", "delay", "reset", "lost", "hang"]


class Fault(Struct, kw_only=True, forbid_unknown_fields=True):
    """A scripted fault for the next ``times`` calls of ``method`` (``*``: any; ``files.upload`` and
    ``files.download`` are the two file transfers); with ``only_app``, only calls of the app under test. ``kind``:
    ``rate_limit`` (429 with Retry-After), ``status`` (that HTTP status), ``error`` (ok:false with that code),
    ``delay`` (responds ``delay_s`` late), ``reset`` (connection dropped, nothing done), ``lost`` (done, then the
    connection dropped), ``hang`` (done, never answered)."""

    method: str
    kind: Kind
    times: int = 1
    retry_after_s: int = 1
    status: int = 500
    error: str = "internal_error"
    delay_s: float = 1.0
    only_app: bool = False


class Faults:
    """The pending faults, in the order they were added, each method separately."""

    def __init__(self) -> None:
        self._queue: deque[Fault] = deque()

    def add(self, fault: Fault) -> None:
        """Add a fault; one for no calls (``times`` 0 or less) is ignored."""
        if fault.times > 0:
            self._queue.append(fault)

    def take(self, method: str, *, by_app: bool = True) -> Fault | None:
        """The fault for this call, which counts as used."""
        for fault in self._queue:
            if fault.method in (method, "*") and (by_app or not fault.only_app):
                fault.times -= 1
                if fault.times == 0:
                    self._queue.remove(fault)
                return fault
        return None

    def pending(self) -> tuple[Fault, ...]:
        """The pending faults, oldest first; ``times`` is the number of calls left."""
        return tuple(self._queue)

    def clear(self) -> None:
        """Clear the pending faults."""
        self._queue.clear()
