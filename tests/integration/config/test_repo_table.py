"""Which repositories are served, when some of them are at fault."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from codebutler.config.paths import Home
from codebutler.config.registry import Registry, RepoEntry, add
from codebutler.domain.refs import ConversationRef
from codebutler.intake.repos import Repos, RepoTable, with_env_file

ENV = {"ANTHROPIC_API_KEY": "sk-ant-1", "SLACK_BOT_TOKEN": "xoxb-1-1", "AWS_SECRET_ACCESS_KEY": "no"}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home").ensure()


def register(home: Home, tmp_path: Path, name: str, channel: str) -> Path:
    repo = tmp_path / name
    (repo / ".codebutler").mkdir(parents=True)
    (repo / ".codebutler" / "config.json").write_text(json.dumps({"slack": {"channelID": channel}}))
    entry = RepoEntry(name=name, path=str(repo), channel_id=channel)
    Registry(home).update(lambda entries: add(entries, entry))
    return repo


def test_one_broken_repository_keeps_no_other_from_being_served(home: Home, tmp_path: Path) -> None:
    register(home, tmp_path, "good", "C0GOOD")
    (register(home, tmp_path, "bad", "C0BAD") / ".codebutler" / "config.json").write_text("{")
    shutil.rmtree(register(home, tmp_path, "gone", "C0GONE"))
    table = RepoTable.read(home, ENV)
    assert list(table.by_channel()) == ["C0GOOD"]
    problems = {each.entry.name: each.problem for each in table.unserved}
    assert "malformed JSON" in problems["bad"]
    assert "remove-repo gone" in problems["gone"]


def test_what_was_served_stays_served_while_its_file_is_broken(home: Home, tmp_path: Path) -> None:
    repo = register(home, tmp_path, "good", "C0GOOD")
    before = RepoTable.read(home, ENV)
    (repo / ".codebutler" / "config.json").write_text("{")
    after = RepoTable.read(home, ENV).keeping(before)
    assert list(after.by_channel()) == ["C0GOOD"]
    assert len(after.unserved) == 1


def test_a_deleted_repository_is_served_no_more(home: Home, tmp_path: Path) -> None:
    repo = register(home, tmp_path, "good", "C0GOOD")
    before = RepoTable.read(home, ENV)
    shutil.rmtree(repo)
    assert RepoTable.read(home, ENV).keeping(before).by_channel() == {}


def test_a_worker_learns_no_slack_token_and_only_the_agents_variables(home: Home, tmp_path: Path) -> None:
    register(home, tmp_path, "good", "C0GOOD")
    settings = RepoTable.read(home, ENV).served[0].settings(ENV)
    assert settings.config.slack.bot_token == ""
    assert settings.config.slack.app_token == ""
    assert settings.agent_env == {"ANTHROPIC_API_KEY": "sk-ant-1"}


def test_the_redactor_learns_what_an_agent_is_given(home: Home, tmp_path: Path) -> None:
    register(home, tmp_path, "good", "C0GOOD")
    given = {
        "ANTHROPIC_AUTH_TOKEN": "a-token-of-no-known-shape",
        "ANTHROPIC_BASE_URL": "http://model.example",
    }
    assert "a-token-of-no-known-shape" in RepoTable.read(home, ENV).secrets(given)
    assert "http://model.example" not in RepoTable.read(home, ENV).secrets(given)


def test_a_service_finds_what_agents_need_in_the_homes_env_file(home: Home, tmp_path: Path) -> None:
    home.env_file.write_text(
        "ANTHROPIC_API_KEY=sk-ant-file\nHTTPS_PROXY=http://proxy\nLD_PRELOAD=/tmp/x.so\n"
    )
    assert with_env_file(home, {"PATH": "/bin"}) == {
        "PATH": "/bin",
        "ANTHROPIC_API_KEY": "sk-ant-file",
        "HTTPS_PROXY": "http://proxy",
    }
    assert with_env_file(home, ENV)["ANTHROPIC_API_KEY"] == "sk-ant-1"


def test_what_is_served_now_is_replaced_as_a_whole(home: Home, tmp_path: Path) -> None:
    direct = [ConversationRef("D1")]
    repos = Repos(RepoTable.read(home, ENV), lambda: direct)
    by_channel = repos.by_channel
    repo = register(home, tmp_path, "good", "C0GOOD")
    assert (dict(by_channel), repos.name_of("C0GOOD"), repos.path_of("good")) == ({}, "", None)
    repos.use(RepoTable.read(home, ENV))
    assert (list(by_channel), repos.name_of("C0GOOD"), repos.path_of("good")) == (["C0GOOD"], "good", repo)
    direct.append("D2")
    assert list(repos.listened("Slack")) == ["C0GOOD", "D1", "D2"]
    assert repos.channels() == {"C0GOOD", "D1", "D2"}
    shutil.rmtree(repo)
    assert repos.path_of("good") is None
