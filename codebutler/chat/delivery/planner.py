"""Decides which of the waiting calls to make now and which to drop, and tracks the chat's rate limits in token
buckets. Pure.

Calls are made by value: answers first, signs last, and lower values leave part of each burst to higher ones. Within a
value the channels take turns, so that no worker can starve the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from types import MappingProxyType
from typing import NamedTuple, Self, get_args

from codebutler.chat.port import Call, Limit, Limits
from codebutler.domain.model import Value
from codebutler.domain.refs import ConversationRef

# Tolerance for rounding errors: fractions do not add up to exact whole numbers.
NEARLY = 1e-6


@dataclass(frozen=True, slots=True)
class Bucket:
    """A token bucket: ``calls`` left at ``at_s``, on the monotonic clock. No calls before ``paused_until_s``."""

    calls: float
    at_s: float
    paused_until_s: float = 0.0

    def refilled(self, limit: Limit, now_s: float) -> float:
        """The calls left now."""
        gained = max(0.0, now_s - self.at_s) * limit.per_minute / 60.0
        return min(float(limit.burst), self.calls + gained)

    def wait_s(self, limit: Limit, now_s: float, spared: float) -> float:
        """Seconds until a call may be made that leaves this fraction of the burst."""
        missing = 1 + int(limit.burst * spared) - self.refilled(limit, now_s)
        wait_s = missing * 60.0 / limit.per_minute if missing > NEARLY else 0.0
        return max(0.0, wait_s, self.paused_until_s - now_s)

    def taken(self, limit: Limit, now_s: float) -> Bucket:
        """The bucket after a call now."""
        return Bucket(self.refilled(limit, now_s) - 1.0, max(now_s, self.at_s), self.paused_until_s)

    def paused(self, seconds: float, now_s: float) -> Bucket:
        """After the chat asked us to wait: no calls until then, and no burst right after."""
        until_s = max(self.paused_until_s, now_s + seconds)
        return Bucket(min(self.calls, 0.0), until_s, until_s)


Key = tuple[Call, str]


class Buckets:
    """The buckets of one workspace, created on demand."""

    def __init__(self, limits: Limits, used: dict[Key, Bucket] | None = None) -> None:
        self.limits = limits
        self._used = used or {}

    def copy(self) -> Self:
        """A copy to plan with."""
        return type(self)(self.limits, dict(self._used))

    def wait_s(self, call: Call, channel: ConversationRef | None, now_s: float, spared: float = 0.0) -> float:
        """Seconds until ``call`` may be made in ``channel`` (None: in any) and leaves this much of each burst."""
        waits = (bucket.wait_s(limit, now_s, spared) for _, limit, bucket in self._of(call, channel, now_s))
        return max(waits, default=0.0)

    def take(self, call: Call, channel: ConversationRef, now_s: float) -> None:
        """Count a call made now."""
        for key, limit, bucket in self._of(call, channel, now_s):
            self._used[key] = bucket.taken(limit, now_s)

    def pause(self, call: Call, channel: ConversationRef, seconds: float, now_s: float) -> None:
        """The chat refused it for ``seconds``: if there is a limit per channel, only that bucket pauses."""
        for key, _, bucket in self._of(call, channel, now_s):
            self._used[key] = bucket.paused(seconds, now_s)
            return

    def _of(
        self, call: Call, channel: ConversationRef | None, now_s: float
    ) -> Iterator[tuple[Key, Limit, Bucket]]:
        """The narrowest limit first."""
        of_channel = self.limits.within(channel).get(call) if channel is not None else None
        for key, limit in (
            ((call, channel or ""), of_channel),
            ((call, ""), self.limits.workspace.get(call)),
        ):
            if limit is not None:
                yield key, limit, self._used.get(key) or Bucket(limit.burst, now_s)


# A sign delayed longer than this would show what is already over.
PATIENCE_S = 1.0
RANK: Mapping[Value, int] = MappingProxyType({value: at for at, value in enumerate(get_args(Value))})
SPARED: Mapping[Value, float] = MappingProxyType(
    {"answer": 0.0, "notice": 0.0, "outcome": 0.0, "progress": 0.2, "sign": 0.4}
)
"""The part of a burst reserved for higher values. Reads reserve nothing: nobody sees them."""
PROGRESS_POSTS = 0.8
"""The same for progress posts: they come shortly before the answers to messages sent at the same time."""
READS = frozenset[Call]({"history", "replies"})
# Set signs only while few are waiting to be removed: removals have the chat's lowest limit.
REMOVALS_DUE = 0.5

Line = tuple[str, ...]
"""What keeps its order: a conversation, the edits of a message, a mark on a message."""


@dataclass(slots=True, eq=False, kw_only=True)
class WaitingCall:
    """A waiting call, not to be made before ``from_s``; ``is_busy`` while in flight. ``number``: its age.

    ``needs_token``: it waits while our token is refused; ``is_lasting``: it waits while its channel is closed to us.
    """

    call: Call
    channel: ConversationRef
    line: Line
    value: Value
    number: int = 0
    from_s: float = 0.0
    is_busy: bool = False
    needs_token: bool = True
    is_lasting: bool = False


@dataclass(frozen=True, slots=True)
class State:
    """The rest of the planner's input. ``closed``: channels closed to us, and when to retry them. ``marks``: whether
    marks are known to be set; None: unknown. ``served``: how recently a channel's calls were made."""

    now_s: float
    has_token: bool = True
    closed: Mapping[ConversationRef, float] = field(default_factory=dict)
    marks: Mapping[Line, bool | None] = field(default_factory=dict)
    served: Mapping[tuple[Call, ConversationRef], int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CallPlan:
    """The calls to start, in this order, and those to drop; ``until_s``: when to plan again if nothing changes."""

    begin: tuple[WaitingCall, ...]
    drop: tuple[WaitingCall, ...]
    until_s: float | None


def plan(lines: Iterable[Sequence[WaitingCall]], buckets: Buckets, state: State) -> CallPlan:
    """``lines`` hold waiting and in-flight calls, each in order, none empty. ``buckets`` are not changed."""
    every = list(lines)
    heads = [_head(line) for line in every if not any(each.is_busy for each in line)]
    # Drop a call that would set or remove a mark that is already set or removed.
    marks = [head.waiting for head in heads if head.waiting.call in ("react", "unreact")]
    drop = [mark for mark in marks if state.marks.get(mark.line) is (mark.call == "react")]
    if drop:
        return CallPlan((), tuple(drop), state.now_s)
    return _PlanningRound(every, buckets, state).plan(heads)


class _Head(NamedTuple):
    """The next call of a line, and the most valuable one behind it, which gives the line its rank."""

    waiting: WaitingCall
    dearest: WaitingCall


def _head(line: Sequence[WaitingCall]) -> _Head:
    """Posts keep their order, but do not wait for progress."""
    if len(line) == 1:
        return _Head(line[0], line[0])
    said = [each for each in line if each.value != "progress"] or line
    return _Head(said[0], min(said, key=lambda each: (RANK[each.value], each.number)))


class _PlanningRound:
    """One pass over all waiting calls."""

    def __init__(self, every: Sequence[Sequence[WaitingCall]], buckets: Buckets, state: State) -> None:
        self._buckets = buckets.copy()
        self._state = state
        self._unmarked = {line[0].line[:3] for line in every if line[0].call == "react"}
        """Messages that get a mark: it is set before another one is removed, so that one always shows."""
        most = buckets.limits.workspace.get("unreact")
        removals = sum(line[0].call == "unreact" for line in every)
        self._leaves_signs_out = most is not None and removals >= most.burst * REMOVALS_DUE
        self._tried = {each.channel for line in every for each in line if each.is_busy and each.is_lasting}
        """Only one call at a time checks whether a closed channel is open again."""
        self._anywhere_s: dict[tuple[Call, Value], float] = {}
        """Seconds until such a call can be made in any channel, so that many waiting ones are skipped quickly."""
        self._begin: list[WaitingCall] = []
        self._drop: list[WaitingCall] = []
        self._until_s = inf

    def plan(self, heads: Iterable[_Head]) -> CallPlan:
        """Which of the ``heads`` may start now, most valuable first. Call once: it uses up the buckets."""
        possible = [head for head in heads if self._is_possible(*head)]
        order = [
            (
                RANK[dearest.value],
                self._state.served.get((waiting.call, waiting.channel), 0),
                dearest.number,
                at,
            )
            for at, (waiting, dearest) in enumerate(possible)
        ]
        for *_, at in sorted(order):
            head = possible[at]
            if self._is_possible(*head):
                self._decide(head.waiting, head.dearest.value)
        if self._drop:
            self._until_s = self._state.now_s
        return CallPlan(
            tuple(self._begin), tuple(self._drop), None if self._until_s == inf else self._until_s
        )

    def _is_possible(self, waiting: WaitingCall, dearest: WaitingCall) -> bool:
        """Whether it may get a turn; a sign that cannot is dropped."""
        key = waiting.call, dearest.value
        if (wait_s := self._anywhere_s.get(key)) is None:
            wait_s = self._buckets.wait_s(waiting.call, None, self._state.now_s, _spared(*key))
            self._anywhere_s[key] = wait_s
        if wait_s == 0 or key == ("react", "sign"):
            return True
        self._until_s = min(self._until_s, self._state.now_s + wait_s)
        return False

    def _decide(self, waiting: WaitingCall, value: Value) -> None:
        now_s, channel, closed = self._state.now_s, waiting.channel, self._state.closed
        is_closed = waiting.is_lasting and channel in closed
        if (
            (waiting.needs_token and not self._state.has_token)
            or (is_closed and channel in self._tried)
            or (waiting.call == "unreact" and waiting.line[:3] in self._unmarked)
        ):
            return  # something else has to happen first, which causes a new plan
        if (from_s := max(waiting.from_s, closed[channel] if is_closed else 0.0)) > now_s:
            self._until_s = min(self._until_s, from_s)
            return
        wait_s = self._buckets.wait_s(waiting.call, channel, now_s, _spared(waiting.call, value))
        is_sign = waiting.call == "react" and waiting.value == "sign"
        if is_sign and (wait_s > PATIENCE_S or self._leaves_signs_out):
            # There is no room for it now, and removing it would cost another call.
            self._drop.append(waiting)
        elif wait_s > 0:
            self._until_s = min(self._until_s, now_s + wait_s)
        else:
            self._buckets.take(waiting.call, channel, now_s)
            self._anywhere_s.clear()
            self._tried.add(channel)
            self._begin.append(waiting)


def _spared(call: Call, value: Value) -> float:
    if call == "post" and value == "progress":
        return PROGRESS_POSTS
    return 0.0 if call in READS else SPARED[value]
