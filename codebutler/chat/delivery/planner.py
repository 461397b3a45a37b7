"""Which calls are made now, of all that waits in the workspace, and which need not be made at all. Pure.

The chat's limits are spent by value: answers first, signs last, and those leave a part of each burst for the others.
Within a value the channels take turns, so that no worker can keep the others waiting.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from types import MappingProxyType
from typing import NamedTuple, get_args

from codebutler.chat.delivery.limits import Buckets
from codebutler.chat.port import Call
from codebutler.model import Value

# A sign that could not be set for so long would only say what is past.
PATIENCE_S = 1.0
RANK: Mapping[Value, int] = MappingProxyType({value: at for at, value in enumerate(get_args(Value))})
SPARED: Mapping[Value, float] = MappingProxyType(
    {"answer": 0.0, "notice": 0.0, "outcome": 0.0, "progress": 0.2, "sign": 0.4}
)
"""The part of a burst that is left for what is dearer. What reads spares nothing: nothing shows of it."""
PROGRESS_POSTS = 0.8
"""The same for posts of progress: they come shortly before the answers to what was asked at the same moment."""
READS = frozenset[Call]({"history", "replies"})
# Signs are set only while few others wait to be taken away: there the chat's limit is the lowest.
REMOVALS_DUE = 0.5

Line = tuple[str, ...]
"""What keeps its order: a conversation, a message that is edited, a mark on a message."""


@dataclass(slots=True, eq=False, kw_only=True)
class Waiting:
    """A call that waits for its moment, not before ``from_s``; ``is_busy`` while it is under way. ``number``: its age.

    ``needs_token``: it waits while our token is refused; ``is_lasting``: it waits while its channel is closed to us.
    """

    call: Call
    channel: str
    line: Line
    value: Value
    number: int = 0
    from_s: float = 0.0
    is_busy: bool = False
    needs_token: bool = True
    is_lasting: bool = False


@dataclass(frozen=True, slots=True)
class State:
    """What else decides. ``closed``: channels we may not write in, and when that is tried again. ``marks``: the lines
    of marks that are known to be there, or not. ``served``: how lately a channel's calls were made."""

    now_s: float
    has_token: bool = True
    closed: Mapping[str, float] = field(default_factory=dict)
    marks: Mapping[Line, bool] = field(default_factory=dict)
    served: Mapping[tuple[Call, str], int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be begun, in this order, and what is pointless; ``until_s``: when to plan again, if nothing comes."""

    begin: tuple[Waiting, ...]
    drop: tuple[Waiting, ...]
    until_s: float | None


def plan(lines: Iterable[Sequence[Waiting]], buckets: Buckets, state: State) -> Plan:
    """``lines`` hold what waits or is under way, each in its order, none empty. ``buckets`` stay as they are."""
    every = list(lines)
    heads = [_head(line) for line in every if not any(each.is_busy for each in line)]
    drop = [head.waiting for head in heads if _is_needless(head.waiting, state)]
    if drop:
        return Plan((), tuple(drop), state.now_s)
    return _Round(every, buckets.copy(), state).plan(heads)


class _Head(NamedTuple):
    """What is next in a line, and what it is worth to begin it: with it goes on what is behind it."""

    waiting: Waiting
    dearest: Waiting


def _head(line: Sequence[Waiting]) -> _Head:
    """What is said waits for what was said before, but not for how it goes on."""
    if len(line) == 1:
        return _Head(line[0], line[0])
    said = [each for each in line if each.value != "progress"] or line
    return _Head(said[0], min(said, key=lambda each: (RANK[each.value], each.number)))


def _is_needless(mark: Waiting, state: State) -> bool:
    """It is as it shall be."""
    return mark.call in ("react", "unreact") and state.marks.get(mark.line) is (mark.call == "react")


class _Round:
    """One look at everything that waits."""

    def __init__(self, every: Sequence[Sequence[Waiting]], buckets: Buckets, state: State) -> None:
        self._buckets = buckets
        self._state = state
        self._unmarked = {line[0].line[:3] for line in every if line[0].call == "react"}
        """Messages that get a mark first: none stands without one between two."""
        self._removals = sum(line[0].call == "unreact" for line in every)
        self._tried = {each.channel for line in every for each in line if each.is_busy and each.is_lasting}
        """Of a closed channel one call at a time finds out whether it is open again."""
        self._anywhere_s: dict[tuple[Call, Value], float] = {}
        """Until such a call can be made in any channel: however many wait for it, they are passed over quickly."""
        self._begin: list[Waiting] = []
        self._drop: list[Waiting] = []
        self._until_s = inf

    def plan(self, heads: Iterable[_Head]) -> Plan:
        """What ``heads`` may begin now, the dearest first. Once only: it uses up the buckets."""
        possible = [head for head in heads if self._is_possible(*head)]
        for head in sorted(possible, key=partial(_order, self._state)):
            if self._is_possible(*head):
                self._decide(head.waiting, head.dearest.value)
        if self._drop:
            self._until_s = self._state.now_s
        return Plan(tuple(self._begin), tuple(self._drop), None if self._until_s == inf else self._until_s)

    def _is_possible(self, waiting: Waiting, dearest: Waiting) -> bool:
        """Whether it may be its turn; a sign is left out if not."""
        key = waiting.call, dearest.value
        if (wait_s := self._anywhere_s.get(key)) is None:
            wait_s = self._buckets.wait_anywhere_s(waiting.call, self._state.now_s, _spared(*key))
            self._anywhere_s[key] = wait_s
        if wait_s == 0 or key == ("react", "sign"):
            return True
        self._until(self._state.now_s + wait_s)
        return False

    def _until(self, moment_s: float) -> None:
        self._until_s = min(self._until_s, moment_s)

    def _decide(self, waiting: Waiting, value: Value) -> None:
        now_s, channel = self._state.now_s, waiting.channel
        if self._is_held(waiting):
            return
        from_s = self._open_from_s(waiting)
        if from_s > now_s:
            self._until(from_s)
            return
        wait_s = self._buckets.wait_s(waiting.call, channel, now_s, _spared(waiting.call, value))
        if self._is_late(waiting, wait_s):
            self._drop.append(waiting)
        elif wait_s > 0:
            self._until(now_s + wait_s)
        else:
            self._buckets.take(waiting.call, channel, now_s)
            self._anywhere_s.clear()
            self._tried.add(channel)
            self._begin.append(waiting)

    def _is_held(self, waiting: Waiting) -> bool:
        """Whether something else has to happen first, which is told when it does."""
        if waiting.needs_token and not self._state.has_token:
            return True
        if waiting.is_lasting and waiting.channel in self._state.closed and waiting.channel in self._tried:
            return True
        return waiting.call == "unreact" and waiting.line[:3] in self._unmarked

    def _open_from_s(self, waiting: Waiting) -> float:
        closed_s = self._state.closed.get(waiting.channel, 0.0) if waiting.is_lasting else 0.0
        return max(waiting.from_s, closed_s)

    def _is_late(self, waiting: Waiting, wait_s: float) -> bool:
        """A sign for which there is no room now is left out: it has to be taken away again, too."""
        if waiting.call != "react" or waiting.value != "sign":
            return False
        return wait_s > PATIENCE_S or self._removals >= self._buckets.burst("unreact") * REMOVALS_DUE


def _spared(call: Call, value: Value) -> float:
    if call == "post" and value == "progress":
        return PROGRESS_POSTS
    return 0.0 if call in READS else SPARED[value]


def _order(state: State, head: _Head) -> tuple[int, int, int]:
    served = state.served.get((head.waiting.call, head.waiting.channel), 0)
    return RANK[head.dearest.value], served, head.dearest.number
