"""The fault panel: what the page can do to the app's connection and calls, and what they have met so far."""

from __future__ import annotations

from collections import deque
from typing import Literal

import msgspec
from msgspec import Struct

from codebutler.workspace.limits import RateLimits
from codebutler.workspace.params import decoded
from codebutler.workspace.records import Json
from codebutler.workspace.socket import Hub


class Goodbye(msgspec.Struct, forbid_unknown_fields=True):
    """How the app's connections end; ``drop`` cuts them without a word, ``deafen`` lets them live on without
    an event."""

    reason: Literal["warning", "refresh_requested", "link_disabled", "too_many_websockets", "drop", "deafen"]


class Panel:
    """Fault injection, ends of connections, limits on and off, and the counts of it all."""

    def __init__(self, hub: Hub, faults: Faults, limits: RateLimits) -> None:
        self._hub = hub
        self._faults = faults
        self._limits = limits

    def state(self) -> Json:
        """``faults`` still to happen, the socket's figures, and how often the app was over Slack's limits."""
        return {
            "faults": msgspec.to_builtins(self._faults.pending()),
            "connections": self._hub.connections,
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
        """One fault more. Raises MethodError invalid_arguments."""
        self._faults.add(decoded(body, Fault))

    def clear(self) -> None:
        """Nothing that was ordered happens any more."""
        self._faults.clear()

    def disconnect(self, body: bytes) -> None:
        """End the app's connections in one of Slack's ways or worse. Raises MethodError invalid_arguments."""
        reason = decoded(body, Goodbye).reason
        if reason == "drop":
            self._hub.drop()
        elif reason == "deafen":
            self._hub.deafen()
        else:
            self._hub.disconnect(reason)

    def enforce(self, *, on: bool) -> None:
        """Slack's rate limits, refused with 429 or only counted."""
        self._limits.enforced = on


Kind = Literal["rate_limit", "status", "error", "delay", "reset", "lost", "hang"]


class Fault(Struct, kw_only=True, forbid_unknown_fields=True):
    """One scripted fault for the next ``times`` calls of ``method``; with ``only_app`` of the app under test, not of
    the people who write to it."""

    method: str
    kind: Kind
    times: int = 1
    retry_after_s: int = 1
    status: int = 500
    error: str = "internal_error"
    delay_s: float = 1.0
    only_app: bool = False


class Faults:
    """The faults still to happen, in the order they were ordered, each method by itself."""

    def __init__(self) -> None:
        self._queue: deque[Fault] = deque()

    def add(self, fault: Fault) -> None:
        """Order a fault; one for no calls at all (``times`` 0 or less) is dropped."""
        if fault.times > 0:
            self._queue.append(fault)

    def take(self, method: str, *, by_app: bool = True) -> Fault | None:
        """The fault this call meets, counted as met."""
        for fault in self._queue:
            if fault.method in (method, "*") and (by_app or not fault.only_app):
                fault.times -= 1
                if fault.times == 0:
                    self._queue.remove(fault)
                return fault
        return None

    def pending(self) -> tuple[Fault, ...]:
        """What has not happened yet, the oldest order first; ``times`` says for how many calls more."""
        return tuple(self._queue)

    def clear(self) -> None:
        """Take back what has not happened yet."""
        self._queue.clear()
