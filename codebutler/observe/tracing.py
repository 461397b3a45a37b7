"""A trace of each message: received, on disk, delivered, queued, the agent with its tools, the answer posted.

Off unless the configuration names a collector (``tracing.endpoint``); then nothing of this runs. IDs follow from the
event's key, so a message that is delivered again after a restart stays in its trace. Spans hold names of repositories,
agents and tools, times and outcomes: nothing that a person or an agent wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from types import MappingProxyType

from msgspec import Struct, field
from msgspec.structs import replace

from codebutler.domain.clock import Clock
from codebutler.domain.model import Event, MessagePosted, TurnOutcome
from codebutler.domain.refs import ConversationRef, MessageRef
from codebutler.platform.tasks import BoundedDict
from codebutler.protocol.conversations import Traced, WorkSpan

MOST_OPEN = 1000
"""How many messages without an outcome are remembered; the first span of older ones is missing."""
FAILURES = frozenset({"failed", "interrupted"})
NOTHING: Mapping[str, str] = MappingProxyType({})


class RunSpan(Struct, frozen=True, kw_only=True):
    """One span; times in nanoseconds since the epoch, IDs in hex. ``parent`` "" = the trace's first span."""

    trace: str
    id: str
    name: str
    began: int
    ended: int
    parent: str = ""
    attributes: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    failed: bool = False


class _OpenTrace(Struct):
    """A message that has no outcome yet. ``worked`` is when its run had a result."""

    trace: str
    root: str
    began: int
    delivered: int
    worked: int = 0


Export = Callable[[Sequence[RunSpan]], None]
"""Passes spans on; never blocks and never fails."""


class Tracing:
    """The traces of all repositories."""

    def __init__(self, export: Export, clock: Clock) -> None:
        self._export = export
        self._clock = clock
        self._open: BoundedDict[tuple[ConversationRef, MessageRef], _OpenTrace] = BoundedDict(MOST_OPEN)

    def delivered(self, event: Event, received_at: datetime) -> str:
        """The event is delivered to its worker now; returns the trace context for it, "" if it is not a message."""
        if not isinstance(event, MessagePosted):
            return ""
        trace, root = _ids(event.key, 16), _ids(f"root:{event.key}", 8)
        now, began = self._now(), _nanoseconds(received_at)
        self._open[event.channel, event.ref] = _OpenTrace(trace, root, began, now)
        self._tell(
            RunSpan(
                trace=trace,
                id=_ids(f"journal:{root}", 8),
                parent=root,
                name="journal",
                began=began,
                ended=now,
            )
        )
        return f"00-{trace}-{root}-01"

    def worked(self, repo: str, channel: ConversationRef, traced: Traced) -> None:
        """A worker reports the parts of a run. It is less trusted: reports about other workers' messages, or about
        another time, are dropped."""
        trace, now = traced.trace.split("-")[1], self._now()
        found = next(
            (each for (place, _), each in self._open.items() if place == channel and each.trace == trace),
            None,
        )
        if found is None:
            return
        spans = [span for span in traced.spans if found.began <= span.began <= span.ended <= now]
        self._tell(*_spans(found, repo, spans))
        found.worked = max((span.ended for span in spans if span.name == "agent"), default=0)

    def ended(
        self, repo: str, channel: ConversationRef, messages: Sequence[MessageRef], outcome: TurnOutcome
    ) -> None:
        """These messages have their outcome, and their answer is in the chat. A second report changes nothing."""
        now = self._now()
        for ref in messages:
            if (found := self._open.pop((channel, ref), None)) is None:
                continue
            one = RunSpan(trace=found.trace, id=found.root, name="message", began=found.began, ended=now)
            if found.worked:
                answer = replace(
                    one,
                    id=_ids(f"answer:{found.root}", 8),
                    parent=found.root,
                    name="answer",
                    began=found.worked,
                )
                self._tell(answer)
            attributes = {"codebutler.repo": repo, "codebutler.outcome": outcome}
            self._tell(replace(one, attributes=attributes, failed=outcome in FAILURES))

    def _tell(self, *spans: RunSpan) -> None:
        self._export(spans)

    def _now(self) -> int:
        return _nanoseconds(self._clock.now())


def _spans(of: _OpenTrace, repo: str, parts: Sequence[WorkSpan]) -> list[RunSpan]:
    """The worker's parts as spans: a tool's is within the agent's."""
    agent = _ids(f"agent:{of.root}", 8)
    found = []
    queued = min((part.began for part in parts if part.name == "queued"), default=0)
    if queued > of.delivered:
        id_ = _ids(f"delivery:{of.root}", 8)
        found.append(
            RunSpan(trace=of.trace, id=id_, parent=of.root, name="delivery", began=of.delivered, ended=queued)
        )
    for number, part in enumerate(parts):
        is_tool = part.name == "tool"
        attributes = {"codebutler.repo": repo}
        if part.label:
            attributes[f"codebutler.{part.name}"] = part.label
        found.append(
            RunSpan(
                trace=of.trace,
                id=agent if part.name == "agent" else _ids(f"{number}:{of.root}", 8),
                parent=agent if is_tool else of.root,
                name=part.name,
                began=part.began,
                ended=part.ended,
                attributes=attributes,
            )
        )
    return found


def _ids(key: str, size: int) -> str:
    return sha256(f"codebutler:{key}".encode()).hexdigest()[: 2 * size]


def _nanoseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1_000_000) * 1000
