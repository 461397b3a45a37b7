"""The screens of the real Claude Code and the real Kimi Code, driven from a thread: a dialog is answered with keys,
an answer is shown."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from codebutler.config.schema import CommandRule
from tests.integration.agents.test_shell_agent import TURN, Told, backend_of
from tests.modelserver.server import ModelServer, Reply
from tests.ordinary import give_away
from tests.programs import path_with_node, require

ATTEMPTS = 3
LISTENS_S = 8.0
KEY = "sk-ant-dummy-0123456789-0123456789"


async def press(told: Told, text: str, shown: str) -> None:
    """Type until it shows: what comes before a screen listens is lost, as at any terminal."""
    for _ in range(ATTEMPTS - 1):
        assert await told.backend.type(TURN, text) == ""
        with contextlib.suppress(AssertionError):
            await told.until_shown(shown, LISTENS_S)
            return
    assert await told.backend.type(TURN, text) == ""
    await told.until_shown(shown)


def program(name: str, env: str) -> CommandRule:
    """The program ``name`` as a session, with ``env`` in its environment."""
    script = f"exec env {env} {require(name)}"
    return CommandRule(prefix="tui", binary="bash", args=("-c", script), mode="interactive")


async def test_claude(tmp_path: Path, git_repo: Path) -> None:
    home = tmp_path / "claude-home"
    home.mkdir()
    known = {"hasCompletedOnboarding": True, "customApiKeyResponses": {"approved": [KEY[-20:]]}}
    (home / ".claude.json").write_text(json.dumps(known))
    async with ModelServer() as model:
        for _ in range(4):
            model.play(Reply("Hello from the model."))
        env = f"HOME={home} ANTHROPIC_BASE_URL={model.url} ANTHROPIC_API_KEY={KEY} DISABLE_AUTOUPDATER=1"
        told = Told(backend_of(git_repo, program("claude", env)), git_repo, "")
        await told.until_shown("Yes, I trust this folder")
        await press(told, "↓", "❯ Yes, I trust this folder")
        await press(told, "^M", "Claude Code v")
        await press(told, "say hello", "Hello from the model.")
        assert await told.backend.type(TURN, "/exit") == ""
        assert (await told.end()).exit_code == 0


async def test_kimi(tmp_path: Path, git_repo: Path) -> None:
    home = tmp_path / "kimi-home"
    home.mkdir()
    give_away(home)
    async with ModelServer() as model:
        for _ in range(4):
            model.play(Reply("Hello from the model."))
        env = (
            f"HOME={home} KIMI_CODE_HOME={home} PATH={path_with_node()} KIMI_MODEL_NAME=m KIMI_MODEL_API_KEY=sk-dummy "
            f"KIMI_MODEL_BASE_URL={model.url}/v1 KIMI_DISABLE_TELEMETRY=1 KIMI_CODE_NO_AUTO_UPDATE=1"
        )
        told = Told(backend_of(git_repo, program("kimi", env)), git_repo, "")
        await told.until_shown("❯ Trust this folder")
        await press(told, "^M", "Welcome to Kimi Code!")
        await press(told, "say hello", "Hello from the model.")
        assert await told.backend.type(TURN, "/exit") == ""
        assert (await told.end()).exit_code == 0
