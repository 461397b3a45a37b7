"""Which calls are made now, of all that waits in the chat, and which need not be made at all; and what is left of what
the chat allows, in token buckets. Pure.

The chat's limits are spent by value: answers first, signs last, and those leave a part of each burst for the others.
Within a value the channels take turns, so that no worker can keep the others waiting.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from types import MappingProxyType
from typing import NamedTuple, Self, get_args

from codebutler.chat.port import Call, Limit, Limits
from codebutler.domain.model import Value

# A sum of fractions is not quite whole.
NEARLY = 1e-6


@dataclass(frozen=True, slots=True)
class Bucket:
    """``calls`` left at ``at_s``, a moment of the monotonic clock. Nothing before ``paused_until_s``."""

    calls: float
    at_s: float
    paused_until_s: float = 0.0

    def refilled(self, limit: Limit, now_s: float) -> float:
        """The calls that are left now."""
        gained = max(0.0, now_s - self.at_s) * limit.per_minute / 60.0
        return min(float(limit.burst), self.calls + gained)

    def wait_s(self, limit: Limit, now_s: float, spared: float) -> float:
        """Seconds until a call may be made that leaves so much of the burst, a fraction."""
        missing = 1 + int(limit.burst * spared) - self.refilled(limit, now_s)
        wait_s = missing * 60.0 / limit.per_minute if missing > NEARLY else 0.0
        return max(0.0, wait_s, self.paused_until_s - now_s)

    def taken(self, limit: Limit, now_s: float) -> Bucket:
        """After a call now."""
        return Bucket(self.refilled(limit, now_s) - 1.0, max(now_s, self.at_s), self.paused_until_s)

    def paused(self, seconds: float, now_s: float) -> Bucket:
        """After the chat has said how long to wait: nothing until then, and no burst right after."""
        until_s = max(self.paused_until_s, now_s + seconds)
        return Bucket(min(self.calls, 0.0), until_s, until_s)


Key = tuple[Call, str]


class Buckets:
    """The buckets of one workspace, made as they are needed."""

    def __init__(self, limits: Limits, used: dict[Key, Bucket] | None = None) -> None:
        self._limits = limits
        self._used = used or {}

    def copy(self) -> Self:
        """The same, to plan with."""
        return type(self)(self._limits, dict(self._used))

    def burst(self, call: Call) -> float:
        """How many calls may come at once in the workspace; without end where nothing is said."""
        limit = self._limits.workspace.get(call)
        return limit.burst if limit else float("inf")

    def wait_s(self, call: Call, channel: str, now_s: float, spared: float = 0.0) -> float:
        """Seconds until ``call`` may be made in ``channel`` and leaves so much of each burst."""
        waits = (bucket.wait_s(limit, now_s, spared) for _, limit, bucket in self._of(call, channel, now_s))
        return max(waits, default=0.0)

    def wait_anywhere_s(self, call: Call, now_s: float, spared: float) -> float:
        """The same for any channel."""
        limit = self._limits.workspace.get(call)
        if limit is None:
            return 0.0
        return self._used.get((call, ""), Bucket(limit.burst, now_s)).wait_s(limit, now_s, spared)

    def take(self, call: Call, channel: str, now_s: float) -> None:
        """It is made now."""
        for key, limit, bucket in self._of(call, channel, now_s):
            self._used[key] = bucket.taken(limit, now_s)

    def pause(self, call: Call, channel: str, seconds: float, now_s: float) -> None:
        """The chat refused it for ``seconds``: where there is a limit per channel, that one waits."""
        for key, _, bucket in self._of(call, channel, now_s):
            self._used[key] = bucket.paused(seconds, now_s)
            return

    def _of(self, call: Call, channel: str, now_s: float) -> Iterator[tuple[Key, Limit, Bucket]]:
        """The narrowest first."""
        for key, limits in (
            ((call, channel), self._limits.within(channel)),
            ((call, ""), self._limits.workspace),
        ):
            if (limit := limits.get(call)) is not None:
                yield key, limit, self._used.get(key) or Bucket(limit.burst, now_s)


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
class WaitingCall:
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
    of marks that are known to be there, or not; None: nobody can tell. ``served``: how lately a channel's calls were
    made."""

    now_s: float
    has_token: bool = True
    closed: Mapping[str, float] = field(default_factory=dict)
    marks: Mapping[Line, bool | None] = field(default_factory=dict)
    served: Mapping[tuple[Call, str], int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CallPlan:
    """What is to be begun, in this order, and what is pointless; ``until_s``: when to plan again, if nothing comes."""

    begin: tuple[WaitingCall, ...]
    drop: tuple[WaitingCall, ...]
    until_s: float | None


def plan(lines: Iterable[Sequence[WaitingCall]], buckets: Buckets, state: State) -> CallPlan:
    """``lines`` hold what waits or is under way, each in its order, none empty. ``buckets`` stay as they are."""
    every = list(lines)
    heads = [_head(line) for line in every if not any(each.is_busy for each in line)]
    drop = [head.waiting for head in heads if _is_needless(head.waiting, state)]
    if drop:
        return CallPlan((), tuple(drop), state.now_s)
    return _PlanningRound(every, buckets.copy(), state).plan(heads)


class _Head(NamedTuple):
    """What is next in a line, and what it is worth to begin it: with it goes on what is behind it."""

    waiting: WaitingCall
    dearest: WaitingCall


def _head(line: Sequence[WaitingCall]) -> _Head:
    """What is said waits for what was said before, but not for how it goes on."""
    if len(line) == 1:
        return _Head(line[0], line[0])
    said = [each for each in line if each.value != "progress"] or line
    return _Head(said[0], min(said, key=lambda each: (RANK[each.value], each.number)))


def _is_needless(mark: WaitingCall, state: State) -> bool:
    """It is as it shall be."""
    return mark.call in ("react", "unreact") and state.marks.get(mark.line) is (mark.call == "react")


class _PlanningRound:
    """One look at everything that waits."""

    def __init__(self, every: Sequence[Sequence[WaitingCall]], buckets: Buckets, state: State) -> None:
        self._buckets = buckets
        self._state = state
        self._unmarked = {line[0].line[:3] for line in every if line[0].call == "react"}
        """Messages that get a mark first: none stands without one between two."""
        self._removals = sum(line[0].call == "unreact" for line in every)
        self._tried = {each.channel for line in every for each in line if each.is_busy and each.is_lasting}
        """Of a closed channel one call at a time finds out whether it is open again."""
        self._anywhere_s: dict[tuple[Call, Value], float] = {}
        """Until such a call can be made in any channel: however many wait for it, they are passed over quickly."""
        self._begin: list[WaitingCall] = []
        self._drop: list[WaitingCall] = []
        self._until_s = inf

    def plan(self, heads: Iterable[_Head]) -> CallPlan:
        """What ``heads`` may begin now, the dearest first. Once only: it uses up the buckets."""
        possible = [head for head in heads if self._is_possible(*head)]
        for head in sorted(possible, key=partial(_order, self._state)):
            if self._is_possible(*head):
                self._decide(head.waiting, head.dearest.value)
        if self._drop:
            self._until_s = self._state.now_s
        return CallPlan(
            tuple(self._begin), tuple(self._drop), None if self._until_s == inf else self._until_s
        )

    def _is_possible(self, waiting: WaitingCall, dearest: WaitingCall) -> bool:
        """Whether it may be its turn; a sign is left out if not."""
        key = waiting.call, dearest.value
        if (wait_s := self._anywhere_s.get(key)) is None:
            wait_s = self._buckets.wait_anywhere_s(waiting.call, self._state.now_s, _spared(*key))
            self._anywhere_s[key] = wait_s
        if wait_s == 0 or key == ("react", "sign"):
            return True
        self._until_s = min(self._until_s, self._state.now_s + wait_s)
        return False

    def _decide(self, waiting: WaitingCall, value: Value) -> None:
        now_s, channel = self._state.now_s, waiting.channel
        if (held_s := self._held_s(waiting)) > 0:
            self._until_s = min(self._until_s, now_s + held_s)
            return
        wait_s = self._buckets.wait_s(waiting.call, channel, now_s, _spared(waiting.call, value))
        if self._is_late(waiting, wait_s):
            self._drop.append(waiting)
        elif wait_s > 0:
            self._until_s = min(self._until_s, now_s + wait_s)
        else:
            self._buckets.take(waiting.call, channel, now_s)
            self._anywhere_s.clear()
            self._tried.add(channel)
            self._begin.append(waiting)

    def _held_s(self, waiting: WaitingCall) -> float:
        """Seconds until it may be called at all; inf where something else has to happen first, which is told when it
        does."""
        now_s, closed = self._state.now_s, self._state.closed
        is_closed = waiting.is_lasting and waiting.channel in closed
        if waiting.needs_token and not self._state.has_token:
            return inf
        if is_closed and waiting.channel in self._tried:
            return inf
        if waiting.call == "unreact" and waiting.line[:3] in self._unmarked:
            return inf
        return max(0.0, waiting.from_s - now_s, closed[waiting.channel] - now_s if is_closed else 0.0)

    def _is_late(self, waiting: WaitingCall, wait_s: float) -> bool:
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
