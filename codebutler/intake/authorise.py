"""The ONE decision who may do what. Every path asks here: message, thread, edit, button, slash, schedule.

Pure. The default is no: an empty ``allowedUsers`` means nobody.
"""

from __future__ import annotations

from dataclasses import dataclass

from codebutler.config.rules import rules_allow
from codebutler.config.schema import Config
from codebutler.config.shells import objection_to
from codebutler.model import (
    OPERATOR,
    ButtonClicked,
    Command,
    Event,
    MessagePosted,
    Prompt,
    Request,
)


@dataclass(frozen=True, slots=True)
class Decision:
    """``reason`` is for the audit log; ``told`` is what the person reads when refused. ``is_strangers``: it is about
    somebody who may do nothing here."""

    allowed: bool
    reason: str
    told: str = ""
    is_strangers: bool = False


ALLOWED = Decision(allowed=True, reason="allowed")


@dataclass(frozen=True, slots=True)
class Ask:
    """Who wants to do what, wherever the wish came from. ``prefix`` is None where no agent is asked for."""

    user: str
    channel: str
    local: bool = False
    prefix: str | None = None
    text: str = ""


def ask_of(event: Event, request: Request, default_agent: str) -> Ask:
    """The wish that an event expresses."""
    local = isinstance(event, MessagePosted | ButtonClicked) and _is_the_owners(event)
    if isinstance(request, Prompt):
        prefix = request.prefix or default_agent
        return Ask(event.user, event.channel, local, prefix, request.text)
    return Ask(event.user, event.channel, local)


def _is_the_owners(event: MessagePosted | ButtonClicked) -> bool:
    """Said or pressed over the control socket, or by a job of a file that only the owner writes; a timer is its
    setter's."""
    return event.origin == "local" or (event.origin == "schedule" and event.user == OPERATOR)


def authorise(config: Config, ask: Ask) -> Decision:
    """May this user do this here? A local wish came over the owner-only control socket, so from the owner."""
    if not ask.local:
        if ask.user not in config.slack.allowed_users:
            return _stranger(ask.user)
        prefixes = None if ask.prefix is None else (ask.prefix,)
        if not rules_allow(config, ask.user, ask.channel, prefixes):
            return _unruled(ask.prefix)
    if ask.prefix is not None and (reason := objection_to(config, ask.prefix, ask.text)):
        return Decision(allowed=False, reason=reason, told=f"That command is {reason}; it was not run.")
    return ALLOWED


def _stranger(user: str) -> Decision:
    told = (
        "You are not authorized to use CodeButler here. "
        f"Its owner can add your user ID `{user}` to `slack.allowedUsers`."
    )
    return Decision(allowed=False, reason="not in allowedUsers", told=told, is_strangers=True)


def _unruled(prefix: str | None) -> Decision:
    """Somebody who may do other things, or the same elsewhere."""
    what = "do that" if prefix is None else f"use `{prefix}:`"
    told = f"You are not authorized to {what} here: its owner can allow it in `authorization.rules`."
    return Decision(allowed=False, reason="no rule allows it", told=told)


def kind_of(event: Event, request: Request) -> str:
    """The audit log's word for what was asked."""
    if isinstance(event, ButtonClicked):
        return f"button {event.action_id}"
    if isinstance(request, Command):
        return f"command {request.name}"
    if isinstance(request, Prompt):
        return f"prompt {request.prefix}" if request.prefix else "prompt"
    return type(event).__name__
