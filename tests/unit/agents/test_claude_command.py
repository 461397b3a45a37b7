"""How Claude Code is started, judged by version and watched: pure decisions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from codebutler.config.agent_sessions import claude_sessions
from codebutler.config.schema import ClaudeSection
from codebutler.domain.errors import AgentUnavailableError
from codebutler_worker.agents.claude import command
from codebutler_worker.agents.claude.backend import judge_version
from codebutler_worker.agents.claude.result import crashed
from codebutler_worker.agents.claude.schema import decode
from codebutler_worker.agents.claude.translate import ClaudeTranslator
from codebutler_worker.agents.claude.turn import due
from codebutler_worker.agents.process import TimeLimits, TurnWatch
from codebutler_worker.agents.survey import version_in

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
    env = command.environment(around(TZ="UTC", ANTHROPIC_API_KEY="k", SLACK_BOT_TOKEN="s", LD_PRELOAD="x"))
    assert env["TZ"] == "UTC"
    assert "ANTHROPIC_API_KEY" not in env  # access.py decides about keys
    assert env["HOME"] == "/home/you"
    assert "SLACK_BOT_TOKEN" not in env
    assert "LD_PRELOAD" not in env
    assert "IS_SANDBOX" not in env


@pytest.mark.parametrize(("said", "heard"), [("/usage", " /usage"), ("a /b", "a /b"), ("//", " //")])
def test_a_leading_slash_is_moved_out_of_the_way(said: str, heard: str) -> None:
    line = json.loads(command.message_line(said, "u"))
    assert line["message"]["content"] == heard
    assert line["uuid"] == "u"


def test_a_line_is_one_line() -> None:
    raw = command.message_line("a\nb\u2028c\u2029d\r", "u")
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
        command.policy(around, Path("/" + "x" * 250), "s", "none", {})


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


def heard(*lines: dict[str, object]) -> ClaudeTranslator:
    translator = ClaudeTranslator(Path("/r"))
    for line in lines:
        translator.feed(decode(json.dumps(line).encode()))
    return translator


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
def test_when_a_turn_is_ended(lines: list[dict[str, object]], after_s: float, expected: str | None) -> None:
    watch = TurnWatch(0, TimeLimits(timeout_s=1000, stall_s=100))
    turn = heard(*lines)
    watch.heard()
    watch.pass_time(after_s, asking=bool(turn.asking), answered=turn.result is not None)
    assert due(turn, watch, 60) == expected


def test_a_program_that_never_says_a_word_is_not_waited_for_as_long() -> None:
    watch = TurnWatch(0, TimeLimits(timeout_s=1000, stall_s=100, start_s=30))
    watch.pass_time(29, asking=False)
    assert watch.due(busy=False) is None
    watch.pass_time(30, asking=False)
    assert watch.due(busy=False) == "stalled"


def test_every_line_is_a_sign_of_life() -> None:
    watch = TurnWatch(0, TimeLimits(timeout_s=1000, stall_s=100))
    watch.pass_time(99, asking=False)
    watch.heard()
    watch.pass_time(198, asking=False)
    assert watch.due(busy=False) is None
