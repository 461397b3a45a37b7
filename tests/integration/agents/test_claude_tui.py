"""The real Claude Code's own screen, driven from a thread: its dialog is answered with keys, its answer is shown."""

from __future__ import annotations

import json
from pathlib import Path

from codebutler.config.schema import CommandRule
from tests.integration.agents.test_shell_agent import TURN, Told, backend_of
from tests.modelserver.server import ModelServer, Reply
from tests.programs import require

KEY = "sk-ant-dummy-0123456789-0123456789"


async def test_its_dialog_its_answer_and_its_end(tmp_path: Path, git_repo: Path) -> None:
    home = tmp_path / "claude-home"
    home.mkdir()
    known = {"hasCompletedOnboarding": True, "customApiKeyResponses": {"approved": [KEY[-20:]]}}
    (home / ".claude.json").write_text(json.dumps(known))
    async with ModelServer() as model:
        for _ in range(4):
            model.play(Reply("Hello from the model."))
        env = f"HOME={home} ANTHROPIC_BASE_URL={model.url} ANTHROPIC_API_KEY={KEY} DISABLE_AUTOUPDATER=1"
        script = f"exec env {env} {require('claude')}"
        rule = CommandRule(prefix="tui", binary="bash", args=("-c", script), mode="interactive")
        told = Told(backend_of(git_repo, rule), git_repo, "")
        await told.until_shown("Yes, I trust this folder")
        assert await told.backend.type(TURN, "↓") == ""
        await told.until_shown("❯ Yes, I trust this folder")
        assert await told.backend.type(TURN, "^M") == ""
        await told.until_shown("Claude Code v")
        assert await told.backend.type(TURN, "say hello") == ""
        await told.until_shown("Hello from the model.")
        assert await told.backend.type(TURN, "/exit") == ""
        assert (await told.end()).exit_code == 0
