"""A card's choices in a terminal: each has a number to type. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from codebutler.control.messages import Choice, Press
from codebutler.domain.errors import CodeButlerError
from codebutler.domain.message import ALLOW_ACTION
from codebutler.domain.refs import MessageRef

_NUMBERS = re.compile(r"\d{1,3}(?:[\s,]+\d{1,3})*")
_YES = frozenset({"yes", "y", "allow"})
_SHORT = _YES | {"no", "n", "deny"}


class Misread(CodeButlerError):  # noqa: N818 - no failure: it is said what may be typed
    """The typed text is not a valid choice."""


def menu(choices: Sequence[Choice]) -> Iterator[str]:
    """The numbered choices, and how to choose."""
    shown = _numbered(choices)
    for number, choice in enumerate(shown, 1):
        yield f"  [{number}] {choice.label}"
    several = any(choice.box for choice in shown)
    yield "Type numbers (1, 3), or your answer." if several else "Type a number, or your answer."


def decided(ref: MessageRef, choices: Sequence[Choice], typed: str) -> Press | None:
    """The press that the typed text means, None if it is a message. Raises Misread."""
    words = typed.strip().lower()
    if _NUMBERS.fullmatch(words):
        return _picked(ref, choices, [int(number) for number in re.findall(r"\d+", words)])
    allowing = [choice for choice in choices if choice.action_id == ALLOW_ACTION]
    if words.rstrip(".!") not in _SHORT or not allowing:
        return None
    if len(allowing) > 1:
        raise Misread("several decisions are pending: type a number")
    if words.rstrip(".!") in _YES:
        return Press(ref=ref, action_id=allowing[0].action_id, value=allowing[0].value)
    return None


def _picked(ref: MessageRef, choices: Sequence[Choice], numbers: Sequence[int]) -> Press:
    shown = _numbered(choices)
    picked = [_at(shown, number) for number in numbers]
    if not picked[0].box:
        if len(picked) > 1:
            raise Misread("choose only one: type its number")
        return Press(ref=ref, action_id=picked[0].action_id, value=picked[0].value)
    question = _question(picked[0])
    if any(not choice.box or _question(choice) != question for choice in picked):
        raise Misread("these belong to different questions: answer one at a time")
    done = next(choice for choice in choices if not choice.box and _question(choice) == question)
    values = tuple(dict.fromkeys(choice.value for choice in picked))
    return Press(ref=ref, action_id=done.action_id, value=done.value, picked=values)


def _numbered(choices: Sequence[Choice]) -> list[Choice]:
    """All but the buttons that submit ticked boxes: typing the numbers does that."""
    ticked = {_question(choice) for choice in choices if choice.box}
    return [choice for choice in choices if choice.box or _question(choice) not in ticked]


def _question(choice: Choice) -> str:
    return choice.value.partition(":")[0]


def _at(choices: Sequence[Choice], number: int) -> Choice:
    if not 1 <= number <= len(choices):
        raise Misread(f"there is no choice {number}: type 1 to {len(choices)}, or words")
    return choices[number - 1]
