"""What a worker reports of a run for its trace."""

from __future__ import annotations

from codebutler.protocol.conversations import MOST_SPANS, Traced
from codebutler_worker.agents.backend import Text, ToolResult, ToolUse
from codebutler_worker.runtime.traces import MOST_WAITING, Traces
from tests.clock import ManualClock
from tests.events import posted

ONE, OTHER = (f"00-{digit * 32}-{'b' * 16}-01" for digit in "12")


class Reporting:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.sent: list[object] = []
        self.traces = Traces(self.clock, self.sent.append)

    def comes(self, ref: str, trace: str) -> None:
        self.traces.came(posted(channel="C01", ref=ref, user="U01", text="words"), trace)


async def test_a_run_reports_how_long_it_was_queued_and_each_tool() -> None:
    on = Reporting()
    on.comes("1.0", ONE)
    await on.clock.advance(2)
    run = on.traces.begin(("1.0",), "claude")
    assert run is not None
    run.record(ToolUse("a", "Bash", "cat .env", {"command": "cat .env"}))
    run.record(Text("words"))
    await on.clock.advance(1)
    run.record(ToolResult("a", True, "TOKEN=abc"))
    run.record(ToolResult("unknown", True, ""))
    run.record(ToolUse("b", "Read the file ~/.env", "~/.env"))
    await on.clock.advance(1)
    run.end()
    [told] = on.sent
    assert isinstance(told, Traced)
    assert told.trace == ONE
    found = [(part.name, part.label, (part.ended - part.began) / 1e9) for part in told.spans]
    assert found == [("queued", "", 2.0), ("tool", "Bash", 1.0), ("tool", "", 1.0), ("agent", "claude", 2.0)]
    assert ".env" not in repr(told)


async def test_without_a_trace_nothing_is_reported() -> None:
    on = Reporting()
    assert on.traces.begin(("1.0",), "claude") is None
    assert on.sent == []


async def test_of_several_messages_the_first_has_the_run_and_the_others_their_wait() -> None:
    on = Reporting()
    on.comes("1.0", ONE)
    on.comes("2.0", OTHER)
    run = on.traces.begin(("1.0", "2.0"), "claude")
    assert run is not None
    run.end()
    told = [(each.trace, [part.name for part in each.spans]) for each in on.sent if isinstance(each, Traced)]
    assert told == [(OTHER, ["queued"]), (ONE, ["queued", "agent"])]
    assert on.traces.begin(("1.0",), "claude") is None


async def test_a_run_of_very_many_tools_fits_into_its_report() -> None:
    on = Reporting()
    on.comes("1.0", ONE)
    run = on.traces.begin(("1.0",), "claude")
    assert run is not None
    for number in range(2 * MOST_SPANS):
        run.record(ToolUse(str(number), "Bash", ""))
        if number % 2:
            run.record(ToolResult(str(number), True, ""))
    run.end()
    [told] = on.sent
    assert isinstance(told, Traced)
    assert len(told.spans) <= MOST_SPANS


async def test_messages_without_a_run_are_forgotten() -> None:
    on = Reporting()
    for number in range(MOST_WAITING + 1):
        on.comes(f"{number}.0", ONE)
    assert on.traces.begin(("0.0",), "claude") is None
    assert on.traces.begin((f"{MOST_WAITING}.0",), "claude") is not None
