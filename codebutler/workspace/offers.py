"""What the page offers a person of an app: its slash commands, its shortcuts, first messages. Pure."""

from __future__ import annotations

from typing import Literal

import msgspec.yaml
from msgspec import Struct, field

from codebutler.domain.errors import CodeButlerError


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


class _Shortcut(Struct):
    name: str
    callback_id: str
    type: Literal["global", "message"] = "global"


class _Command(Struct):
    command: str
    description: str = ""
    usage_hint: str = ""


class _Features(Struct):
    slash_commands: list[_Command] = []
    shortcuts: list[_Shortcut] = []


class _Manifest(Struct):
    """The part of Slack's app manifest that a person at the page meets."""

    features: _Features


def offers_of(manifest: str) -> Offers:
    """The commands and shortcuts of a Slack app manifest, JSON or YAML. Raises CodeButlerError."""
    try:
        features = msgspec.yaml.decode(manifest, type=_Manifest).features
    except msgspec.DecodeError as error:
        why = str(error).splitlines()[0]
        raise CodeButlerError(f"no app manifest ({why}): export it from your app's page at Slack") from None
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
