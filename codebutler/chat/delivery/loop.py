"""The queue: asks the planner which calls to make now, starts them, and sleeps until there is more to do."""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import count

from codebutler.chat.delivery.planner import Buckets, Line, State, WaitingCall, plan
from codebutler.chat.port import Call, Limits
from codebutler.domain.clock import Clock
from codebutler.domain.model import Value
from codebutler.domain.refs import ConversationRef
from codebutler.observe.metrics import CallCounts
from codebutler.platform.tasks import BoundedDict

REMEMBERED = 10_000
# A shorter sleep would only give the same plan again.
LEAST_S = 1e-3


class Loop:
    """Runs the queue: ``enter`` a call, and await its ``turn``: True, or False if it leaves before. A call whose
    turn has come is in flight until it waits ``again`` or may ``leave``.

    ``marks``: whether the marks on messages are set; None: unknown. ``counts``: how many calls there were.
    """

    def __init__(self, limits: Limits, clock: Clock) -> None:
        self.counts = CallCounts()
        self.marks: BoundedDict[Line, bool | None] = BoundedDict(REMEMBERED)
        self._clock = clock
        self._buckets = Buckets(limits)
        self._lines: dict[Line, deque[WaitingCall]] = {}
        self._numbers = count(1)
        self._has_token = True
        self._closed: dict[ConversationRef, float] = {}
        self._served: BoundedDict[tuple[Call, ConversationRef], int] = BoundedDict(REMEMBERED)
        self._begun = 0
        self._alarm: asyncio.Task[None] | None = None
        self._is_woken = False
        self._is_over = False

    def enter(self, waiting: WaitingCall, *, replaces: bool = False) -> None:
        """Queue it at the end of its line; or, if it ``replaces`` what waits there, in the place of that."""
        if replaces and waiting.line in self._lines:
            for older in self.waits(waiting.line):
                waiting.number = older.number
                self.drop(older)
        waiting.turn = asyncio.get_running_loop().create_future()
        waiting.number = waiting.number or next(self._numbers)
        self._lines.setdefault(waiting.line, deque()).append(waiting)
        self.wake()

    def leave(self, waiting: WaitingCall) -> None:
        """The call is finished, or nobody needs it."""
        if (turn := waiting.turn) is not None:
            waiting.turn = None
            line = self._lines[waiting.line]
            line.remove(waiting)
            if not line:
                del self._lines[waiting.line]
            if not turn.done():
                turn.set_result(False)
            self.wake()

    def drop(self, waiting: WaitingCall) -> None:
        """It has become pointless."""
        self.counts.dropped[waiting.call] += 1
        self.leave(waiting)

    def again(self, waiting: WaitingCall, after_s: float = 0.0) -> None:
        """Call it once more."""
        waiting.is_busy = False
        waiting.from_s = self._clock.monotonic() + after_s
        if waiting.turn is not None:
            waiting.turn = asyncio.get_running_loop().create_future()
        self.wake()

    def waits(self, line: Line) -> list[WaitingCall]:
        """The waiting calls in that line that are not in flight, in order."""
        return [each for each in self._lines.get(line, ()) if not each.is_busy]

    def wake(self) -> None:
        """Something has changed: plan a moment later, together with what else changes now."""
        if not self._is_woken and not self._is_over:
            self._is_woken = True
            asyncio.get_running_loop().call_soon(self._step)

    async def claim(
        self, call: Call, channel: ConversationRef, value: Value = "progress", *, needs_token: bool = True
    ) -> None:
        """Wait until a call may be made; the caller makes it."""
        number = next(self._numbers)
        waiting = WaitingCall(
            call=call,
            channel=channel,
            line=(channel, "claim", str(number)),
            value=value,
            number=number,
            needs_token=needs_token,
        )
        self.enter(waiting)
        try:
            if waiting.turn is not None:
                await waiting.turn
        finally:
            self.leave(waiting)

    def is_free(self, call: Call, channel: ConversationRef) -> bool:
        """Whether it may be made now; if so, the call is counted."""
        now_s = self._clock.monotonic()
        if not self._has_token or self._buckets.wait_s(call, channel, now_s) > 0:
            return False
        self._buckets.take(call, channel, now_s)
        return True

    def pause(self, call: Call, channel: ConversationRef, seconds: float) -> None:
        """The chat asked us to wait."""
        self.counts.limited[call] += 1
        self._buckets.pause(call, channel, seconds, self._clock.monotonic())
        self.wake()

    def token(self, *, works: bool) -> None:
        """Whether the chat accepts our token."""
        self._has_token = works
        self.wake()

    def closed(self, channel: ConversationRef, for_s: float | None) -> None:
        """The channel is closed to us, and is retried in that many seconds; None: it is open."""
        if for_s is None:
            self._closed.pop(channel, None)
        else:
            self._closed[channel] = self._clock.monotonic() + for_s
        self.wake()

    def is_closed(self, waiting: WaitingCall) -> bool:
        """Whether it is waiting for its channel to open."""
        return waiting.is_lasting and waiting.channel in self._closed

    async def close(self) -> None:
        """Start nothing more."""
        self._is_over = True
        for waiting in (each for line in self._lines.values() for each in line):
            waiting.turn = None
        self._lines.clear()
        if self._alarm is not None:
            self._alarm.cancel()
            await asyncio.gather(self._alarm, return_exceptions=True)

    def _step(self) -> None:
        """One step: plan, start calls, and set the time of the next plan."""
        self._is_woken = False
        if self._is_over:
            return
        state = State(self._clock.monotonic(), self._has_token, self._closed, self.marks, self._served)
        decided = plan(self._lines.values(), self._buckets, state)
        for waiting in decided.drop:
            self.drop(waiting)
        for waiting in decided.begin:
            waiting.is_busy = True
            self._buckets.take(waiting.call, waiting.channel, state.now_s)
            self._begun += 1
            self.counts.made[waiting.call] += 1
            self._served[waiting.call, waiting.channel] = self._begun
            if waiting.turn is not None and not waiting.turn.done():  # its task may have been cancelled
                waiting.turn.set_result(True)
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if decided.until_s is not None and not self._is_woken:
            self._alarm = asyncio.create_task(self._wake_at(decided.until_s), name="delivery")

    async def _wake_at(self, moment_s: float) -> None:
        await self._clock.sleep(max(LEAST_S, moment_s - self._clock.monotonic()))
        self.wake()
