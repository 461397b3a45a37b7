"""The agents by name, and reading memory.md as a file somebody else may have put there."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from codebutler.config.programs import Choice
from codebutler.config.schema import CommandRule, Config, RepoSettings, SandboxMode, SandboxSection
from codebutler.domain.errors import AgentUnavailableError, SandboxUnavailableError
from codebutler_worker.agents.claude.backend import ClaudeBackend
from codebutler_worker.memory.learning import MAX_BYTES, read_memory
from codebutler_worker.worker.bootstrap import Roster
from tests.clock import ManualClock
from tests.ordinary import give_repository_away, open_the_way
from tests.programs import require


def git(repo: Path, *arguments: str) -> str:
    asked = ["git", "-c", "safe.directory=*", "-C", str(repo), *arguments]
    return subprocess.run(asked, capture_output=True, check=True).stdout.decode().strip()


def begun_repository(repo: Path) -> None:
    """With one commit of somebody who is not its owner."""
    repo.mkdir()
    git(repo, "init", "-q", "-b", "main")
    somebody = ("-c", "user.name=Setup", "-c", "user.email=setup@example.com")
    git(repo, *somebody, "commit", "-q", "--allow-empty", "-m", "begin")
    give_repository_away(repo)
    open_the_way(repo)


def roster(
    tmp_path: Path, mode: SandboxMode, commands: tuple[CommandRule, ...] = (), home: Path | None = None
) -> Roster:
    config = Config(sandbox=SandboxSection(mode=mode), commands=commands)
    settings = RepoSettings(name="sample", path=str(tmp_path), channel_id="C0REPO", config=config)
    return Roster(settings, home or tmp_path, tmp_path / "state", ManualClock())


async def test_an_agent_is_made_once(tmp_path: Path) -> None:
    agents = roster(tmp_path, "none")
    first = await agents.get("rehearsal")
    assert first.name == "rehearsal"
    assert await agents.get("rehearsal") is first
    assert (await agents.get("claude")).name == "claude"
    assert (await agents.get("kimi")).name == "kimi"
    await agents.close()


async def test_a_commit_knows_its_owner_before_any_agent_was_made(tmp_path: Path) -> None:
    require("bwrap")
    repo = tmp_path / "repo"
    begun_repository(repo)
    (tmp_path / ".gitconfig").write_text("[user]\nname = Ana\nemail = ana@example.com\n")
    agents = roster(repo, "bwrap", home=tmp_path)
    tree = await agents.tree(repo)
    before = await tree.snapshot("t1/before")
    (repo / "a.txt").write_text("1\n")
    give_repository_away(repo)
    after = await tree.snapshot("t1/after")
    assert before is not None
    assert after is not None
    assert (await tree.commit(before.commit, after.commit, "t1/commit", "Add one")).branch == "main"
    assert git(repo, "log", "-1", "--format=%an") == "Ana"
    await agents.close()


async def test_an_agent_is_made_once_for_each_choice(tmp_path: Path) -> None:
    agents = roster(tmp_path, "none")
    usual, chosen = await agents.get("claude"), await agents.get("claude", Choice("haiku", "plan"))
    assert isinstance(usual, ClaudeBackend)
    assert isinstance(chosen, ClaudeBackend)
    assert (usual._settings.model, usual._settings.permission_mode) == ("", "bypassPermissions")
    assert (chosen._settings.model, chosen._settings.permission_mode) == ("haiku", "plan")
    assert chosen._owned is usual._owned
    assert await agents.get("claude", Choice("haiku", "plan")) is chosen
    await agents.close()


async def test_agents_of_the_configuration_are_made_by_their_mode(tmp_path: Path) -> None:
    rules = (
        CommandRule(prefix="claude", binary="claude", mode="headless"),
        CommandRule(prefix="tell", binary="true", mode="headless"),
        CommandRule(prefix="gone", binary="no-such-program", mode="headless"),
        CommandRule(prefix="speak", binary="true", mode="acp"),
    )
    agents = roster(tmp_path, "none", rules)
    made = {name: type(await agents.get(name)).__name__ for name in ("claude", "tell", "speak")}
    assert made == {"claude": "ClaudeBackend", "tell": "HeadlessBackend", "speak": "AcpBackend"}
    told = {each.prefix: each.ready for each in await agents.survey()}
    assert (told["tell"], told["gone"], told["speak"]) == (True, False, True)
    await agents.close()


async def test_what_does_not_work_here_is_said_in_one_line(tmp_path: Path) -> None:
    agents, name = roster(tmp_path, "none"), "nobody"
    with pytest.raises(AgentUnavailableError, match=f"`{name}` is not available here yet") as caught:
        await agents.get(name)
    assert "`claude:`" in str(caught.value)
    assert "`agent:`" in str(caught.value)
    assert "\n" not in str(caught.value)
    await agents.close()


async def test_without_walls_no_agent_is_made(tmp_path: Path) -> None:
    agents = roster(tmp_path, "seatbelt")
    for _ in range(2):
        with pytest.raises(SandboxUnavailableError):
            await agents.get("rehearsal")
    await agents.close()


def test_memory_is_read_up_to_its_limit(tmp_path: Path) -> None:
    assert read_memory(tmp_path) == ""
    (tmp_path / "memory.md").write_bytes(b"- known\xff\n" + b"x" * MAX_BYTES)
    memory = read_memory(tmp_path)
    assert memory.startswith("- known")
    assert len(memory) <= MAX_BYTES


def test_memory_is_not_read_through_a_link_nor_from_anything_but_a_file(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("token")
    memory = tmp_path / "memory.md"
    memory.symlink_to(secret)
    assert read_memory(tmp_path) == ""
    memory.unlink()
    os.mkfifo(memory)
    assert read_memory(tmp_path) == ""
    memory.unlink()
    memory.mkdir()
    assert read_memory(tmp_path) == ""
