"""The trace of a message, whatever its worker reports."""

from __future__ import annotations

from collections.abc import Sequence

from codebutler.observe.tracing import MOST_OPEN, RunSpan, Tracing
from codebutler.protocol.conversations import Traced, WorkSpan
from tests.clock import ManualClock
from tests.events import edited, posted


class Traces:
    """What was exported."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.spans: list[RunSpan] = []
        self.tracing = Tracing(self._take, self.clock)

    def _take(self, spans: Sequence[RunSpan]) -> None:
        self.spans += spans

    def says(self, ref: str, text: str = "secret words") -> str:
        event = posted(channel="C01", ref=ref, user="U01", text=text)
        return self.tracing.delivered(event, self.clock.now())

    def now(self) -> int:
        return int(self.clock.now().timestamp() * 1_000_000) * 1000

    def named(self, name: str) -> list[RunSpan]:
        return [span for span in self.spans if span.name == name]


async def test_a_run_is_one_trace_from_the_message_to_its_answer() -> None:
    traces = Traces()
    context = traces.says("1.0")
    times = []
    for _ in range(6):
        times.append(traces.now())
        await traces.clock.advance(1)
    parts = (
        WorkSpan(name="queued", began=times[1], ended=times[2]),
        WorkSpan(name="tool", began=times[3], ended=times[4], label="Bash"),
        WorkSpan(name="agent", began=times[2], ended=times[5], label="claude"),
    )
    traces.tracing.worked("shop", "C01", Traced(trace=context, spans=parts))
    traces.tracing.ended("shop", "C01", ("1.0",), "done")
    [root], [agent], [tool] = traces.named("message"), traces.named("agent"), traces.named("tool")
    assert {span.trace for span in traces.spans} == {context.split("-")[1]}
    assert (root.id, root.parent, root.ended) == (context.split("-")[2], "", traces.now())
    assert tool.parent == agent.id
    assert {span.parent for span in traces.spans if span not in (root, tool)} == {root.id}
    assert [span.name for span in traces.spans] == [
        "journal", "delivery", "queued", "tool", "agent", "answer", "message",
    ]  # fmt: skip
    assert (traces.named("delivery")[0].ended, traces.named("answer")[0].began) == (times[1], times[5])
    assert len({span.id for span in traces.spans}) == len(traces.spans)
    assert tool.attributes == {"codebutler.repo": "shop", "codebutler.tool": "Bash"}
    assert root.attributes == {"codebutler.repo": "shop", "codebutler.outcome": "done"}
    assert "secret" not in repr(traces.spans)


async def test_an_outcome_that_is_told_again_ends_nothing_twice() -> None:
    traces = Traces()
    traces.says("1.0")
    for _ in range(2):
        traces.tracing.ended("shop", "C01", ("1.0", "unknown"), "failed")
    [root] = traces.named("message")
    assert root.failed
    assert traces.named("answer") == []


async def test_a_message_that_is_delivered_again_stays_in_its_trace() -> None:
    traces = Traces()
    assert traces.says("1.0") == traces.says("1.0")
    assert traces.says("1.0") != traces.says("2.0")
    edit = edited(channel="C01", ref="1.0", user="U01", text="no", edit="2.0")
    assert traces.tracing.delivered(edit, traces.clock.now()) == ""


async def test_what_a_worker_reports_of_others_or_of_other_times_is_dropped() -> None:
    traces = Traces()
    context = traces.says("1.0")
    before, now = traces.now() - 10**9, traces.now()
    await traces.clock.advance(1)
    wrong = (
        WorkSpan(name="agent", began=before, ended=now),
        WorkSpan(name="agent", began=now, ended=traces.now() + 10**12),
        WorkSpan(name="agent", began=traces.now(), ended=now),
    )
    good = WorkSpan(name="agent", began=now, ended=now)
    traces.tracing.worked("shop", "C01", Traced(trace=context, spans=wrong))
    traces.tracing.worked("shop", "C02", Traced(trace=context, spans=(good,)))
    traces.tracing.worked("shop", "C01", Traced(trace=f"00-{'0' * 32}-{'1' * 16}-01", spans=(good,)))
    assert traces.named("agent") == []


async def test_messages_that_never_end_are_forgotten() -> None:
    traces = Traces()
    for number in range(MOST_OPEN + 1):
        traces.says(f"{number}.0")
    traces.tracing.ended("shop", "C01", ("0.0", f"{MOST_OPEN}.0"), "done")
    assert len(traces.named("message")) == 1
