"""How many people have to allow a call (``approvals.quorum``), and whose approval counts. Pure.

A pattern is some words. It fits a call whose tool and input hold them in this order, whatever is between
them: rather too many approvals than too few. A word that is hidden altogether is not found; quotes and
backslashes do not hide it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Literal

from codebutler.config.schema import ApprovalsSection
from codebutler.domain.model import OPERATOR
from codebutler.domain.refs import PersonRef

Objection = Literal["", "unnamed", "asked", "again"]
"""Why an approval does not count: the giver could be anybody who voted, asked for the call, or has voted
already."""

_QUOTING = re.compile(r"[\\'\"`]")
_WORDS = re.compile(r"[\w.-]+")


def approvals_needed(
    section: ApprovalsSection, requesters: Collection[PersonRef], tool: str, given: Mapping[str, Any]
) -> int:
    """How many approvals the call takes. If nobody knows which of the voters asked for it, one more: then at
    least as many as configured come from others."""
    needed = needed_for(section.quorum, tool, given)
    may_be_any = OPERATOR in requesters and not section.operator and not section.requester_votes
    return needed + (needed > 1 and may_be_any)


def objection_to(
    section: ApprovalsSection,
    user: PersonRef,
    *,
    needed: int,
    requesters: Collection[PersonRef],
    voted: Collection[PersonRef],
) -> Objection:
    """Why ``user``'s approval does not count towards ``needed``; "" if it does. ``requesters`` asked for the
    call, ``voted`` have allowed it already. If one approval is enough, anybody who may decide can give it.

    The operator of this machine may have an account in the chat, too: ``approvals.operator`` names it.
    """
    who = _person(section, user)
    if who in {_person(section, each) for each in voted}:
        return "again"
    if needed == 1:
        return ""
    if who == OPERATOR:
        return "unnamed"
    asked = not section.requester_votes and who in {_person(section, each) for each in requesters}
    return "asked" if asked else ""


def is_met(
    section: ApprovalsSection, voted: Collection[PersonRef], *, needed: int, requesters: Collection[PersonRef]
) -> bool:
    """Whether those who ``voted``, in order, are enough different people."""
    counted: list[PersonRef] = []
    for user in voted:
        if not objection_to(section, user, needed=needed, requesters=requesters, voted=counted):
            counted.append(user)
    return len(counted) >= needed


def _person(section: ApprovalsSection, user: PersonRef) -> PersonRef:
    return section.operator or OPERATOR if user == OPERATOR else user


def needed_for(quorum: Mapping[str, int], tool: str, given: Mapping[str, Any]) -> int:
    """The largest number among the fitting patterns; 1 if none fits."""
    if not quorum:
        return 1
    words = _words(" ".join([tool, *_texts(given)]))
    return max((people for pattern, people in quorum.items() if _fits(_words(pattern), words)), default=1)


def _fits(pattern: list[str], words: list[str]) -> bool:
    rest = iter(words)
    return bool(pattern) and all(word in rest for word in pattern)


def _words(text: str) -> list[str]:
    return _WORDS.findall(_QUOTING.sub("", text).lower())


def _texts(given: Mapping[str, Any]) -> Iterator[str]:
    """Every text in the input, at any depth."""
    waiting: list[Any] = [given]
    while waiting:
        value = waiting.pop(0)
        if isinstance(value, str):
            yield value
        elif isinstance(value, Mapping):
            waiting[:0] = list(value.values())
        elif isinstance(value, list | tuple):
            waiting[:0] = list(value)
