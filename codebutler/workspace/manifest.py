"""What an app's manifest says: the commands and shortcuts that the page offers, the events that the app gets. Pure."""

from __future__ import annotations

from typing import Literal

import msgspec.yaml
from msgspec import Struct, field

from codebutler.domain.errors import CodeButlerError
from codebutler.workspace.records import Json


class SlashCommand(Struct, frozen=True, kw_only=True):
    """A slash command that the page completes and sends as such. ``words`` may follow it: name -> what it does."""

    command: str
    description: str = ""
    usage_hint: str = ""
    words: dict[str, str] = field(default_factory=dict)


class Shortcut(Struct, frozen=True, kw_only=True):
    """One of the app's shortcuts, as its manifest would name it: for anywhere, or in a message's menu."""

    callback_id: str
    name: str
    on_message: bool = False


class Suggestion(Struct, frozen=True, kw_only=True):
    """A message to try, and what it ``shows``."""

    text: str
    shows: str


class Offers(Struct, frozen=True, kw_only=True):
    """What the page offers a person: messages to try, slash commands, ``!words``, shortcuts."""

    suggestions: tuple[Suggestion, ...] = ()
    commands: tuple[SlashCommand, ...] = ()
    words: dict[str, str] = field(default_factory=dict)
    shortcuts: tuple[Shortcut, ...] = ()


class _Shortcut(Struct, frozen=True):
    name: str
    callback_id: str
    type: Literal["global", "message"] = "global"


class _Command(Struct, frozen=True):
    command: str
    description: str = ""
    usage_hint: str = ""


class _Features(Struct, frozen=True):
    slash_commands: tuple[_Command, ...] = ()
    shortcuts: tuple[_Shortcut, ...] = ()


class _Events(Struct, frozen=True):
    bot_events: tuple[str, ...] = ()


class _Settings(Struct, frozen=True):
    event_subscriptions: _Events | None = None


class _Manifest(Struct, frozen=True):
    """The part of Slack's app manifest that a person at the page meets, and the events that the app is told."""

    features: _Features | None = None
    settings: _Settings = _Settings()


def offers_of(manifest: str) -> Offers:
    """The commands and shortcuts of a Slack app manifest, JSON or YAML. Raises CodeButlerError."""
    features = _read(manifest).features
    if features is None:
        raise CodeButlerError("no app manifest (without `features`): export it from your app's page at Slack")
    return Offers(
        commands=tuple(
            SlashCommand(command=one.command, description=one.description, usage_hint=one.usage_hint)
            for one in features.slash_commands
        ),
        shortcuts=tuple(
            Shortcut(callback_id=one.callback_id, name=one.name, on_message=one.type == "message")
            for one in features.shortcuts
        ),
    )


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


def subscriptions_of(manifest: str) -> Subscriptions:
    """What a manifest subscribes to; everything where it says nothing about events. Raises CodeButlerError."""
    events = _read(manifest).settings.event_subscriptions
    return Subscriptions(names=frozenset(events.bot_events) if events else None, further=True)


def _read(manifest: str) -> _Manifest:
    try:
        return msgspec.yaml.decode(manifest, type=_Manifest)
    except msgspec.DecodeError as error:
        why = str(error).splitlines()[0]
        raise CodeButlerError(f"no app manifest ({why}): export it from your app's page at Slack") from None
