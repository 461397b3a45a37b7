"""What came with a repository is not trusted until somebody says so, and nothing it planted is followed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from codebutler.config.registry import Registry
from codebutler.config.resolve import resolve_repo
from codebutler.config.trust import digest
from tests.integration.cli.conftest import Cli
from tests.integration.cli.repos import config_of, git, only_entry
from tests.integration.cli.slack_server import SlackServer


def test_a_planted_link_is_not_followed(connected: Cli, git_repo: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (git_repo / ".codebutler").symlink_to(victim)

    connected.fails(
        "add-repo", str(git_repo), "--channel", "C0MINE000", code=78, said="must be a real directory"
    )

    assert list(victim.iterdir()) == []


def test_a_repository_around_the_home_is_refused(connected: Cli, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")

    connected.fails(
        "add-repo", str(tmp_path), "--channel", "C0MINE000", code=78, said="where agents may write"
    )

    assert not (tmp_path / ".codebutler").exists()


def test_a_config_that_came_with_the_repository_is_not_trusted(connected: Cli, git_repo: Path) -> None:
    config_of(git_repo).parent.mkdir()
    config_of(git_repo).write_text('{"sandbox": {"mode": "none"}, "claude": {"maxTurns": 2}}')
    git(git_repo, "add", "-f", ".codebutler/config.json")
    git(git_repo, "commit", "-qm", "Plant a config")

    result = connected("add-repo", str(git_repo), "--channel", "C0MINE000")

    assert result.code == 0
    assert "ignoring sandbox.mode in .codebutler/config.json" in result.err
    resolved = resolve_repo(connected.home, only_entry(connected), {})
    assert resolved.config.sandbox.mode == "auto"
    assert resolved.config.slack.channel_id == "C0MINE000"

    assert connected("trust", "repo").code == 0
    assert resolve_repo(connected.home, only_entry(connected), {}).config.sandbox.mode == "none"


def test_jobs_that_came_with_the_repository_are_told_and_can_be_trusted(
    connected: Cli, git_repo: Path
) -> None:
    jobs = git_repo / ".codebutler" / "jobs.yaml"
    jobs.parent.mkdir()
    jobs.write_text("jobs: []")
    git(git_repo, "add", "-f", ".codebutler/jobs.yaml")

    result = connected("add-repo", str(git_repo), "--channel", "C0MINE000")

    assert "jobs.yaml came with the repository: read it, then run `codebutler trust repo`" in result.err
    assert only_entry(connected).jobs_digest == ""
    assert connected("trust", "repo").out == "Trusted the config and the jobs.yaml of repo.\n"
    assert only_entry(connected).jobs_digest == digest(b"jobs: []")


@pytest.mark.parametrize("name", ["store.db", "store.db-journal", "STORE.DB"])
def test_a_store_that_came_with_the_repository_is_refused(
    connected: Cli, git_repo: Path, slack: SlackServer, name: str
) -> None:
    planted = git_repo / ".codebutler" / name
    planted.parent.mkdir()
    planted.write_bytes(b"turns to run")
    git(git_repo, "add", "-f", f".codebutler/{name}")

    connected.fails(
        "add-repo", str(git_repo), "--channel", "C0MINE000", code=78, said="git tracks a store.db"
    )

    assert slack.methods() == []
    git(git_repo, "rm", "--cached", "-q", ".codebutler/" + name)
    planted.unlink()
    assert connected("add-repo", str(git_repo), "--channel", "C0MINE000").code == 0


def test_a_repository_cannot_name_another_directory_as_its_own(connected: Cli, tmp_path: Path) -> None:
    inner = tmp_path / "private" / "clone"
    inner.mkdir(parents=True)
    git(inner, "init", "-q")
    git(inner, "config", "core.worktree", str(tmp_path / "private"))

    connected.fails("add-repo", str(inner), "--channel", "C0MINE000", code=1, said="as its work tree")

    assert Registry(connected.home).load() == ()


def test_files_that_look_like_a_bare_repository_are_none(
    connected: Cli, git_repo: Path, tmp_path: Path
) -> None:
    planted, owned = git_repo / "docs", tmp_path / "owned"
    planted.mkdir()
    git(planted, "init", "-q", "--bare", ".")
    for key, value in (
        ("core.bare", "false"), ("core.worktree", str(planted)), ("core.fsmonitor", f"touch {owned}"),
    ):  # fmt: skip
        git(tmp_path, "config", "--file", str(planted / "config"), key, value)

    connected.fails("add-repo", str(planted), "--channel", "C0MINE000", code=1, said="bare repository")

    assert not owned.exists()


def test_a_config_of_ones_own_is_trusted(connected: Cli, git_repo: Path) -> None:
    config_of(git_repo).parent.mkdir()
    config_of(git_repo).write_text('{"sandbox": {"mode": "none"}}')

    assert connected("add-repo", str(git_repo), "--channel", "C0MINE000").code == 0

    assert resolve_repo(connected.home, only_entry(connected), {}).config.sandbox.mode == "none"


def test_trust_takes_the_file_as_it_is_now(connected: Cli, git_repo: Path) -> None:
    assert connected("add-repo", str(git_repo), "--channel", "C0MINE000").code == 0
    config_of(git_repo).write_text('{"slack": {"channelID": "C0MINE000"}, "sandbox": {"mode": "none"}}')
    assert json.loads(connected("repos", "--json").out)[0]["state"] == "changed"

    result = connected("trust", "repo")

    assert result.code == 0
    assert "sets sandbox.mode" in result.out
    assert json.loads(connected("repos", "--json").out)[0]["state"] == "trusted"


def test_trust_refuses_what_cannot_be_used(connected: Cli, git_repo: Path) -> None:
    assert connected("add-repo", str(git_repo), "--channel", "C0MINE000").code == 0
    config_of(git_repo).write_text('{"sandbox": {"mode": "off"}}')

    connected.fails("trust", "repo", code=78, said="sandbox.mode: expected one of auto, bwrap")
    connected.fails("trust", "nobody", code=1, said="registered: repo")
