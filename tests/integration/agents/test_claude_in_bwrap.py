"""The real Claude Code behind the real walls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from codebutler.config.git_repo import variables
from codebutler.config.schema import AgentNetwork, ClaudeSection, SandboxSection
from codebutler.domain.clock import SystemClock
from codebutler.platform.system import this_system
from codebutler_worker.agents.backend import Finished, Started, ToolResult, ToolUse, TurnRequest
from codebutler_worker.agents.claude.backend import ClaudeBackend
from codebutler_worker.agents.running import AgentContext
from codebutler_worker.egress.policy import for_agents
from codebutler_worker.sandbox.limits import AgentSandbox
from codebutler_worker.sandbox.process import descendants
from codebutler_worker.store.opening import prepare_state_dir
from codebutler_worker.tree.worktrees import Worktrees
from tests.integration.egress.test_local_ports import listening
from tests.modelserver.server import Call, ModelServer, Reply
from tests.programs import require
from tests.turns import heard
from tests.walls import walled


@dataclass
class Cell:
    binary: Path
    model: ModelServer
    home: Path
    repo: Path
    section: SandboxSection = field(default_factory=SandboxSection)

    def backend(self) -> ClaudeBackend:
        env = {"ANTHROPIC_BASE_URL": self.model.url, "ANTHROPIC_API_KEY": "sk-ant-dummy"}
        settings = ClaudeSection(binary=str(self.binary))
        context = AgentContext(walled(), SystemClock(), for_agents(self.section, "bwrap", env))
        return ClaudeBackend(settings, context, self.home, env)

    def turn(self, session_id: str | None = None) -> TurnRequest:
        return TurnRequest(
            turn_id="t", conversation="c", prompt="go", workdir=self.repo, session_id=session_id
        )

    def shell(self, command: str) -> None:
        self.model.play(Reply("", (Call("Bash", {"command": command, "description": "a command"}),)))


@pytest.fixture
async def cell(tmp_path: Path, git_repo: Path) -> AsyncIterator[Cell]:
    require("bwrap")
    binary = require("claude")
    home = tmp_path / "home"
    (home / ".claude").mkdir(parents=True)
    (home / ".claude" / "settings.json").write_text("{}")
    (home / "diary").write_text("private")
    async with ModelServer() as model:
        yield Cell(binary, model, home, git_repo)


async def test_it_works_in_the_repository_and_nowhere_else(cell: Cell) -> None:
    backend = cell.backend()
    spoil = f"echo evil > {cell.home}/.claude/settings.json"
    cell.shell(f"echo done > work.txt; {spoil}; cat {cell.home}/diary; echo user $(id -u)")
    cell.model.play(Reply("Finished."))
    events = await heard(backend, cell.turn())
    assert isinstance(events[-1], Finished)
    assert (events[-1].ok, events[-1].text) == (True, "Finished.")
    assert (cell.repo / "work.txt").read_text() == "done\n"
    assert (cell.home / ".claude" / "settings.json").read_text() == "{}"
    [said] = [event.text for event in events if isinstance(event, ToolResult)]
    assert "private" not in said
    assert "user 0" not in said
    await backend.close()


async def test_in_a_worktree_it_commits_and_goes_on(cell: Cell) -> None:
    prepare_state_dir(cell.repo)
    main, cell.repo = cell.repo, await Worktrees(cell.repo, walled(), cell.home).ensure("c", "look")
    backend = cell.backend()
    identity = "-c user.name=t -c user.email=t@example.invalid"
    cell.shell(f"echo done > work.txt; git add work.txt; git {identity} commit -qm Work; ls {main}")
    cell.model.play(Reply("Finished."))
    first = await heard(backend, cell.turn())
    assert isinstance(first[-1], Finished)
    assert (first[-1].ok, first[-1].text) == (True, "Finished.")
    assert (cell.repo / "work.txt").read_text() == "done\n"
    assert not (main / "work.txt").exists()
    [said] = [event.text for event in first if isinstance(event, ToolResult)]
    assert "README.md" not in said
    [started] = [event for event in first if isinstance(event, Started)]
    cell.shell("git log -1 --format=%s; git branch --show-current")
    cell.model.play(Reply("Still here."))
    second = await heard(backend, cell.turn(started.session_id))
    assert started in second
    assert [event.text.split() for event in second if isinstance(event, ToolResult)] == [
        ["Work", "codebutler/look-2e7d"]
    ]
    await backend.close()


@pytest.mark.parametrize("name", ["shop 🛒", "café", "👩\u200d👧 日本"])
async def test_any_directory_has_its_session_resumed(cell: Cell, name: str) -> None:
    cell.repo = cell.repo.rename(cell.repo.with_name(name))
    backend = cell.backend()
    cell.model.play(Reply("one"), Reply("two"))
    [started] = [event for event in await heard(backend, cell.turn()) if isinstance(event, Started)]
    again = await heard(backend, cell.turn(started.session_id))
    assert [event.session_id for event in again if isinstance(event, Started)] == [started.session_id]
    assert "one" in cell.model.said()
    await backend.close()


@pytest.mark.parametrize("network", ["auto", "open"])
async def test_its_key_is_nowhere_inside(cell: Cell, network: AgentNetwork) -> None:
    cell.section = SandboxSection(network=network)
    backend = cell.backend()
    look = "tr '\\0' '\\n' < /proc/$PPID/environ; env; cat /proc/*/environ | tr '\\0' '\\n'"
    cell.shell(f"({look}) | grep -a -e dummy -e BASE_URL -e '^HTTPS_PROXY' | sort -u")
    cell.model.play(Reply("Finished."))
    events = await heard(backend, cell.turn())
    assert isinstance(events[-1], Finished)
    assert events[-1].ok
    assert set(cell.model.keys) == {"sk-ant-dummy"}
    [said] = [event.text for event in events if isinstance(event, ToolResult)]
    assert "sk-ant-dummy" not in said
    assert "ANTHROPIC_BASE_URL=http://127.0.0.1:" in said
    assert cell.model.url not in said
    assert ("HTTPS_PROXY=http://127.0.0.1:3128" in said) == (network == "auto")
    await backend.close()


async def test_it_reaches_its_model_and_nobody_else(cell: Cell, caplog: pytest.LogCaptureFixture) -> None:
    require("curl")
    backend = cell.backend()
    cell.shell(
        f"curl -sS --noproxy '*' {cell.model.url}/v1/x; curl -sS http://example.org/; curl -sS https://a.example"
    )
    page = Call("WebFetch", {"url": "https://example.net/page", "prompt": "What is there?"})
    cell.model.play(Reply("", (page,)), Reply("Finished."))
    events = await heard(backend, cell.turn())
    assert isinstance(events[-1], Finished)
    assert events[-1].ok
    assert events[-1].text == (
        "Finished.\n\n_⚠️ The sandbox blocked access to `example.org`, `a.example`, `api.anthropic.com`. "
        "To allow it, change `sandbox.hosts`._"
    )
    shell, fetched = [event.text for event in events if isinstance(event, ToolResult)]
    assert "Failed to connect" in shell or "Couldn't connect" in shell
    assert "does not let this agent reach example.org:80" in shell
    assert "403" in shell
    assert "example.net" in fetched  # that its domain could not be looked into
    assert "access to a.example:443" in caplog.text
    assert "besides your model's service it reaches nothing" in cell.model.said(0)
    await backend.close()


async def test_it_reaches_a_named_port_of_this_machine_and_no_other(cell: Cell) -> None:
    require("curl")
    async with listening() as named, listening() as other:
        cell.section = SandboxSection(hosts=(f"127.0.0.1:{named}",))
        backend = cell.backend()
        cell.shell(
            f"curl -sS http://127.0.0.1:{named}/ http://localhost:{named}/; curl -sS http://127.0.0.1:{other}/"
        )
        cell.model.play(Reply("Finished."))
        events = await heard(backend, cell.turn())
        await backend.close()
    [said] = [event.text for event in events if isinstance(event, ToolResult)]
    assert said.count("locallocal") == 1
    assert f"Failed to connect to 127.0.0.1 port {other}" in said


async def test_its_session_outlives_its_process(cell: Cell) -> None:
    session = ""
    task = Call("TaskCreate", {"subject": "Read", "description": "all of it"})
    cell.model.play(Reply("", (Call("ToolSearch", {"query": "select:TaskCreate"}),)), Reply("", (task,)))
    for prompt in ("one", "two"):
        backend = cell.backend()
        cell.model.play(Reply(prompt))
        events = await heard(backend, cell.turn(session or None))
        started = [event for event in events if isinstance(event, Started)]
        assert [event.fresh for event in started] == [False]
        session = session or started[0].session_id
        await backend.close()
    assert "one" in cell.model.said()
    kept = {path.name for path in (cell.home / ".claude").iterdir()}
    assert kept == {"projects", "settings.json", "tasks"}
    assert any((cell.home / ".claude" / "tasks" / session).glob("*.json"))


async def test_a_stop_leaves_nothing_of_it(cell: Cell) -> None:
    backend = cell.backend()
    cell.shell("touch begun; nohup setsid sleep 300 & python3 -c 'import time; time.sleep(300)'")
    events = backend.start(cell.turn())
    async with asyncio.timeout(30):
        async for event in events:
            if isinstance(event, ToolUse):
                break
        while not (cell.repo / "begun").exists():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.02)
    [turn] = backend._live.values()
    assert turn is not None
    inside = await descendants(turn.process.pid)
    assert inside
    async with asyncio.timeout(5):
        stop = asyncio.create_task(backend.stop("t"))
        rest = [event async for event in events]
        await stop
    assert isinstance(rest[-1], Finished)
    assert rest[-1].reason == "stopped"
    async with asyncio.timeout(30):
        # The kernel may need a moment for what was killed.
        while any(inside[pid] == seen.started for pid, seen in this_system().seen(inside).items()):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_what_is_asked_beside_it_counts(cell: Cell) -> None:
    """A command that asks the model itself, with what Claude Code holds for a key."""
    backend = cell.backend()
    ask = (
        'curl -sS "$ANTHROPIC_BASE_URL/v1/messages" -H "x-api-key: $ANTHROPIC_API_KEY" '
        """-d '{"model": "x", "max_tokens": 9, "tools": [{"name": "t"}], "messages": []}'"""
    )
    cell.shell(f"for i in 1 2 3; do {ask}; done")
    for _ in range(3):
        cell.model.play(Reply("More.", input_tokens=400_000, output_tokens=10_000))
    cell.model.play(Reply("Finished."))
    finished = (await heard(backend, cell.turn()))[-1]
    assert isinstance(finished, Finished)
    assert (finished.ok, finished.text) == (True, "Finished.")
    assert finished.usage.input_tokens >= 1_200_000
    assert finished.usage.output_tokens >= 30_000
    await backend.close()


async def test_its_commits_are_the_owners(cell: Cell) -> None:
    sandbox = AgentSandbox(walled())
    sandbox.committer = variables({"user.name": "Ann", "user.email": "ann@example.org"})
    env = {"ANTHROPIC_BASE_URL": cell.model.url, "ANTHROPIC_API_KEY": "sk-ant-dummy"}
    context = AgentContext(sandbox, SystemClock(), for_agents(cell.section, "bwrap", env))
    backend = ClaudeBackend(ClaudeSection(binary=str(cell.binary)), context, cell.home, env)
    cell.shell("echo done > work.txt; git add work.txt; git commit -qm Work; git log -1 --format='%an <%ae>'")
    cell.model.play(Reply("Finished."))
    events = await heard(backend, cell.turn())
    assert [event.text for event in events if isinstance(event, ToolResult)] == ["Ann <ann@example.org>"]
    assert "`git config`" in cell.model.said(0)
    await backend.close()
