"""Which agents could work, by what is installed and who is logged in."""

from __future__ import annotations

from pathlib import Path

from codebutler.config.schema import Config, OpenAISection, RepoSettings
from codebutler_worker.agents.rollcall import survey
from codebutler_worker.agents.survey import CLAUDE, Survey, dotted
from tests.ordinary import give_away


def claude(directory: Path, version: str) -> str:
    """A program that tells its version; returns the PATH on which it is found."""
    directory.mkdir(parents=True)
    program = directory / "claude"
    program.write_text(f"#!/bin/sh\necho '{version} (Claude Code)'\n")
    program.chmod(0o755)
    return f"{directory}:/usr/bin:/bin"


async def of_claude(tmp_path: Path, env: dict[str, str]) -> Survey:
    repo = tmp_path / "repo"
    repo.mkdir(exist_ok=True)
    give_away(repo)
    settings = RepoSettings(name="r", path=str(repo), channel_id="C1", config=Config(), agent_env=env)
    return next(one for one in await survey(settings, tmp_path / "home") if one.prefix == "claude")


async def test_claude_is_ready_with_a_key_or_a_login(tmp_path: Path) -> None:
    path = claude(tmp_path / "bin", dotted(CLAUDE.tested))
    found = await of_claude(tmp_path, {"PATH": path})
    assert (found.ready, found.version) == (False, dotted(CLAUDE.tested))
    assert "ANTHROPIC_API_KEY" in found.note
    assert (await of_claude(tmp_path, {"PATH": path, "ANTHROPIC_API_KEY": "k"})).ready
    login = tmp_path / "home" / ".claude" / ".credentials.json"
    login.parent.mkdir(parents=True)
    login.write_text("{}")
    assert (await of_claude(tmp_path, {"PATH": path})).ready


async def test_claude_is_not_ready_if_it_is_missing_too_old_or_in_the_repository(tmp_path: Path) -> None:
    missing = await of_claude(tmp_path, {"PATH": "/nowhere"})
    assert (missing.ready, "npm install" in missing.note) == (False, True)
    old = await of_claude(tmp_path, {"PATH": claude(tmp_path / "bin", "1.0.1")})
    assert (old.ready, "too old" in old.note) == (False, True)
    planted = await of_claude(tmp_path, {"PATH": claude(tmp_path / "repo" / "bin", dotted(CLAUDE.tested))})
    assert (planted.ready, "is in the repository" in planted.note) == (False, True)


async def test_who_can_work_comes_first(tmp_path: Path) -> None:
    config = Config(openai=OpenAISection(api_key="k"))
    settings = RepoSettings(name="r", path=str(tmp_path), channel_id="C1", config=config)
    found = await survey(settings, tmp_path / "home")
    assert [one.prefix for one in found if one.ready] == ["rehearsal", "image"]
    assert found[: sum(one.ready for one in found)] == tuple(one for one in found if one.ready)
