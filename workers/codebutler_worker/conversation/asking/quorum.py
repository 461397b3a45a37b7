"""How many people have to allow a call (``approvals.quorum``). Pure.

A pattern is some words. It fits a call whose tool and input hold them in this order, whatever stands between them:
it rather asks too many people than too few. What hides a word altogether is not found; quotes and backslashes do
not hide it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

_QUOTING = re.compile(r"[\\'\"`]")
_WORDS = re.compile(r"[\w.-]+")


def needed_for(quorum: Mapping[str, int], tool: str, given: Mapping[str, Any]) -> int:
    """The largest number that a fitting pattern asks for; 1 where none fits."""
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
    """Every text in the input, however deep."""
    waiting: list[Any] = [given]
    while waiting:
        value = waiting.pop(0)
        if isinstance(value, str):
            yield value
        elif isinstance(value, Mapping):
            waiting[:0] = list(value.values())
        elif isinstance(value, list | tuple):
            waiting[:0] = list(value)
