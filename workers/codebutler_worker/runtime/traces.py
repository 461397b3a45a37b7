"""The parts of a run for the parent's trace: queued, the agent, its tools. Without a trace none of it exists."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable

from codebutler.domain.clock import Clock
from codebutler.domain.model import Event, MessagePosted
from codebutler.domain.refs import MessageRef
from codebutler.protocol.conversations import MOST_SPANS, SpanName, Traced, WorkSpan
from codebutler_worker.agents.backend import AgentEvent, ToolResult, ToolUse

MOST_WAITING = 1000
MOST_TOOLS = MOST_SPANS - 2
PLAIN = re.compile(r"[A-Za-z0-9_.:-]{1,60}")


class Traces:
    """Messages that came with a trace and whose run has not started. It ends with the process."""

    def __init__(self, clock: Clock, send: Callable[[object], None]) -> None:
        self._clock = clock
        self._send = send
        self.open: OrderedDict[MessageRef, tuple[str, int]] = OrderedDict()

    def came(self, event: Event, trace: str) -> None:
        """The event is stored, and its run can be queued."""
        if isinstance(event, MessagePosted):
            self.open[event.ref] = trace, _now(self._clock)
            while len(self.open) > MOST_WAITING:
                self.open.popitem(last=False)

    def begin(self, messages: Iterable[MessageRef], agent: str) -> RunTrace | None:
        """A run for these messages begins; None without a trace. It is in the first one's trace; the others' show how
        long they were queued."""
        traced = [self.open.pop(ref) for ref in messages if ref in self.open]
        if not traced:
            return None
        now = _now(self._clock)
        for trace, came in traced[1:]:
            self._send(Traced(trace=trace, spans=(WorkSpan(name="queued", began=came, ended=now),)))
        return RunTrace(self._clock, self._send, *traced[0], agent)


class RunTrace:
    """One run's parts, sent at its end."""

    def __init__(
        self, clock: Clock, send: Callable[[object], None], trace: str, came: int, agent: str
    ) -> None:
        self._clock = clock
        self._send = send
        self._trace = trace
        self._began = _now(clock)
        self._agent = agent
        self._spans = [WorkSpan(name="queued", began=came, ended=self._began)]
        self._tools: dict[str, tuple[str, int]] = {}

    def record(self, event: AgentEvent) -> None:
        """The agent does something."""
        if isinstance(event, ToolUse) and len(self._spans) + len(self._tools) < MOST_TOOLS:
            self._tools[event.id] = event.name, _now(self._clock)
        elif isinstance(event, ToolResult) and (found := self._tools.pop(event.id, None)) is not None:
            self._add("tool", found[1], found[0])

    def end(self) -> None:
        """The run has its result."""
        for name, began in self._tools.values():
            self._add("tool", began, name)
        self._add("agent", self._began, self._agent)
        self._send(Traced(trace=self._trace, spans=tuple(self._spans)))

    def _add(self, name: SpanName, began: int, label: str) -> None:
        # An agent may name a tool as it likes.
        label = label if PLAIN.fullmatch(label) else ""
        self._spans.append(WorkSpan(name=name, began=began, ended=_now(self._clock), label=label))


def _now(clock: Clock) -> int:
    return int(clock.now().timestamp() * 1_000_000) * 1000
