"""Which events the app is told: those its manifest names, as at Slack. Pure."""

from __future__ import annotations

import msgspec.yaml
from msgspec import Struct

from codebutler.domain.errors import CodeButlerError
from codebutler.workspace.records import Json

# What an app is told only when it asks: most have no use for it.
FURTHER = frozenset({"file_shared", "file_deleted", "team_join", "pin_added", "pin_removed"})

MESSAGES = {"im": "message.im", "group": "message.groups", "channel": "message.channels"}


class Subscriptions(Struct, frozen=True, kw_only=True):
    """``names`` as in a manifest's ``bot_events``; None: everything, ``FURTHER`` only with ``further``."""

    names: frozenset[str] | None = None
    further: bool = False

    def wants(self, event: Json, channel_kind: str) -> bool:
        """Whether the app is told this event of a conversation of this kind (``channel``, ``group`` or ``im``)."""
        kind = str(event["type"])
        if self.names is None:
            return self.further or kind not in FURTHER
        if kind == "message":
            return MESSAGES.get(channel_kind, "message.channels") in self.names
        return kind in self.names


class _Events(Struct, frozen=True):
    bot_events: tuple[str, ...] = ()


class _Settings(Struct, frozen=True):
    event_subscriptions: _Events | None = None


class _Manifest(Struct, frozen=True):
    settings: _Settings = _Settings()


def subscriptions_of(manifest: str) -> Subscriptions:
    """What a manifest subscribes to; everything where it says nothing about events. Raises CodeButlerError."""
    try:
        events = msgspec.yaml.decode(manifest, type=_Manifest).settings.event_subscriptions
    except msgspec.DecodeError as error:
        why = str(error).splitlines()[0]
        raise CodeButlerError(f"no app manifest ({why}): export it from your app's page at Slack") from None
    return Subscriptions(names=frozenset(events.bot_events) if events else None, further=True)
