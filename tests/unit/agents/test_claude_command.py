"""How Claude Code is started, judged by version and watched: pure decisions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from codebutler.config.agent_sessions import claude_sessions
from codebutler.config.programs import DEFAULT_MODEL
from codebutler.config.schema import ClaudeSection
from codebutler.domain.errors import AgentUnavailableError
from codebutler_worker.agents.backend import TurnRequest
from codebutler_worker.agents.claude import command
from codebutler_worker.agents.claude.backend import judge_version, usual_model
from codebutler_worker.agents.claude.schema import crashed
from codebutler_worker.agents.claude.translate import ClaudeTranslator
from codebutler_worker.agents.claude.turn import ClaudeTurn
from codebutler_worker.agents.process import TimeLimits
from codebutler_worker.agents.shared_sessions import kept_here
from codebutler_worker.agents.survey import version_in
from codebutler_worker.egress.access import NetworkAccess
from codebutler_worker.sandbox.process import AgentProcess
from tests.clock import ManualClock, settle

BINARY = Path("/opt/claude/claude")


def around(**env: str) -> command.Installation:
    return command.Installation(Path("/home/you"), "/usr/bin", env, binary=BINARY)


def words(**settings: object) -> str:
    section = ClaudeSection(**settings)  # type: ignore[arg-type]  # the tests name real fields
    return " ".join(command.argv(section, BINARY, "ID", resume=False))


def test_a_checkout_is_not_trusted_by_default() -> None:
    assert "--setting-sources user --strict-mcp-config" in words()
    assert "--setting-sources" not in words(project_settings=True)


def test_permission_modes() -> None:
    assert "--permission-mode bypassPermissions" in words()
    assert "--permission-prompt-tool" not in words()
    assert "--permission-mode default" in words(permission_mode="ask")
    assert "--permission-prompt-tool stdio" in words(permission_mode="ask")


def test_settings_reach_the_command_line() -> None:
    line = words(model="opus", max_turns=3, extra_args=("--effort", "low"))
    assert "--model=opus" in line
    assert "--max-turns 3" in line
    assert "--max-turns" not in words()
    assert "--effort low" in line
    assert line.endswith("--session-id ID")
    assert command.argv(ClaudeSection(), BINARY, "ID", resume=True)[-2:] == ("--resume", "ID")


def test_the_environment_holds_only_what_is_named() -> None:
    env = around(TZ="UTC", ANTHROPIC_API_KEY="k", SLACK_BOT_TOKEN="s", LD_PRELOAD="x").fixed_env
    assert env["TZ"] == "UTC"
    assert "ANTHROPIC_API_KEY" not in env  # access.py decides about keys
    assert env["HOME"] == "/home/you"
    assert "SLACK_BOT_TOKEN" not in env
    assert "LD_PRELOAD" not in env
    assert "IS_SANDBOX" not in env


class Claude(AgentProcess):
    """Reads, and says nothing."""

    def __init__(self) -> None:
        self.read: list[bytes] = []

    async def lines(self) -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""

    async def write_line(self, line: bytes) -> bool:
        self.read.append(line)
        return True

    @property
    def returncode(self) -> int | None:
        return None


class Talking(Claude):
    """Says what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.said = asyncio.Queue[bytes]()

    async def lines(self) -> AsyncIterator[bytes]:
        while True:
            yield await self.said.get()


def turn_of(process: Claude, clock: ManualClock, limits: TimeLimits) -> ClaudeTurn:
    request = TurnRequest(turn_id="t", conversation="c", prompt="", workdir=Path("/r"))
    access = NetworkAccess("none")
    return ClaudeTurn(request, process, access, clock, limits, process.lines(), ClaudeTranslator(Path("/r")))


async def sent(text: str) -> bytes:
    process = Claude()
    turn = turn_of(process, ManualClock(), TimeLimits(1000))
    running = asyncio.ensure_future(anext(turn.events()))
    await settle()
    assert await turn.steer(text)
    running.cancel()
    return process.read[-1]


@pytest.mark.parametrize(("said", "heard"), [("/usage", " /usage"), ("a /b", "a /b"), ("//", " //")])
async def test_a_leading_slash_is_moved_out_of_the_way(said: str, heard: str) -> None:
    line = json.loads(await sent(said))
    assert line["message"]["content"] == heard
    assert line["uuid"]


async def test_nothing_is_said_before_the_prompt() -> None:
    process, may_start = Claude(), asyncio.Event()

    async def ready() -> None:
        await may_start.wait()

    turn = turn_of(process, ManualClock(), TimeLimits(1000))
    turn.request = replace(turn.request, prompt="the task", ready=ready)
    running = asyncio.ensure_future(anext(turn.events()))
    await settle()
    assert not await turn.steer("by the way")
    may_start.set()
    await settle()
    assert await turn.steer("by the way")
    running.cancel()
    said = [json.loads(line).get("message", {}).get("content") for line in process.read]
    assert said == [None, "the task", "by the way"]


async def test_a_line_is_one_line() -> None:
    raw = await sent("a\nb\u2028c\u2029d\r")
    assert len(raw.splitlines()) == 1
    assert "\u2028" not in raw.decode()
    assert json.loads(raw)["message"]["content"] == "a\nb\u2028c\u2029d\r"


def test_only_the_directorys_own_sessions_are_visible(tmp_path: Path) -> None:
    claude = Path("/home/you/.claude")
    assert claude_sessions(claude, Path("/srv/my.repo_x")) == claude / "projects" / "-srv-my-repo-x"
    assert claude_sessions(claude, Path("/srv/café 🛒")) == claude / "projects" / "-srv-caf----"
    assert claude_sessions(claude, Path("/" + "x" * 250)) == claude / "projects"
    around = command.Installation(tmp_path, "/usr/bin", binary=BINARY)
    with pytest.raises(AgentUnavailableError, match="other directories would show"):
        command.policy(around, Path("/" + "x" * 250), "s", NetworkAccess("none"))


def test_a_file_that_is_not_utf_8_counts_as_none(tmp_path: Path) -> None:
    for name, content in (
        ("settings.json", b'{"model":"\xff"}'),
        ("sessions/1.json", b'{"kind":"\xff"}'),
        (f"{claude_sessions(tmp_path / '.claude', tmp_path).relative_to(tmp_path / '.claude')}/s.jsonl", b""),
    ):
        path = tmp_path / ".claude" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    assert usual_model({}, tmp_path) == DEFAULT_MODEL
    assert kept_here(tmp_path, tmp_path, "claude", "s") == "s"


def test_versions() -> None:
    assert version_in("2.1.328 (Claude Code)") == (2, 1, 328)
    assert judge_version((2, 1, 328)) == ""
    assert judge_version((2, 1, 197)) == ""
    assert "newer" in judge_version((2, 2, 0))
    with pytest.raises(AgentUnavailableError, match="too old"):
        judge_version((2, 1, 196))
    with pytest.raises(AgentUnavailableError, match="npm install"):
        judge_version(version_in("command not found"))


def test_a_crash_tells_the_last_line() -> None:
    verdict = crashed(1, "noise\nError: unknown option '--x'\n\n")
    assert verdict.text.endswith("(exit code 1): Error: unknown option '--x'")
    assert crashed(143, "").text.endswith("(exit code 143)")
    assert crashed(1, "--x cannot be used with root/sudo privileges").reason == "unavailable"


TOOL = {
    "type": "assistant",
    "message": {"content": [{"type": "tool_use", "id": "1", "name": "Bash", "input": {}}]},
}
ASK = {
    "type": "control_request",
    "request_id": "r",
    "request": {"subtype": "can_use_tool", "tool_name": "Bash"},
}
RESULT = {"type": "result", "is_error": False, "result": "ok"}


def task(kind: str) -> dict[str, object]:
    return {"type": "system", "subtype": "task_started", "task_id": "t", "task_type": kind}


@pytest.mark.parametrize(
    ("lines", "after_s", "expected"),
    [
        ([], 99, None),
        ([], 100, "stalled"),
        ([TOOL], 500, None),
        ([TOOL], 1000, "timeout"),
        ([TOOL, ASK], 5000, None),
        ([RESULT], 4, None),
        ([RESULT], 5, "done"),
        ([RESULT, task("local_bash")], 59, None),
        ([RESULT, task("local_bash")], 60, "done"),
        ([RESULT, task("local_agent")], 500, None),
        ([RESULT, task("local_agent")], 1000, "timeout"),
    ],
)
async def test_when_a_turn_is_ended(
    lines: list[dict[str, object]], after_s: float, expected: str | None
) -> None:
    clock = ManualClock()
    turn = turn_of(Claude(), clock, TimeLimits(timeout_s=1000, stall_s=100, start_s=100))
    for line in lines:
        await turn._receive(json.dumps(line).encode())
    await clock.advance(after_s)
    due = turn._due()
    assert (due.reason if due else None) == expected


async def test_a_program_that_never_says_a_word_is_not_waited_for_as_long() -> None:
    clock = ManualClock()
    turn = turn_of(Claude(), clock, TimeLimits(timeout_s=1000, stall_s=100, start_s=30))
    await clock.advance(29)
    assert turn._due() is None
    await clock.advance(1)
    due = turn._due()
    assert due is not None
    assert due.reason == "stalled"


async def test_every_line_is_a_sign_of_life() -> None:
    clock, process = ManualClock(), Talking()
    turn = turn_of(process, clock, TimeLimits(timeout_s=1000, stall_s=100, start_s=30))
    events = asyncio.ensure_future(anext(turn.events(), None))
    for _ in range(3):
        process.said.put_nowait(b"{}")
        await settle()
        await clock.advance(99)
        await settle()
        assert not events.done()
    await clock.advance(1)
    await settle()
    assert events.done()
    assert turn.verdict is not None
    assert turn.verdict.reason == "stalled"


async def test_only_the_agents_own_time_counts() -> None:
    clock = ManualClock()
    turn = turn_of(Claude(), clock, TimeLimits(100, start_s=50, stall_s=50))

    async def after(seconds: float, *, asking: bool = False, busy: bool = False) -> str:
        await clock.advance(seconds)
        due = turn._overdue(asking=asking, busy=busy)
        return due.reason if due else ""

    assert await after(49) == ""
    assert await after(1000, asking=True) == ""
    assert await after(1) == "stalled"
    assert await after(0, busy=True) == ""
    assert await after(50, busy=True) == "timeout"
