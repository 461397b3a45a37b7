"""Reads an app's manifest: the commands and shortcuts that the page offers, the events that the app receives.
Pure."""

from __future__ import annotations

from typing import Literal

import msgspec.yaml
from msgspec import Struct, field

from codebutler.domain.errors import CodeButlerError
from codebutler.workspace.state import Json

# Sent only to apps that subscribe explicitly: most have no use for them.
OPT_IN_EVENTS = frozenset({"file_shared", "file_deleted", "team_join", "pin_added", "pin_removed"})
MESSAGES = {"im": "message.im", "group": "message.groups", "channel": "message.channels"}


class AppCommand(Struct, frozen=True, kw_only=True):
    """A slash command that the page completes and sends. ``words`` may follow it: name -> description."""

    command: str
    description: str = ""
    usage_hint: str = ""
    words: dict[str, str] = field(default_factory=dict)


class Shortcut(Struct, frozen=True, kw_only=True):
    """A shortcut of the app, as its manifest names it: global, or in a message's menu."""

    callback_id: str
    name: str
    on_message: bool = False


class Suggestion(Struct, frozen=True, kw_only=True):
    """A message to try; ``shows`` describes it."""

    text: str
    shows: str


class Offers(Struct, frozen=True, kw_only=True):
    """What the page offers: messages to try, slash commands, ``!commands``, shortcuts."""

    suggestions: tuple[Suggestion, ...] = ()
    commands: tuple[AppCommand, ...] = ()
    words: dict[str, str] = field(default_factory=dict)
    shortcuts: tuple[Shortcut, ...] = ()


class _Shortcut(Struct, frozen=True):
    name: str
    callback_id: str
    type: Literal["global", "message"] = "global"


class _Features(Struct, frozen=True):
    slash_commands: tuple[AppCommand, ...] = ()
    shortcuts: tuple[_Shortcut, ...] = ()


class _Events(Struct, frozen=True):
    bot_events: tuple[str, ...] = ()


class _Settings(Struct, frozen=True):
    event_subscriptions: _Events | None = None


class _Manifest(Struct, frozen=True):
    """The parts of Slack's app manifest that users of the page see, and the events that the app receives."""

    features: _Features | None = None
    settings: _Settings = _Settings()


def offers_of(manifest: str) -> Offers:
    """The commands and shortcuts of a Slack app manifest, JSON or YAML. Raises CodeButlerError."""
    features = _read(manifest).features
    if features is None:
        raise CodeButlerError("not an app manifest (no `features`): export it from your app's page at Slack")
    return Offers(
        commands=features.slash_commands,
        shortcuts=tuple(
            Shortcut(callback_id=one.callback_id, name=one.name, on_message=one.type == "message")
            for one in features.shortcuts
        ),
    )


class Subscriptions(Struct, frozen=True, kw_only=True):
    """``names`` as in a manifest's ``bot_events``; None: everything, but ``OPT_IN_EVENTS`` only with
    ``with_opt_in``."""

    names: frozenset[str] | None = None
    with_opt_in: bool = False

    def includes(self, event: Json, channel_kind: str) -> bool:
        """Whether the app receives this event in this type of conversation (``channel``, ``group`` or ``im``)."""
        kind = str(event["type"])
        if self.names is None:
            return self.with_opt_in or kind not in OPT_IN_EVENTS
        if kind == "message":
            return MESSAGES.get(channel_kind, "message.channels") in self.names
        return kind in self.names


def subscriptions_of(manifest: str) -> Subscriptions:
    """The events a manifest subscribes to; everything if it does not mention events. Raises CodeButlerError."""
    events = _read(manifest).settings.event_subscriptions
    return Subscriptions(names=frozenset(events.bot_events) if events else None, with_opt_in=True)


def _read(manifest: str) -> _Manifest:
    try:
        return msgspec.yaml.decode(manifest, type=_Manifest)
    except msgspec.DecodeError as error:
        why = str(error).splitlines()[0]
        raise CodeButlerError(
            f"not an app manifest ({why}): export it from your app's page at Slack"
        ) from None
