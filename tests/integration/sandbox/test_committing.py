"""Commits of agents and of what people start: by the repository's owner, and advice where git cannot do it."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from codebutler.config.git_repo import Committer
from codebutler.config.schema import Config, RepoSettings, SandboxMode, SandboxSection
from codebutler.domain.clock import SystemClock
from codebutler_worker.agents.backend import Finished, Output, TurnRequest
from codebutler_worker.sandbox.limits import AgentSandbox
from codebutler_worker.sandbox.person import served_findings
from codebutler_worker.store.opening import prepare_state_dir
from codebutler_worker.tools.programs import SandboxPrograms, tool_policy
from codebutler_worker.worker.bootstrap import Roster
from tests.ordinary import give_home_away, give_repository_away
from tests.programs import require
from tests.walls import walled

COMMIT = "echo more >> README.md && git commit -qam more && git log -1 --format='%an <%ae> %cn <%ce>'"


@pytest.fixture
def home(tmp_path: Path, git_repo: Path) -> Path:
    """The owner's, who has told git nothing yet."""
    (home := tmp_path / "home").mkdir()
    prepare_state_dir(git_repo)
    give_repository_away(git_repo)
    give_home_away(home, git_repo)
    return home


def configure(file: Path, name: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as config:
        config.write(f"[user]\n\tname = {name}\n\temail = {name.lower()}@example.org\n")


@pytest.fixture(params=["bwrap", "none"])
async def agents(request: pytest.FixtureRequest, git_repo: Path, home: Path) -> AsyncIterator[Roster]:
    mode: SandboxMode = request.param
    require("bwrap")
    settings = RepoSettings(
        name="r", path=str(git_repo), channel_id="C1", config=Config(sandbox=SandboxSection(mode=mode))
    )
    roster = Roster(settings, home, home.parent / "state", SystemClock())
    yield roster
    await roster.close()


async def run(agents: Roster, repo: Path, words: str) -> tuple[Finished, str]:
    """How a command of a person ended, and what was said about its end."""
    backend = await agents.get("run")
    turn = TurnRequest(turn_id="0123456789abcdef", conversation="c", prompt=words, workdir=repo)
    async with asyncio.timeout(60):
        events = [event async for event in backend.start(turn)]
    assert isinstance(events[-1], Finished)
    return events[-1], "\n".join(event.note for event in events if isinstance(event, Output))


async def test_a_commit_is_the_owners_who_named_himself_for_all_repositories(
    agents: Roster, git_repo: Path, home: Path
) -> None:
    configure(home / ".gitconfig", "Ann")
    ended, _ = await run(agents, git_repo, COMMIT)
    assert "Ann <ann@example.org> Ann <ann@example.org>" in ended.text, ended.text


async def test_a_commit_is_whose_the_repository_says(agents: Roster, git_repo: Path, home: Path) -> None:
    configure(home / ".config" / "git" / "config", "Ann")
    configure(git_repo / ".git" / "config", "Work")
    ended, _ = await run(agents, git_repo, COMMIT)
    assert "Work <work@example.org> Work <work@example.org>" in ended.text, ended.text


async def test_without_a_name_it_is_said_how_to_give_one_and_that_is_enough(
    agents: Roster, git_repo: Path, home: Path
) -> None:
    commit = "git -c user.useConfigOnly=true commit -qam more"
    ended, note = await run(agents, git_repo, f"echo more >> README.md; {commit}")
    assert not ended.ok
    assert "git config --global user.name" in note
    configure(home / ".gitconfig", "Ann")
    ended, note = await run(agents, git_repo, commit)
    assert ended.ok, ended.text
    assert note == ""


@pytest.mark.parametrize("agents", ["bwrap"], indirect=True)
@pytest.mark.parametrize(
    ("command", "advice"),
    [
        ("git config user.name Eve", "git -c KEY=VALUE"),
        ("git remote add origin /nowhere", "git -c KEY=VALUE"),
        ("git branch -q two; git branch -u master two || git branch -u main two", "git -c KEY=VALUE"),
        ("git worktree add /tmp/second", "git clone . /tmp/NAME"),
    ],
)
async def test_what_the_walls_refuse_comes_with_advice(
    agents: Roster, git_repo: Path, command: str, advice: str
) -> None:
    ended, note = await run(agents, git_repo, command)
    assert advice in note, ended.text


async def test_the_tools_of_our_own_agent_commit_for_the_owner_and_get_the_advice(
    git_repo: Path, home: Path
) -> None:
    configure(home / ".gitconfig", "Ann")
    sandbox = AgentSandbox(walled())
    sandbox.committer = Committer(git_repo, home).env()
    tools = SandboxPrograms(sandbox, tool_policy(git_repo, home, "/usr/bin:/bin", {}, "c"))
    ran = await tools.run(("sh", "-c", COMMIT))
    assert ran.output.strip() == "Ann <ann@example.org> Ann <ann@example.org>"


def test_the_owners_own_conditions_count_and_files_that_the_repository_includes_do_not(
    git_repo: Path, home: Path
) -> None:
    configure(home / "work", "Work")
    (home / ".gitconfig").write_text(f'[includeIf "gitdir:{git_repo.parent}/"]\n\tpath = {home}/work\n')
    configure(git_repo / "planted", "Eve")
    with (git_repo / ".git" / "config").open("a") as config:
        config.write("[include]\n\tpath = ../planted\n")
    assert Committer(git_repo, home).env()["GIT_AUTHOR_NAME"] == "Work"


def test_no_program_that_a_repository_names_is_run(git_repo: Path, home: Path) -> None:
    trace = home / "ran"
    with (git_repo / ".git" / "config").open("a") as config:
        config.write(f"[core]\n\tfsmonitor = touch {trace}\n\tpager = touch {trace}\n")
        config.write(f"[alias]\n\tconfig = !touch {trace}\n[credential]\n\thelper = !touch {trace}\n")
    configure(git_repo / ".git" / "config", "Ann")
    assert Committer(git_repo, home).env()["GIT_COMMITTER_EMAIL"] == "ann@example.org"
    assert not trace.exists()


def test_doctor_says_whose_commits_are_made_or_how_to_say_so(git_repo: Path, home: Path) -> None:
    settings = RepoSettings(name="r", path=str(git_repo), channel_id="C1", config=Config())
    missing = [each for each in served_findings("bwrap", [settings], home) if each.subject == "commits"]
    assert [(each.level, "git config --global user.email" in each.text) for each in missing] == [
        ("warn", True)
    ]
    configure(home / ".gitconfig", "Ann")
    found = [each for each in served_findings("bwrap", [settings], home) if each.subject == "commits"]
    assert [(each.level, each.text) for each in found] == [
        ("ok", "commits are made as Ann <ann@example.org>")
    ]


def test_git_is_asked_again_only_when_its_configuration_has_changed(
    git_repo: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / ".gitconfig").write_text(f"[include]\n\tpath = {home}/work\n")
    committer = Committer(git_repo, home)
    assert committer.env() == {}
    configure(home / "work", "Ann")
    assert committer.env()["GIT_AUTHOR_NAME"] == "Ann"
    with monkeypatch.context() as without_git:
        without_git.setenv("PATH", "/nonexistent")
        assert committer.env()["GIT_AUTHOR_NAME"] == "Ann"
    configure(home / "work", "Bea of the other team")
    assert committer.env()["GIT_AUTHOR_NAME"] == "Bea of the other team"
    configure(git_repo / ".git" / "config", "Cy")
    assert committer.env()["GIT_AUTHOR_NAME"] == "Cy"


def test_git_is_not_asked_about_files_that_name_nobody(
    git_repo: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = home / "asked"
    asked.touch()
    asked.chmod(0o666)
    (programs := home / "bin").mkdir()
    (programs / "git").write_text(f'#!/bin/sh\necho "$*" >> {asked}\nexec {shutil.which("git")} "$@"\n')
    (programs / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    (git_repo / ".git" / "config").write_text("[core]\n\trepositoryformatversion = 0\n\tbare = false\n")
    committer = Committer(git_repo, home)
    assert committer.env() == committer.env() == {}
    (only,) = asked.read_text().splitlines()
    assert "--system" in only
    configure(home / ".gitconfig", "Ann")
    assert committer.env()["GIT_AUTHOR_NAME"] == "Ann"
    (git_repo / ".git" / "config").write_text("[USER]\n\tNAME = Bea\n")
    assert committer.env()["GIT_AUTHOR_NAME"] == "Bea"
