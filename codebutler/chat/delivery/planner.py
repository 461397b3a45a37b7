"""Decides which of the waiting calls to make now and which to drop, and tracks the chat's rate limits in token
buckets. Pure.

Calls are made by value: answers first, signs last, and lower values leave part of each burst to higher ones. Within a
value the channels take turns, so that no worker can starve the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from math import inf
from types import MappingProxyType
from typing import Any, get_args

from msgspec import Struct, field
from msgspec.structs import replace

from codebutler.chat.port import Call, Limit, Limits
from codebutler.domain.model import Value
from codebutler.domain.refs import ConversationRef

# Tolerance for rounding errors: fractions do not add up to exact whole numbers.
NEARLY = 1e-6
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


class Buckets(Struct):
    """The token buckets of one workspace (the generic cell rate algorithm, ITU-T I.371): for each limit, when its
    bucket is full again on the monotonic clock, which one call puts off by its share of a minute."""

    limits: Limits
    full_at_s: dict[tuple[Call, str], float] = field(default_factory=dict)

    def wait_s(self, call: Call, channel: ConversationRef | None, now_s: float, spared: float = 0.0) -> float:
        """Seconds until ``call`` may be made in ``channel`` (None: in any) and leaves this much of each burst."""
        longest_s = 0.0
        for key, limit in self._of(call, channel):
            share_s = 60.0 / limit.per_minute
            may_miss_s = (limit.burst - 1 - int(limit.burst * spared)) * share_s
            wait_s = self.full_at_s.get(key, now_s) - may_miss_s - now_s
            if wait_s > max(longest_s, NEARLY * share_s):
                longest_s = wait_s
        return longest_s

    def take(self, call: Call, channel: ConversationRef, now_s: float) -> None:
        """Count a call made now."""
        for key, limit in self._of(call, channel):
            self.full_at_s[key] = max(now_s, self.full_at_s.get(key, now_s)) + 60.0 / limit.per_minute

    def pause(self, call: Call, channel: ConversationRef, seconds: float, now_s: float) -> None:
        """The chat refused it for ``seconds``: no calls until then, and no burst right after. If there is a limit per
        channel, only that bucket pauses."""
        for key, limit in self._of(call, channel):
            empty_s = now_s + seconds + limit.burst * 60.0 / limit.per_minute
            self.full_at_s[key] = max(empty_s, self.full_at_s.get(key, empty_s))
            return

    def _of(self, call: Call, channel: ConversationRef | None) -> Iterator[tuple[tuple[Call, str], Limit]]:
        """The narrowest limit first."""
        if channel is not None:
            limits = self.limits
            is_private = limits.is_private is not None and limits.is_private(channel)
            if limit := (limits.private if is_private else limits.channel).get(call):
                yield (call, channel), limit
        if limit := self.limits.workspace.get(call):
            yield (call, ""), limit


class WaitingCall(Struct, kw_only=True, eq=False):
    """A waiting call, not to be made before ``from_s``; ``is_busy`` while in flight. ``number``: its age.
    ``turn``: a future of its queue, done when its turn has come; None while it is in no queue.

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
    turn: Any = None


class State(Struct, frozen=True):
    """The rest of the planner's input. ``closed``: channels closed to us, and when to retry them. ``marks``: whether
    marks are known to be set; None: unknown. ``served``: how recently a channel's calls were made."""

    now_s: float
    has_token: bool = True
    closed: Mapping[ConversationRef, float] = field(default_factory=dict)
    marks: Mapping[Line, bool | None] = field(default_factory=dict)
    served: Mapping[tuple[Call, ConversationRef], int] = field(default_factory=dict)


class CallPlan(Struct, frozen=True):
    """The calls to start, in this order, and those to drop; ``until_s``: when to plan again if nothing changes."""

    begin: tuple[WaitingCall, ...]
    drop: tuple[WaitingCall, ...]
    until_s: float | None


def plan(lines: Iterable[Sequence[WaitingCall]], buckets: Buckets, state: State) -> CallPlan:
    """``lines`` hold waiting and in-flight calls, each in order, none empty. ``buckets`` are not changed."""
    queued = list(lines)
    heads = [
        (line[0], line[0]) if len(line) == 1 else _head(line)
        for line in queued
        if not any(each.is_busy for each in line)
    ]
    # Drop a call that would set or remove a mark that is already set or removed.
    marks = [waiting for waiting, _ in heads if waiting.call in ("react", "unreact")]
    if drop := [mark for mark in marks if state.marks.get(mark.line) is (mark.call == "react")]:
        return CallPlan((), tuple(drop), state.now_s)
    limit = buckets.limits.workspace.get("unreact")
    removals = sum(line[0].call == "unreact" for line in queued)
    deciding = _PlanningRound(
        state=state,
        buckets=replace(buckets, full_at_s=dict(buckets.full_at_s)),
        unmarked={line[0].line[:3] for line in queued if line[0].call == "react"},
        leaves_signs_out=limit is not None and removals >= limit.burst * REMOVALS_DUE,
        tried={each.channel for line in queued for each in line if each.is_busy and each.is_lasting},
    )
    order = [
        (RANK[dearest.value], state.served.get((waiting.call, waiting.channel), 0), dearest.number, at)
        for at, (waiting, dearest) in enumerate(heads)
    ]
    for *_, at in sorted(order):
        waiting, dearest = heads[at]
        deciding.decide(waiting, dearest.value)
    until_s = state.now_s if deciding.drop else deciding.until_s
    return CallPlan(tuple(deciding.begin), tuple(deciding.drop), None if until_s == inf else until_s)


def _head(line: Sequence[WaitingCall]) -> tuple[WaitingCall, WaitingCall]:
    """The next call of a line, and the most valuable one behind it, which gives the line its rank. Posts keep their
    order, but do not wait for progress."""
    posts = [each for each in line if each.value != "progress"] or line
    return posts[0], min(posts, key=lambda each: (RANK[each.value], each.number))


class _PlanningRound(Struct, kw_only=True):
    """One pass over all waiting calls. ``buckets`` are a copy, which it uses up. ``unmarked``: messages that get a
    mark: it is set before another one is removed, so that one always shows. ``tried``: only one call at a time checks
    whether a closed channel is open again. ``anywhere_s``: seconds until such a call can be made in any channel, so
    that many waiting ones are skipped quickly."""

    state: State
    buckets: Buckets
    unmarked: Set[Line]
    leaves_signs_out: bool
    tried: set[ConversationRef]
    anywhere_s: dict[tuple[Call, Value], float] = field(default_factory=dict)
    begin: list[WaitingCall] = field(default_factory=list)
    drop: list[WaitingCall] = field(default_factory=list)
    until_s: float = inf

    def decide(self, waiting: WaitingCall, value: Value) -> None:
        """Start it, drop it, or note when to look again; ``value`` is its line's."""
        now_s, call, channel, closed = self.state.now_s, waiting.call, waiting.channel, self.state.closed
        spared = 0.0 if call in READS else SPARED[value]
        if call == "post" and value == "progress":
            spared = PROGRESS_POSTS
        if (wait_s := self.anywhere_s.get((call, value))) is None:
            wait_s = self.anywhere_s[call, value] = self.buckets.wait_s(call, None, now_s, spared)
        if wait_s > 0 and (call, value) != ("react", "sign"):
            self.until_s = min(self.until_s, now_s + wait_s)
            return
        is_closed = waiting.is_lasting and channel in closed
        if (
            (waiting.needs_token and not self.state.has_token)
            or (is_closed and channel in self.tried)
            or (call == "unreact" and waiting.line[:3] in self.unmarked)
        ):
            return  # something else has to happen first, which causes a new plan
        if (from_s := max(waiting.from_s, closed[channel] if is_closed else 0.0)) > now_s:
            self.until_s = min(self.until_s, from_s)
            return
        wait_s = self.buckets.wait_s(call, channel, now_s, spared)
        is_sign = call == "react" and waiting.value == "sign"
        if is_sign and (wait_s > PATIENCE_S or self.leaves_signs_out):
            # There is no room for it now, and removing it would cost another call.
            self.drop.append(waiting)
        elif wait_s > 0:
            self.until_s = min(self.until_s, now_s + wait_s)
        else:
            self.buckets.take(call, channel, now_s)
            self.anywhere_s.clear()
            self.tried.add(channel)
            self.begin.append(waiting)
