"""Prose that an agent says in pieces: kept until it is whole, and told now and then while it grows. Pure."""

from __future__ import annotations

import math

from codebutler_worker.agents.backend import Writing

FEWEST_CHARS = 40
SHARE = 8
"""It is told again once it has grown by an eighth: all the telling together is a few times its length, not its
square."""


class Growing:
    """One block of prose, up to ``most_chars``; what comes beyond is left out."""

    def __init__(self, most_chars: float = math.inf) -> None:
        self._most_chars = most_chars
        self._parts: list[str] = []
        self._chars = 0
        self._told = 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing of the block has come."""
        return not self._chars

    def add(self, text: str) -> list[Writing]:
        """One more piece; what there is so far, if that is worth telling."""
        if self._chars >= self._most_chars:
            return []
        part = (
            text
            if self._chars + len(text) <= self._most_chars
            else text[: int(self._most_chars) - self._chars]
        )
        self._parts.append(part)
        self._chars += len(part)
        if self._chars - self._told < max(FEWEST_CHARS, self._told // SHARE):
            return []
        self._told = self._chars
        return [Writing("".join(self._parts))]

    def take(self) -> str:
        """All of it, as it came; then it begins anew."""
        text = "".join(self._parts)
        self._parts.clear()
        self._chars = self._told = 0
        return text
