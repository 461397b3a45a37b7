"""The one decision who may do what: ``may(person, action, place)``. Both processes ask it, whatever the path: message,
thread, edit, button, slash command, schedule, hook, terminal.

Pure. The default is no: an empty ``allowedUsers`` means nobody, and an action that is not in the table is refused. How
many people have to allow a call, and whose approval counts, comes after it (``approvals.quorum``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from codebutler.config.programs import objection_to
from codebutler.config.schema import TELEGRAM, AuthorizationRule, Config
from codebutler.domain.commands import WORDS
from codebutler.domain.model import (
    OPERATOR,
    ButtonClicked,
    Command,
    Event,
    MessageDeleted,
    MessagePosted,
    Prompt,
    Request,
)

Action = (
    Literal["see", "command", "press", "retract", "amend"]
    | Literal["ask", "skill", "decide", "answer", "type", "continue", "undo", "remember"]
)
"""``see`` a repository and be heard as background; say a ``command``; ``press`` a button and ``retract`` a message,
whatever they are about; ``ask`` an agent, have it use a ``skill``, ``decide`` what it wants to do, ``answer`` its
question, ``type`` into its program, let its work ``continue`` or ``undo`` it, let it ``remember``; ``amend`` what was
said."""

Prefixes = tuple[str, ...]
ANY_AGENT: Prefixes = ("*",)
"""In the place of prefixes: whoever may use some agent there."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What an action takes besides being one of ``allowedUsers``. ``rule``: where there are ``authorization.rules``,
    one for the channel, and for the agent too where it is "agent". ``patterns``: those of the configuration let a shell
    have the text. ``own``: only who said it. ``what``: its words in a refusal."""

    rule: Literal["", "channel", "agent"] = "channel"
    patterns: bool = False
    own: bool = False
    what: str = ""


ACTIONS: Mapping[Action, Needs] = MappingProxyType(
    {
        "see": Needs(),
        "command": Needs(),
        "press": Needs(),
        "retract": Needs(),
        "ask": Needs("agent", patterns=True),
        "skill": Needs("agent"),
        "decide": Needs("agent"),
        "answer": Needs("agent"),
        "type": Needs("agent", patterns=True),
        "continue": Needs("agent"),
        "undo": Needs("agent"),
        "remember": Needs("agent", what="decide about the memory"),
        "amend": Needs("", own=True),
    }
)


@dataclass(frozen=True, slots=True)
class Person:
    """Who. ``is_owner``: they speak over the control socket, which only the owner of this machine reaches, or by a file
    that only the owner writes."""

    user: str
    is_owner: bool = False


@dataclass(frozen=True, slots=True)
class Where:
    """Where, and what is concerned there: a repository's configuration, its channel, the words by which people and
    rules name the agent, what it would be given, and who said what is to be changed."""

    config: Config
    channel: str
    prefixes: Prefixes = ()
    text: str = ""
    author: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """``reason`` is for the audit log; ``told`` is what the person reads when refused. ``is_strangers``: it is about
    somebody who may do nothing here."""

    allowed: bool
    reason: str
    told: str = ""
    is_strangers: bool = False


ALLOWED = Decision(allowed=True, reason="allowed")
UNKNOWN = Decision(allowed=False, reason="nothing says what it is", told="That is not possible here.")
NOT_THEIRS = Decision(allowed=False, reason="somebody else said it", told="Only its author can change that.")


def may(person: Person, action: Action, place: Where) -> Decision:
    """May this person do this there?"""
    needs = ACTIONS.get(action)
    if needs is None or (needs.rule == "agent" and not place.prefixes):
        return UNKNOWN
    if not person.is_owner:
        if person.user not in place.config.allowed_users:
            return _stranger(person.user, place.config)
        if needs.rule and not _ruled(person.user, needs, place):
            return _unruled(needs, place)
    if needs.own and person.user != place.author:
        return NOT_THEIRS
    if needs.patterns and (why := _objection(place)):
        return Decision(allowed=False, reason=why, told=f"That command is {why}; it was not run.")
    return ALLOWED


def decided(config: Config, event: Event, request: Request, channel: str = "") -> Decision:
    """The same for what an event asks for, in ``channel`` if it is not to count as the event's own."""
    person, channel = Person(event.user, _is_the_owners(event)), channel or event.channel
    if isinstance(request, Prompt):
        prefix = request.prefix or config.agent.default
        return may(person, "ask", Where(config, channel, (prefix,), request.text))
    action: Action = "retract" if isinstance(event, MessageDeleted) else "press"
    if isinstance(request, Command):
        action = WORDS[request.name].may if request.name in WORDS else "command"
    return may(person, action, Where(config, channel, ANY_AGENT))


def admitted(user: str) -> Person:
    """Somebody whom the parent has let in: nobody else comes under the operator's name."""
    return Person(user, is_owner=user == OPERATOR)


def _is_the_owners(event: Event) -> bool:
    """Said or pressed over the control socket, or by a job of a file that only the owner writes; a timer is its
    setter's."""
    if not isinstance(event, MessagePosted | ButtonClicked):
        return False
    return event.origin == "local" or (event.origin == "schedule" and event.user == OPERATOR)


def _ruled(user: str, needs: Needs, place: Where) -> bool:
    rules = place.config.authorization.rules
    return not rules or any(_matches(rule, user, needs, place) for rule in rules)


def _matches(rule: AuthorizationRule, user: str, needs: Needs, place: Where) -> bool:
    return (
        place.channel in rule.channels
        and ("*" in rule.users or user in rule.users)
        and (
            needs.rule == "channel"
            or place.prefixes == ANY_AGENT
            or any(prefix in rule.allowed_prefixes for prefix in place.prefixes)
        )
    )


def _objection(place: Where) -> str:
    found = (objection_to(place.config, prefix, place.text) for prefix in place.prefixes)
    return next(filter(None, found), "")


def _stranger(user: str, config: Config) -> Decision:
    key = f"{'telegram' if config.is_on_telegram else 'slack'}.allowedUsers"
    told = (
        "You are not authorized to use CodeButler here. "
        f"Its owner can add your user ID `{user.removeprefix(TELEGRAM)}` to `{key}`."
    )
    return Decision(allowed=False, reason="not in allowedUsers", told=told, is_strangers=True)


def _unruled(needs: Needs, place: Where) -> Decision:
    """Somebody who may do other things, or the same elsewhere."""
    is_named = needs.rule == "agent" and place.prefixes != ANY_AGENT
    what = needs.what or (f"use `{place.prefixes[-1]}:`" if is_named else "do that")
    told = f"You are not authorized to {what} here: its owner can allow it in `authorization.rules`."
    return Decision(allowed=False, reason="no rule allows it", told=told)
