"""The real Kimi Code behind the real walls, with its key outside of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

import pytest

from codebutler.config.git_repo import variables
from codebutler.config.schema import KimiSection, PermissionMode, Price, SandboxSection
from codebutler.domain.clock import SystemClock
from codebutler.platform.system import this_system
from codebutler_worker.agents.acp.backend import AcpBackend
from codebutler_worker.agents.acp.kimi import Kimi
from codebutler_worker.agents.backend import (
    AgentEvent,
    Answer,
    Approval,
    Finished,
    Plan,
    Question,
    Started,
    ToolResult,
    ToolUse,
    TurnRequest,
    Usage,
)
from codebutler_worker.agents.running import AgentContext
from codebutler_worker.egress.policy import for_agents
from codebutler_worker.sandbox.limits import AgentSandbox
from codebutler_worker.sandbox.process import descendants
from codebutler_worker.tools.talking import PUSH_ASKED, is_push_request
from codebutler_worker.tools.tool import PlanStep
from tests.integration.egress.test_local_ports import listening
from tests.modelserver.server import Call, ModelServer, Reply
from tests.programs import path_with_node, require
from tests.turns import end, heard, undecided
from tests.walls import walled

KEY = "sk-kept-outside-0123456789abcdef"
DEADLINE_S = 90


WALLED = SandboxSection(mode="bwrap")


@dataclass
class Cell:
    binary: Path
    model: ModelServer
    home: Path
    repo: Path

    def backend(
        self, mode: PermissionMode = "bypassPermissions", section: SandboxSection = WALLED
    ) -> AcpBackend:
        settings = KimiSection(
            binary=str(self.binary), api_key=KEY, base_url=f"{self.model.url}/v1", permission_mode=mode
        )
        prices = {"kimi-k2.6": Price(input=1000, output=10_000)}
        kimi = Kimi(settings, self.home, {"PATH": path_with_node()}, prices)
        sandbox = AgentSandbox(walled())
        sandbox.committer = variables({"user.name": "Ann", "user.email": "ann@example.org"})
        return AcpBackend(kimi, AgentContext(sandbox, SystemClock(), for_agents(section, "bwrap", {})))

    def turn(self, session_id: str | None = None, prompt: str = "go") -> TurnRequest:
        return TurnRequest(
            turn_id="t",
            conversation="c",
            prompt=prompt,
            workdir=self.repo,
            session_id=session_id,
            system_prompt="Stay inside.",
        )


@pytest.fixture
async def cell(tmp_path: Path, git_repo: Path) -> AsyncIterator[Cell]:
    require("bwrap")
    binary = require("kimi")
    home = tmp_path / "home"
    (home / ".kimi-code").mkdir(parents=True)
    (home / ".kimi-code" / "config.toml").write_text("telemetry = false\n")
    (home / "diary").write_text("private")
    async with ModelServer() as model:
        yield Cell(binary, model, home, git_repo)


async def run(
    backend: AcpBackend, turn: TurnRequest, decide: Callable[[AgentEvent], Answer | None] = undecided
) -> list[AgentEvent]:
    events = await heard(backend, turn, decide)
    await backend.close()
    return events


def shell(command: str) -> Reply:
    return Reply("", (Call("Bash", {"command": command, "description": "a command"}),))


async def test_it_works_in_the_repository_and_nowhere_else_without_its_key(cell: Cell) -> None:
    spoil = f"echo evil > {cell.home}/.kimi-code/config.toml; cat {cell.home}/diary"
    cell.model.play(shell(f"echo done > work.txt; {spoil}; env; echo user $(id -u)"), Reply("Finished."))
    events = await run(cell.backend(), cell.turn())
    assert (end(events).ok, end(events).text) == (True, "Finished.")
    used = end(events).usage
    assert (used.input_tokens, used.output_tokens, used.turns) == (200, 40, 2)
    assert used.cost_usd == pytest.approx(0.2 + 0.4)
    assert (cell.repo / "work.txt").read_text() == "done\n"
    assert (cell.home / ".kimi-code" / "config.toml").read_text() == "telemetry = false\n"
    [said] = [event.text for event in events if isinstance(event, ToolResult)]
    assert "KIMI_MODEL_API_KEY=codebutler-" in said
    assert KEY not in said
    assert "private" not in said
    assert "user 0" not in said
    assert set(cell.model.keys) == {KEY}


async def test_its_session_outlives_its_process_and_its_instructions_come_once(cell: Cell) -> None:
    cell.model.play(Reply("one"), Reply("two"))
    [first] = [event for event in await run(cell.backend(), cell.turn()) if isinstance(event, Started)]
    assert first.model
    # A slash would be a command of its own.
    again = await run(cell.backend(), cell.turn(first.session_id, "/compact everything"))
    assert [event for event in again if isinstance(event, Started)] == [first]
    assert end(again).text == "two"
    told = cell.model.said()
    assert "/compact everything" in told
    assert "one" in told
    assert told.count("Stay inside.") == 1
    assert {path.name for path in (cell.home / ".kimi-code").iterdir()} == {"config.toml", "sessions"}


async def test_any_directory_has_its_session_resumed(cell: Cell) -> None:
    cell.repo = cell.repo.rename(cell.repo.with_name("Café 🛒 日本"))
    cell.model.play(Reply("one"), Reply("two"))
    [first] = [event for event in await run(cell.backend(), cell.turn()) if isinstance(event, Started)]
    again = await run(cell.backend(), cell.turn(first.session_id))
    assert [event.session_id for event in again if isinstance(event, Started)] == [first.session_id]
    assert (end(again).text, end(again).usage.input_tokens) == ("two", 100)


async def test_a_service_that_fails_is_no_empty_success(cell: Cell) -> None:
    """Over the protocol Kimi Code 2.1.0 ends such a turn well, without a word."""
    cell.model.play(Reply(status=400, error="the prompt is too odd"))
    failed = end(await run(cell.backend(), cell.turn()))
    assert (failed.ok, failed.reason) == (False, "failed")
    assert "the prompt is too odd" in failed.text
    cell.model.play(Reply(status=401, error="bad key"))
    refused = end(await run(cell.backend(), cell.turn()))
    assert (refused.ok, refused.reason) == (False, "auth")
    assert "`kimi login`" in refused.text


async def test_what_it_has_begun_outlives_its_death(cell: Cell) -> None:
    cell.model.play(Reply("never said", hold=True))
    backend, session = cell.backend(), ""
    async with asyncio.timeout(DEADLINE_S):
        async with aclosing(backend.start(cell.turn(prompt="find MARKER-6"))) as events:
            async for event in events:
                if isinstance(event, Started):
                    session = event.session_id
                    break
        await backend.close()
    cell.model.play(Reply("Here."))
    cell.model.release.set()
    assert end(await run(cell.backend(), cell.turn(session, "go on"))).text == "Here."
    assert "MARKER-6" in cell.model.said()


async def test_a_service_that_is_down_is_waited_for_and_its_session_goes_on(cell: Cell) -> None:
    cell.model.play(*[Reply(status=500, error="boom")] * 4, Reply("Here it is."))
    events = await run(cell.backend(), cell.turn(prompt="find the MARKER-5"))
    assert (end(events).reason, "500 boom" in end(events).text) == ("overloaded", True)
    [started] = [event for event in events if isinstance(event, Started)]
    again = await run(cell.backend(), cell.turn(started.session_id, "go on"))
    assert end(again).text == "Here it is."
    assert "MARKER-5" in cell.model.said()


async def test_people_decide_and_what_they_say_besides_is_told(cell: Cell) -> None:
    write, two = Call("Write", {"path": "/etc/x", "content": "x"}), "echo one > allowed.txt"
    cell.model.play(shell(two), Reply("", (write,)), Reply("Done."), Reply("Understood."))

    def decide(event: AgentEvent) -> Answer:
        assert isinstance(event, Approval)
        return Answer(allow=True) if event.tool == "Bash" else Answer(allow=False, text="use the docs folder")

    events = await run(cell.backend("ask"), cell.turn(), decide)
    asked = [event for event in events if isinstance(event, Approval)]
    assert [(event.tool, event.summary) for event in asked] == [("Bash", two), ("Write", "/etc/x")]
    assert asked[0].input["command"] == two
    assert (cell.repo / "allowed.txt").exists()
    assert [event.ok for event in events if isinstance(event, ToolResult)] == [True, False]
    assert end(events).text == "Done.\n\nUnderstood."
    assert "use the docs folder" in cell.model.said()


async def test_it_asks_and_plans(cell: Cell) -> None:
    options = [{"label": "Red", "description": "r"}, {"label": "Blue", "description": "b"}]
    question = {"question": "Which colour?", "header": "Colour", "options": options, "multi_select": False}
    todos = [{"title": "Paint", "status": "in_progress"}, {"title": "Dry", "status": "pending"}]
    cell.model.play(
        shell("ls"),
        Reply("It is the fence.", (Call("TodoList", {"todos": todos}),)),
        Reply("", (Call("AskUserQuestion", {"questions": [question]}),)),
        Reply("Painted."),
    )
    events = await run(cell.backend(), cell.turn(), lambda _: Answer(allow=True, text="Blue"))
    [asked] = [event for event in events if isinstance(event, Question)]
    assert (asked.text, asked.options) == ("Which colour?", ("Red", "Blue"))
    assert Plan((PlanStep("Paint", "in_progress"), PlanStep("Dry", "pending"))) in events
    assert "Blue" in cell.model.said()
    assert end(events).text == "It is the fence.\n\nPainted."


async def test_in_plan_mode_nothing_is_changed(cell: Cell) -> None:
    cell.model.play(
        Reply("", (Call("Write", {"path": f"{cell.repo}/x", "content": "x"}),)), Reply("Planned.")
    )
    events = await run(cell.backend("plan"), cell.turn())
    assert any(isinstance(event, ToolUse) and event.name == "Write" for event in events)
    assert not (cell.repo / "x").exists()
    assert end(events).text == "Planned."


async def test_a_stop_leaves_nothing_of_it(cell: Cell) -> None:
    backend = cell.backend()
    cell.model.play(shell("touch begun; nohup setsid sleep 300 & python3 -c 'import time; time.sleep(300)'"))
    events = backend.start(cell.turn())
    async with asyncio.timeout(DEADLINE_S):
        async for event in events:
            if isinstance(event, ToolUse):
                break
        while not (cell.repo / "begun").exists():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.02)
    [turn] = backend._live.values()
    assert turn is not None
    inside = await descendants(turn.process.pid)
    assert inside
    async with asyncio.timeout(DEADLINE_S):
        stop = asyncio.create_task(backend.stop("t"))
        rest = [event async for event in events]
        await stop
    assert isinstance(rest[-1], Finished)
    assert rest[-1].reason == "stopped"
    assert rest[-1].usage.input_tokens == 100
    async with asyncio.timeout(DEADLINE_S):
        # The kernel may need a moment for what was killed.
        while any(inside[pid] == seen.started for pid, seen in this_system().seen(inside).items()):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_what_it_has_used_is_known_while_it_works(cell: Cell) -> None:
    """It tells only at its end, when a budget could stop nothing any more."""
    cell.model.play(shell("true"), Reply("Finished.", hold=True))
    backend = cell.backend()
    told = []
    async with asyncio.timeout(DEADLINE_S):
        async for event in backend.start(cell.turn()):
            if isinstance(event, Usage):
                told.append(event)
                cell.model.release.set()
    await backend.close()
    assert (told[0].input_tokens, told[0].output_tokens) == (100, 20)
    assert told[0].cost_usd == pytest.approx(0.1 + 0.2)


async def test_it_reaches_a_named_port_of_this_machine_and_no_other(cell: Cell) -> None:
    require("curl")
    async with listening() as named, listening() as other:
        backend = cell.backend(section=SandboxSection(hosts=(f"127.0.0.1:{named}",)))
        ask = f"curl -sS http://127.0.0.1:{named}/ http://localhost:{named}/; curl -sS http://127.0.0.1:{other}/"
        cell.model.play(shell(ask), Reply("Finished."))
        events = await run(backend, cell.turn())
    [said] = [event.text for event in events if isinstance(event, ToolResult)]
    assert said.count("locallocal") == 1
    assert f"Failed to connect to 127.0.0.1 port {other}" in said


async def test_its_commits_are_the_owners(cell: Cell) -> None:
    commit = "echo done > work.txt; git add work.txt; git commit -qm Work; git log -1 --format='%an <%ae>'"
    cell.model.play(shell(commit), Reply("Finished."))
    events = await run(cell.backend(), cell.turn())
    [said] = [event.text for event in events if isinstance(event, ToolResult)]
    assert "Ann <ann@example.org>" in said


@pytest.mark.parametrize("mode", ["bypassPermissions", "ask", "plan"])
async def test_it_can_ask_for_a_push_in_every_mode_without_asking_whether_it_may(
    cell: Cell, mode: PermissionMode
) -> None:
    why = {"why": 'It is "ready" \\ {id: 1}'}
    cell.model.play(Reply("", (Call("mcp__codebutler__ask_to_push", why),)), Reply("Asked."))
    events = await run(cell.backend(mode), cell.turn(), lambda _: Answer(allow=False))
    [used] = [event for event in events if isinstance(event, ToolUse)]
    assert (is_push_request(used.name), used.input) == (True, why)
    [result] = [event for event in events if isinstance(event, ToolResult)]
    assert (result.ok, result.text) == (True, PUSH_ASKED)
    assert not [event for event in events if isinstance(event, Approval)]
    assert end(events).text == "Asked."
