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
from tests.integration.cli.conftest import Cli
from tests.integration.cli.slack_server import SlackServer
from tests.integration.cli.terminal import in_terminal


def only_entry(cli: Cli) -> RepoEntry:
    (entry,) = Registry(cli.home).load()
    return entry


def config_of(repo: Path) -> Path:
    return repo / ".codebutler" / "config.json"


def git(repo: Path, *args: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.invalid"]
    subprocess.run(["git", *identity, *args], cwd=repo, check=True, capture_output=True)


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
    assert ("warning: no-such-claude is not installed: run `npm install" in result.err) is warned
    assert "Next: `codebutler supervise`." in result.err


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
        ("C0NOTHERE", "the app sees no channel C0NOTHERE"),
        ("nowhere", "the app sees no channel nowhere"),
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
        said="exists already: pass it with --channel",
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
    connected: Cli, git_repo: Path, tmp_path: Path, made: str
) -> None:
    if made == "submodule":
        outer = tmp_path / "outer"
        git(tmp_path, "init", "-q", "outer")
        git(outer, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(git_repo), "inner")
    else:
        git(tmp_path, "init", "-q", "--separate-git-dir", str(tmp_path / "elsewhere"), "outer/inner")

    inner = tmp_path / "outer" / "inner"
    said = "has its git directory elsewhere: register the repository it belongs to"
    connected.fails("add-repo", str(inner), "--channel", "C0MINE000", code=1, said=said)

    assert Registry(connected.home).load() == ()


def test_a_worktree_of_a_repository_can_be_registered(connected: Cli, git_repo: Path, tmp_path: Path) -> None:
    git(git_repo, "commit", "-q", "--allow-empty", "-m", "first")
    git(git_repo, "worktree", "add", "-q", str(tmp_path / "beside"))

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
        said="exclude each other",
    )


def test_nothing_is_registered_twice(connected: Cli, git_repo: Path, tmp_path: Path) -> None:
    other = tmp_path / "elsewhere" / "repo"
    other.parent.mkdir()
    shutil.copytree(git_repo, other)
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
    assert "sets sandbox.mode: ignored" in result.err
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
    connected.fails("trust", "nobody", code=1, said="there are repo")


def test_repos_lists_what_there_is(connected: Cli, git_repo: Path) -> None:
    assert "add-repo" in connected("repos").out
    assert connected("repos", "--json").out.strip() == "[]"
    assert connected("add-repo", str(git_repo), "--channel", "C0MINE000").code == 0

    assert connected("repos").out.split() == [
        *("NAME", "CHANNEL", "STATE", "PATH"),
        *("repo", "C0MINE000", "trusted", str(git_repo)),
    ]
    shutil.rmtree(git_repo)
    (listed,) = json.loads(connected("repos", "--json").out)
    assert listed == {"name": "repo", "path": str(git_repo), "channel_id": "C0MINE000", "state": "missing"}


def test_a_deleted_repository_can_be_told_and_removed(connected: Cli, git_repo: Path) -> None:
    assert connected("add-repo", str(git_repo), "--channel", "C0MINE000").code == 0
    shutil.rmtree(git_repo)

    connected.fails("config", "repo", code=78, said="does not exist any more")
    assert connected("remove-repo", "repo").code == 0
    connected.fails("remove-repo", "repo", code=1, said="no repository is registered as 'repo'")


def test_removing_leaves_the_files(connected: Cli, git_repo: Path) -> None:
    assert connected("add-repo", str(git_repo), "--channel", "C0MINE000").code == 0

    assert connected("remove-repo", "repo").code == 0

    assert config_of(git_repo).exists()
    assert Registry(connected.home).load() == ()


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
