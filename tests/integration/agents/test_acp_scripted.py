"""Any agent that speaks the Agent Client Protocol: a scripted one does what the real ones do not, or should not."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from codebutler.config.schema import CommandRule
from codebutler.domain.clock import SystemClock
from codebutler_worker.agents.acp.agent import AcpAgent
from codebutler_worker.agents.acp.backend import AcpBackend
from codebutler_worker.agents.backend import (
    AgentEvent,
    Answer,
    Approval,
    Finished,
    Plan,
    Question,
    Started,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    TurnRequest,
    Usage,
    Withdrawn,
)
from codebutler_worker.agents.process import TimeLimits
from codebutler_worker.agents.running import BUSY, AgentContext
from codebutler_worker.tools.tool import PlanStep
from tests.turns import end, heard, undecided
from tests.walls import NoWalls

AGENT = Path(__file__).parents[2] / "acpagent" / "agent.py"
DEADLINE_S = 60


def backend(tmp_path: Path, temper: str, limits: TimeLimits | None = None) -> AcpBackend:
    rule = CommandRule(
        prefix="other", binary=sys.executable, args=(str(AGENT), temper), mode="acp", description="The Other"
    )
    return AcpBackend(
        AcpAgent(rule, tmp_path, {}, timeout_minutes=30), AgentContext(NoWalls(), SystemClock()), limits
    )


def turn(repo: Path, prompt: str = "go", session_id: str | None = None, **more: str) -> TurnRequest:
    return TurnRequest(
        turn_id="t",
        conversation="c",
        prompt=prompt,
        workdir=repo,
        session_id=session_id,
        system_prompt=more.get("system_prompt", ""),
    )


async def run(
    agent: AcpBackend, request: TurnRequest, decide: Callable[[AgentEvent], Answer | None] = undecided
) -> list[AgentEvent]:
    events = await heard(agent, request, decide)
    await agent.close()
    return events


async def test_what_it_does_is_told_in_order(tmp_path: Path, git_repo: Path) -> None:
    events = await run(backend(tmp_path, "tools"), turn(git_repo))
    assert events == [
        Started("sess-1"),
        Thinking(""),
        Thinking("Let me see."),
        Text("I will look."),
        ToolUse("c1", "Read", "src/app.py", {"path": "src/app.py"}),
        ToolResult("c1", ok=True, text="def greet"),
        ToolUse("c2", "Execute", "Run the tests", {}),
        ToolResult("c2", ok=False, text="1 failed"),
        Plan((PlanStep("Mend it", "done"),)),
        Text("Seen."),
        Finished(ok=True, text="Seen.", reason="done", usage=Usage(10, 2, 0.75, 1), total_cost_usd=0.75),
    ]


async def test_garbage_floods_and_strangers_are_passed_over(tmp_path: Path, git_repo: Path) -> None:
    events = await run(backend(tmp_path, "mad"), turn(git_repo))
    assert [event for event in events if isinstance(event, Text)] == [Text("Sane in the end.")]
    assert (end(events).ok, end(events).text) == (True, "Sane in the end.")


async def test_files_and_terminals_of_ours_are_not_given(tmp_path: Path, git_repo: Path) -> None:
    events = await run(backend(tmp_path, "reaches"), turn(git_repo))
    assert end(events).text == "-32601 -32601 -32601"


async def test_leave_is_asked_of_people_and_remembered_by_us_alone(tmp_path: Path, git_repo: Path) -> None:
    answers = {"Approval": Answer(allow=True), "Question": Answer(allow=True, text="Blue")}
    events = await run(backend(tmp_path, "asks"), turn(git_repo), lambda event: answers[type(event).__name__])
    [approval] = [event for event in events if isinstance(event, Approval)]
    assert (approval.tool, approval.summary) == ("Other", "Edit a")
    assert approval.input["changes"] == [{"path": "/r/a", "old": "1", "new": "2"}]
    [question] = [event for event in events if isinstance(event, Question)]
    assert (question.text, question.options) == ("Which?", ("Red", "Blue"))
    assert end(events).text == "id-yes id-Blue"


async def test_what_is_no_longer_asked_is_withdrawn(tmp_path: Path, git_repo: Path) -> None:
    events = await run(backend(tmp_path, "hasty"), turn(git_repo))
    [asked] = [event for event in events if isinstance(event, Approval)]
    assert Withdrawn(asked.id) in events
    assert end(events).text == "cancelled"


async def test_what_no_option_says_is_said_when_it_ends(tmp_path: Path, git_repo: Path) -> None:
    answers = {
        "Approval": Answer(allow=False, text="not that file"),
        "Question": Answer(allow=True, text="green, if you have it"),
    }
    events = await run(backend(tmp_path, "asks"), turn(git_repo), lambda event: answers[type(event).__name__])
    assert Text("id-no id-Skip") in events
    assert "About Edit a: not that file" in end(events).text
    assert "About Colour: green, if you have it" in end(events).text


async def test_instructions_come_before_the_first_prompt_only(tmp_path: Path, git_repo: Path) -> None:
    first = await run(backend(tmp_path, "plain"), turn(git_repo, system_prompt="Be brief."))
    assert end(first).text == "You said: Be brief.\n\ngo"
    later = await run(
        backend(tmp_path, "plain"), turn(git_repo, "/more", session_id="sess-1", system_prompt="Be brief.")
    )
    assert end(later).text == "You said:  /more"


@pytest.mark.parametrize("temper", ["plain", "loads"])
async def test_a_session_goes_on_without_its_past_being_told_again(
    tmp_path: Path, git_repo: Path, temper: str
) -> None:
    events = await run(backend(tmp_path, temper), turn(git_repo, session_id="sess-1"))
    assert events[0] == Started("sess-1")
    assert [event for event in events if isinstance(event, Text)] == [Text("You said: go")]


async def test_one_without_memory_has_sessions_without_a_name(tmp_path: Path, git_repo: Path) -> None:
    for known in (None, ""):
        events = await run(backend(tmp_path, "forgetful"), turn(git_repo, session_id=known))
        assert events[0] == Started("")
        assert end(events).ok


@pytest.mark.parametrize("temper", ["plain", "loads"])
async def test_a_session_that_cannot_go_on_is_replaced(tmp_path: Path, git_repo: Path, temper: str) -> None:
    events = await run(backend(tmp_path, temper), turn(git_repo, session_id="lost"))
    assert events[0] == Started("sess-1", fresh=True)
    assert end(events).ok


@pytest.mark.parametrize(
    ("temper", "reason", "told"),
    [
        (
            "stub",
            "unavailable",
            "does not speak the Agent Client Protocol: it exited immediately (exit code 0): kimi-cli",
        ),
        ("version", "unavailable", "speaks version 9 of the Agent Client Protocol"),
        ("locked", "auth", f"log in by running `{Path(sys.executable).name}`"),
        ("dies", "failed", "ended without an answer (exit code 3): out of something"),
        ("bequeaths", "failed", "ended without an answer (exit code 3): out of something"),
        ("wordless", "failed", "ended without an answer"),
    ],
)
async def test_what_goes_wrong_is_one_line(
    tmp_path: Path, git_repo: Path, temper: str, reason: str, told: str
) -> None:
    finished = end(await run(backend(tmp_path, temper), turn(git_repo)))
    assert (finished.ok, finished.reason) == (False, reason)
    assert told in finished.text
    assert "The Other" in finished.text
    assert "\n" not in finished.text


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("end_turn", "done"),
        ("max_turn_requests", "max_turns"),
        ("max_tokens", "failed"),
        ("refusal", "failed"),
        ("cancelled", "stopped"),
        ("made_up", "unavailable"),
    ],
)
async def test_each_way_to_stop_is_known(tmp_path: Path, git_repo: Path, said: str, reason: str) -> None:
    assert end(await run(backend(tmp_path, "stops"), turn(git_repo, said))).reason == reason


async def test_who_does_not_answer_is_ended(tmp_path: Path, git_repo: Path) -> None:
    limits = TimeLimits(600, start_s=0.5)
    finished = end(await run(backend(tmp_path, "deaf", limits), turn(git_repo)))
    assert finished.reason == "unavailable"
    assert "does not answer" in finished.text


async def test_silence_and_length_have_limits(tmp_path: Path, git_repo: Path) -> None:
    silent = await run(backend(tmp_path, "stubborn", TimeLimits(600, stall_s=0.5)), turn(git_repo))
    assert end(silent).reason == "stalled"
    long = await run(backend(tmp_path, "stubborn", TimeLimits(1.0)), turn(git_repo))
    assert end(long).reason == "timeout"
    assert "session.timeoutMinutes" in end(long).text


async def test_one_that_does_not_take_a_cancel_is_ended(tmp_path: Path, git_repo: Path) -> None:
    agent = backend(tmp_path, "stubborn", TimeLimits(600, stop_s=0.2))
    events = agent.start(turn(git_repo))
    async with asyncio.timeout(DEADLINE_S):
        async for event in events:
            if isinstance(event, Started):
                break
        stop = asyncio.create_task(agent.stop("t"))
        rest = [event async for event in events]
        await stop
    assert isinstance(rest[-1], Finished)
    assert rest[-1].reason == "stopped"
    await agent.close()


async def test_a_turn_that_is_not_ready_yet_can_be_stopped(tmp_path: Path, git_repo: Path) -> None:
    waiting, never = asyncio.Event(), asyncio.Event()

    async def ready() -> None:
        waiting.set()
        await never.wait()

    agent = backend(tmp_path, "plain")
    request = replace(turn(git_repo), ready=ready)
    async with asyncio.timeout(DEADLINE_S):
        running = asyncio.create_task(run(agent, request))
        await waiting.wait()
        await agent.stop("t")
        assert [event for event in await running if not isinstance(event, Finished)] == []
    assert end(running.result()).reason == "stopped"


async def test_one_session_has_one_turn(tmp_path: Path, git_repo: Path) -> None:
    agent = backend(tmp_path, "plain")
    working = agent.start(turn(git_repo, "work", session_id="sess-1"))
    async with asyncio.timeout(DEADLINE_S):
        async for event in working:
            if isinstance(event, Started):
                break
        second = TurnRequest(turn_id="u", conversation="c", prompt="x", workdir=git_repo, session_id="sess-1")
        refused = [event async for event in agent.start(second)]
        assert refused == [Finished(ok=False, text=BUSY, reason="failed")]
        await agent.close()
        assert any([isinstance(event, Finished) async for event in working])


async def test_a_program_that_is_not_there_is_named(tmp_path: Path, git_repo: Path) -> None:
    rule = CommandRule(prefix="gone", binary="nowhere-to-be-found", mode="acp")
    agent = AcpBackend(
        AcpAgent(rule, tmp_path, {}, timeout_minutes=30), AgentContext(NoWalls(), SystemClock())
    )
    finished = end(await run(agent, turn(git_repo)))
    assert finished.reason == "unavailable"
    assert "nowhere-to-be-found is not installed" in finished.text
