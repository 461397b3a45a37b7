"""The one decision who may do what: ``may(person, action, place)``. Both processes ask it, on every path:
message, thread, edit, button, slash command, schedule, hook, terminal.

Pure. The default is no: an empty ``allowedUsers`` means nobody, and an action that is not in the table is
refused. How many people have to allow a call, and whose approval counts, is decided afterwards
(``approvals.quorum``).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from msgspec import Struct

from codebutler.config.chats import EVERYBODY
from codebutler.config.programs import is_shell, objection_to
from codebutler.config.schema import AuthorizationRule, Config
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
from codebutler.domain.refs import NO_PERSON, ConversationRef, PersonRef

Action = (
    Literal["see", "command", "press", "retract", "amend"]
    | Literal["ask", "skill", "decide", "answer", "type", "continue", "undo", "commit", "merge", "remember"]
    | Literal["push", "loosen", "new", "move"]
)
"""``see`` a repository and be quoted as background; use a ``command``; ``press`` a button and ``retract`` a message,
whatever they are about; ``ask`` an agent, have it use a ``skill``, ``decide`` about its requests, ``answer`` its
question, ``type`` into its program, ``continue``, ``undo`` or ``commit`` its work, ``merge`` or discard its branch, let
it ``remember``; ``push`` commits with the owner's credentials; let an agent work in a mode that asks less than the
configured one (``loosen``); create a ``new`` repository; ``move`` one to another host; ``amend`` a message."""

Prefixes = tuple[str, ...]
ANY_AGENT: Prefixes = ("*",)
"""Instead of prefixes: any agent that the person may use there."""


class Requirements(Struct, frozen=True):
    """What an action requires besides being one of ``allowedUsers``. ``rule``: if there are ``authorization.rules``,
    one that allows the channel or, with "agent", the channel and the agent. ``patterns``: the configuration's patterns
    must allow a shell's text. ``own``: only the author. ``named``: only those in ``authorization.mayLoosen``.
    ``listed``: only those in ``newRepos.allow``. ``what``: the action in the words of a refusal."""

    rule: Literal["", "channel", "agent"] = "channel"
    patterns: bool = False
    own: bool = False
    named: bool = False
    listed: bool = False
    what: str = ""


ACTIONS: Mapping[Action, Requirements] = MappingProxyType(
    {
        "see": Requirements(),
        "command": Requirements(),
        "press": Requirements(),
        "retract": Requirements(),
        "ask": Requirements("agent", patterns=True),
        "skill": Requirements("agent"),
        "decide": Requirements("agent"),
        "answer": Requirements("agent"),
        "type": Requirements("agent", patterns=True),
        "continue": Requirements("agent"),
        "undo": Requirements("agent"),
        "commit": Requirements("agent"),
        "merge": Requirements("agent"),
        "loosen": Requirements("agent", named=True),
        "remember": Requirements("agent", what="decide about the memory"),
        "push": Requirements("agent", what="push from here"),
        "move": Requirements("agent", what="move it to another host"),
        "new": Requirements("", listed=True),
        "amend": Requirements("", own=True),
    }
)


class Person(Struct, frozen=True):
    """The person. ``is_owner``: they use the control socket, which only the owner of this machine reaches, or
    a file that only the owner writes."""

    user: PersonRef
    is_owner: bool = False


class Where(Struct, frozen=True):
    """The place: a repository's configuration, its channel, the agent's prefixes for people and rules, the
    text for it, and the author of what is to be changed."""

    config: Config
    channel: ConversationRef
    prefixes: Prefixes = ()
    text: str = ""
    author: PersonRef = NO_PERSON


class Decision(Struct, frozen=True):
    """The answer of ``may``. ``reason`` is for the audit log; ``message`` is the text for a refused person.
    ``is_stranger``: the person may do nothing here."""

    allowed: bool
    reason: str
    message: str = ""
    is_stranger: bool = False


ALLOWED = Decision(allowed=True, reason="allowed")
UNKNOWN = Decision(allowed=False, reason="unknown action", message="That is not possible here.")
NOT_LISTED = Decision(
    allowed=False,
    reason="not in newRepos.allow",
    message="You are not authorized to create repositories: the owner of this machine can allow it in "
    "`newRepos.allow`.",
)
NOT_THEIRS = Decision(
    allowed=False, reason="somebody else wrote it", message="Only its author can change that."
)

TOO_LOOSE = Decision(
    allowed=False,
    reason="not in authorization.mayLoosen",
    message="That mode needs fewer approvals than the configured one: the owner can allow you to choose it in "
    "`authorization.mayLoosen`.",
)


def may(person: Person, action: Action, place: Where) -> Decision:
    """May this person do this there?"""
    needs = ACTIONS.get(action)
    if needs is None or (needs.rule == "agent" and not place.prefixes):
        return UNKNOWN
    if not person.is_owner:
        if person.user not in place.config.chat.allowed_ids:
            return _stranger_decision(person.user, place.config)
        rules = place.config.authorization.rules if needs.rule else ()
        if rules and not any(_matches(rule, person.user, needs, place) for rule in rules):
            return _no_rule_decision(needs, place)
        if needs.listed and not {person.user, EVERYBODY} & {*place.config.new_repos.allow}:
            return NOT_LISTED
    if needs.named and not (person.is_owner or _may_loosen(person.user, place.config)):
        return TOO_LOOSE
    if needs.own and person.user != place.author:
        return NOT_THEIRS
    for prefix in place.prefixes if needs.patterns else ():
        if is_shell(place.config, prefix) and (why := objection_to(place.config, prefix, place.text)):
            return Decision(allowed=False, reason=why, message=f"That command is {why}; it was not run.")
    return ALLOWED


def decide_request(config: Config, event: Event, request: Request) -> Decision:
    """The same for an event's request. The rules of a direct message are those of the repository's own channel."""
    # The control socket and jobs of a file that only the owner writes; a timer belongs to the person who set it.
    is_owners = isinstance(event, MessagePosted | ButtonClicked) and (
        event.origin == "local" or (event.origin == "schedule" and event.user == OPERATOR)
    )
    person = Person(event.user, is_owners)
    channel = (event.is_direct and config.channel_id) or event.channel
    if isinstance(request, Prompt):
        prefix = request.prefix or config.agent.default
        return may(person, "ask", Where(config, channel, (prefix,), request.text))
    action: Action = "retract" if isinstance(event, MessageDeleted) else "press"
    if isinstance(request, Command):
        action = WORDS[request.name].may if request.name in WORDS else "command"
    prefixes = (action,) if action in ("push", "move") else ANY_AGENT
    return may(person, action, Where(config, channel, prefixes))


def push_place(config: Config, channel: ConversationRef) -> Where:
    """The place of a push: rules name that like an agent's prefix."""
    return Where(config, channel, ("push",))


def admitted(user: PersonRef) -> Person:
    """A person whom the parent has let in: nobody else can use the operator's name."""
    return Person(user, is_owner=user == OPERATOR)


def _may_loosen(user: PersonRef, config: Config) -> bool:
    people = config.authorization.may_loosen
    return "*" in people or user in people


def _matches(rule: AuthorizationRule, user: PersonRef, needs: Requirements, place: Where) -> bool:
    return (
        place.channel in rule.channels
        and ("*" in rule.users or user in rule.users)
        and (
            needs.rule == "channel"
            or place.prefixes == ANY_AGENT
            or any(prefix in rule.allowed_prefixes for prefix in place.prefixes)
        )
    )


def _stranger_decision(user: PersonRef, config: Config) -> Decision:
    key = config.chat.people_key()
    message = (
        "You are not authorized to use CodeButler here. "
        f"Its owner can add your user ID `{user.removeprefix(config.chat.prefix)}` to `{key}`."
    )
    return Decision(allowed=False, reason="not in allowedUsers", message=message, is_stranger=True)


def _no_rule_decision(needs: Requirements, place: Where) -> Decision:
    """Refuse a person who may do other things here, or the same elsewhere."""
    is_named = needs.rule == "agent" and place.prefixes != ANY_AGENT
    what = needs.what or (f"use `{place.prefixes[-1]}:`" if is_named else "do that")
    message = f"You are not authorized to {what} here: the owner can allow it in `authorization.rules`."
    return Decision(allowed=False, reason="no rule allows it", message=message)
