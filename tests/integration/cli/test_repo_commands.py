"""`codebutler add-repo`: a repository gets its channel, and what cannot work is one line."""

from __future__ import annotations

import json
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from codebutler.config.registry import Registry, RepoEntry
from codebutler.config.resolve import resolve_repo
from codebutler.config.trust import digest
from codebutler.platform.lookup import CLAUDE_CODE
from tests.integration.cli.conftest import Cli
from tests.integration.cli.repos import config_of, git, only_entry
from tests.integration.cli.slack_server import SlackServer
from tests.integration.cli.terminal import in_terminal
from tests.ordinary import give_away


def test_a_repository_gets_its_channel_and_is_trusted(
    connected: Cli, slack: SlackServer, git_repo: Path
) -> None:
    result = connected("add-repo", str(git_repo), "--channel", "C0GENERAL", "--agent", "rehearsal")

    assert result.code == 0, result
    assert "conversations.join" in slack.methods()
    data = config_of(git_repo).read_bytes()
    assert json.loads(data) == {
        "slack": {"channelID": "C0GENERAL", "channelName": "general"},
        "agent": {"default": "rehearsal"},
    }
    assert only_entry(connected) == RepoEntry(
        name="repo", path=str(git_repo), digest=digest(data), channel_id="C0GENERAL"
    )
    assert stat.S_IMODE(config_of(git_repo).stat().st_mode) == 0o600
    assert stat.S_IMODE(config_of(git_repo).parent.stat().st_mode) == 0o700
    status = subprocess.run(["git", "status", "--porcelain"], cwd=git_repo, capture_output=True, check=True)
    assert status.stdout == b""


@pytest.mark.parametrize(("agent", "warned"), [("claude", True), ("rehearsal", False)])
def test_an_agent_that_is_not_installed_is_told_and_what_comes_next(
    connected: Cli, git_repo: Path, agent: str, warned: bool
) -> None:
    layer = json.loads(connected.home.config.read_text())
    connected.home.config.write_text(json.dumps({**layer, "claude": {"binary": "no-such-claude"}}))

    result = connected("add-repo", str(git_repo), "--channel", "C0GENERAL", "--agent", agent)

    assert result.code == 0, result
    assert (f"warning: Claude Code is not installed: run `{CLAUDE_CODE.install}`" in result.err) is warned
    assert "Next: `codebutler supervise`." in result.err


def test_an_agent_of_the_repositorys_own_file_can_be_its_default(connected: Cli, git_repo: Path) -> None:
    config_of(git_repo).parent.mkdir()
    goose = {"prefix": "goose", "binary": "no-such-goose", "args": ["acp"], "mode": "acp"}
    config_of(git_repo).write_text(json.dumps({"commands": [goose]}))

    result = connected("add-repo", str(git_repo), "--channel", "C0GENERAL", "--agent", "goose")

    assert result.code == 0, result
    assert "warning: no-such-goose is not installed" in result.err
    assert resolve_repo(connected.home, only_entry(connected), {}).config.agent.default == "goose"


def test_a_channel_can_be_named_or_made(connected: Cli, slack: SlackServer, git_repo: Path) -> None:
    assert connected("add-repo", str(git_repo), "--channel", "#mine", "--name", "first").code == 0
    assert only_entry(connected).channel_id == "C0MINE000"
    assert "conversations.join" not in slack.methods()
    assert connected("remove-repo", "first").code == 0

    assert connected("add-repo", str(git_repo), "--create-channel", "My Repo").code == 0

    assert ("conversations.create", {"name": "my-repo"}) in slack.calls
    assert only_entry(connected).channel_id == "C0NEW0000"


def test_a_repository_that_comes_back_keeps_its_channel(connected: Cli, git_repo: Path) -> None:
    assert connected("add-repo", str(git_repo), "--channel", "C0MINE000").code == 0
    assert connected("remove-repo", "repo").code == 0

    assert connected("add-repo", str(git_repo)).code == 0

    assert only_entry(connected).channel_id == "C0MINE000"


def test_a_directory_below_stands_for_its_repository(connected: Cli, git_repo: Path) -> None:
    assert connected("add-repo", str(git_repo / "src"), "--channel", "C0MINE000").code == 0

    assert only_entry(connected).path == str(git_repo)


@pytest.mark.parametrize(
    ("channel", "said"),
    [
        ("C0NOTHERE", "the app cannot see a channel C0NOTHERE"),
        ("nowhere", "the app cannot see a channel nowhere"),
        ("C0OLD0000", "channel old is archived"),
        ("G0PRIVATE", "channel private is private: invite the app"),
    ],
)
def test_a_channel_that_cannot_be_entered_is_one_line(
    connected: Cli, git_repo: Path, channel: str, said: str
) -> None:
    connected.fails("add-repo", str(git_repo), "--channel", channel, code=1, said=said)

    assert Registry(connected.home).load() == ()
    assert not config_of(git_repo).exists()


def test_a_channel_name_that_is_taken_is_one_line(connected: Cli, slack: SlackServer, git_repo: Path) -> None:
    slack.failures["conversations.create"] = "name_taken"

    connected.fails(
        "add-repo",
        str(git_repo),
        "--create-channel",
        "mine",
        code=1,
        said="already exists: pass it with --channel",
    )


def test_a_revoked_token_is_one_line(connected: Cli, slack: SlackServer, git_repo: Path) -> None:
    slack.failures["conversations.info"] = "token_revoked"

    connected.fails("add-repo", str(git_repo), "--channel", "C0MINE000", code=78, said="codebutler setup")


def test_what_is_no_repository_is_told(connected: Cli, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    git(tmp_path, "init", "-q", "--bare", "bare")

    for path, said in (
        (plain, "is not a git repository: run `git init` there"),
        (tmp_path / "absent", "is not a directory"),
        (tmp_path / "bare", "is a bare repository"),
    ):
        connected.fails("add-repo", str(path), "--channel", "C0MINE000", code=1, said=said)
    assert list(plain.iterdir()) == []


@pytest.mark.parametrize("made", ["submodule", "separate"])
def test_what_no_agent_could_be_walled_into_is_refused_at_once(
    connected: Cli, tmp_path: Path, made: str
) -> None:
    if made == "submodule":
        source, outer = tmp_path / "source", tmp_path / "outer"
        for path in (source, outer):
            git(tmp_path, "init", "-q", str(path))
        git(source, "commit", "-q", "--allow-empty", "-m", "first")
        git(outer, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(source), "inner")
    else:
        git(tmp_path, "init", "-q", "--separate-git-dir", str(tmp_path / "elsewhere"), "outer/inner")

    inner = tmp_path / "outer" / "inner"
    said = "has its git directory elsewhere: register the repository it belongs to"
    connected.fails("add-repo", str(inner), "--channel", "C0MINE000", code=1, said=said)

    assert Registry(connected.home).load() == ()


def test_a_worktree_of_a_repository_can_be_registered(connected: Cli, git_repo: Path, tmp_path: Path) -> None:
    git(git_repo, "commit", "-q", "--allow-empty", "-m", "first")
    git(git_repo, "worktree", "add", "-q", str(tmp_path / "beside"))
    for path in (git_repo, tmp_path / "beside"):
        give_away(path)

    assert connected("add-repo", str(tmp_path / "beside"), "--channel", "C0MINE000").code == 0


def test_a_relative_path_is_told_in_full(
    connected: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    connected.fails("add-repo", "--channel", "C0MINE000", code=1, said=f"{tmp_path} is not a git repository")


def test_without_git_it_says_how_to_get_it(
    connected: Cli, git_repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    connected.fails("add-repo", str(git_repo), "--channel", "C0MINE000", code=1, said="git is not installed")


def test_before_setup_it_says_so(cli: Cli, git_repo: Path) -> None:
    cli.fails(
        "add-repo", str(git_repo), "--channel", "C0MINE000", code=78, said="run `codebutler setup` first"
    )


def test_without_a_terminal_the_channel_must_be_given(connected: Cli, git_repo: Path) -> None:
    connected.fails("add-repo", str(git_repo), code=2, said="pass --channel C… or --create-channel NAME")
    connected.fails(
        "add-repo",
        str(git_repo),
        "--channel",
        "x",
        "--create-channel",
        "y",
        code=2,
        said="cannot be used together",
    )


def test_nothing_is_registered_twice(connected: Cli, git_repo: Path, tmp_path: Path) -> None:
    other = tmp_path / "elsewhere" / "repo"
    other.parent.mkdir()
    shutil.copytree(git_repo, other)
    give_away(other)
    assert connected("add-repo", str(git_repo), "--channel", "C0MINE000").code == 0

    connected.fails(
        "add-repo", str(git_repo), "--channel", "C0GENERAL", code=1, said="already registered as repo"
    )
    connected.fails(
        "add-repo", str(other), "--channel", "C0GENERAL", code=1, said="the name repo is already taken"
    )
    connected.fails(
        "add-repo",
        str(other),
        "--name",
        "other",
        "--channel",
        "C0MINE000",
        code=1,
        said="channel C0MINE000 already belongs to repo",
    )
    assert not config_of(other).exists()


@pytest.mark.parametrize(
    ("answers", "channel_id"),
    [
        (["2"], "C0MINE000"),
        (["nowhere", "99", "mine"], "C0MINE000"),
        (["new a-new-one"], "C0NEW0000"),
        ([""], "C0NEW0000"),
    ],
)
def test_in_a_terminal_it_lists_the_channels_and_asks(
    connected: Cli, git_repo: Path, answers: list[str], channel_id: str
) -> None:
    shown = in_terminal(["add-repo", str(git_repo)], answers, connected.home.root, {})

    assert "1  #general" in shown
    assert "3  #private  (private)" in shown
    assert only_entry(connected).channel_id == channel_id
