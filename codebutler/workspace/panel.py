"""The fault panel: what the page can do to the app's connection and calls, and what they have met so far."""

from __future__ import annotations

from typing import Literal

import msgspec

from codebutler.workspace.faults import Fault, Faults
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
