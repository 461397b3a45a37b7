from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import pytest

from codebutler.config.paths import Home
from codebutler.config.registry import RepoEntry
from codebutler.config.resolve import resolve_global, resolve_repo
from codebutler.config.trust import digest
from codebutler.domain.errors import ConfigError, LegacyConfigError


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home").ensure()


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    path = tmp_path / "repo"
    (path / ".codebutler").mkdir(parents=True)
    return path


def write(repo: Path, content: object) -> RepoEntry:
    """The repository's config, and an entry that trusts it."""
    data = json.dumps(content).encode()
    (repo / ".codebutler" / "config.json").write_bytes(data)
    return RepoEntry(name="repo", path=str(repo), digest=digest(data), channel_id="C0001")


def test_each_value_comes_from_the_strongest_source(home: Home, repo: Path) -> None:
    home.config.write_text(
        '{"claude": {"model": "g", "maxTurns": 2, "binary": "g"}, "agent": {"busy": "steer"}}'
    )
    home.env_file.write_text("CLI_CLAUDE=dotenv\nCLI_KIMI=dotenv\n")
    entry = write(repo, {"slack": {"channelID": "C0001"}, "claude": {"maxTurns": 3, "model": "r"}})

    resolved = resolve_repo(home, entry, {"CLI_KIMI": "env"})

    assert resolved.config.claude.model == "r"
    assert resolved.config.claude.max_turns == 3
    assert resolved.config.claude.binary == "dotenv"
    assert resolved.config.kimi.binary == "env"
    assert resolved.config.agent.busy == "steer"
    assert resolved.config.slack.channel_id == "C0001"
    config = str(repo / ".codebutler" / "config.json")
    assert {
        key: resolved.provenance[key] for key in ("claude.maxTurns", "slack.channelID", "agent.busy")
    } == {
        "claude.maxTurns": config,
        "slack.channelID": config,
        "agent.busy": str(home.config),
    }
    assert resolved.provenance["claude.binary"] == f"{home.env_file} CLI_CLAUDE"
    assert resolved.provenance["kimi.binary"] == "environment CLI_KIMI"
    assert resolved.provenance["agent.scope"] == "default"
    assert resolved.trusted
    assert resolved.notes == ()


def test_without_any_file_there_are_the_defaults(tmp_path: Path) -> None:
    home = Home(tmp_path / "absent")

    assert resolve_global(home, {}).config.sandbox.mode == "auto"
    assert not home.root.exists()


def test_a_trusted_file_may_loosen_safety(home: Home, repo: Path) -> None:
    entry = write(repo, {"sandbox": {"mode": "none"}})

    assert resolve_repo(home, entry, {}).config.sandbox.mode == "none"


def test_what_is_there_once_for_all_is_not_a_repositorys_to_say(home: Home, repo: Path) -> None:
    home.config.write_text('{"slack": {"botToken": "xoxb-home"}, "dashboard": {"port": 1234}}')
    entry = write(
        repo,
        {
            "slack": {"botToken": "xoxb-repo", "apiBaseUrl": "http://x/"},
            "dashboard": {"port": 1},
            "logs": {"level": "debug", "retentionDays": 3},
            "agent": {"busy": "steer"},
        },
    )

    resolved = resolve_repo(home, entry, {})

    assert (resolved.config.logs.level, resolved.config.logs.retention_days) == ("info", 3)
    assert resolved.config.slack.bot_token == "xoxb-home"
    assert resolved.config.slack.api_base_url == "https://slack.com/api/"
    assert resolved.config.dashboard.port == 1234
    assert resolved.config.agent.busy == "steer"
    assert resolved.trusted
    [note] = resolved.notes
    assert "ignoring dashboard.port, logs.level, slack.apiBaseUrl, slack.botToken" in note
    assert str(home.config) in note
    assert "xoxb" not in note


def test_a_changed_file_gains_nothing_but_the_harmless(home: Home, repo: Path) -> None:
    entry = write(repo, {"slack": {"channelID": "C0001"}})
    write(
        repo,
        {
            "slack": {"channelID": "C0666", "allowedUsers": ["U0666"]},
            "sandbox": {"mode": "none"},
            "claude": {"maxTurns": 4},
        },
    )

    resolved = resolve_repo(home, entry, {})

    assert resolved.config.sandbox.mode == "auto"
    assert resolved.config.slack.allowed_users == ()
    assert resolved.config.slack.channel_id == "C0001"
    assert resolved.config.claude.max_turns == 4
    assert resolved.provenance["slack.channelID"] == "repos.json"
    assert not resolved.trusted
    assert len(resolved.notes) == 1
    assert "ignoring sandbox.mode, slack.allowedUsers, slack.channelID" in resolved.notes[0]
    assert "codebutler trust repo" in resolved.notes[0]


def test_of_a_changed_file_what_is_stricter_counts(home: Home, repo: Path) -> None:
    home.config.write_text(
        json.dumps(
            {
                "slack": {"allowedUsers": ["U0001", "U0002"]},
                "sandbox": {"mode": "none", "network": "open", "commandNetwork": "open"},
                "budget": {"repo": {"usdPerDay": 50}},
            }
        )
    )
    entry = write(repo, {})
    write(
        repo,
        {
            "slack": {"allowedUsers": ["U0002", "U0666"]},
            "sandbox": {"mode": "bwrap", "network": "hosts", "commandNetwork": "none", "hosts": ["pypi.org"]},
            "claude": {"permissionMode": "ask", "binary": "/tmp/evil"},
            "kimi": {"permissionMode": "bypassPermissions"},
            "budget": {"repo": {"usdPerDay": 500, "turnsPerDay": 9}},
            "authorization": {"blocklist": ["git push"]},
        },
    )
    resolved = resolve_repo(home, entry, {})
    config, source = resolved.config, str(repo / ".codebutler" / "config.json")
    assert config.slack.allowed_users == ("U0002",)
    assert (config.sandbox.mode, config.sandbox.network, config.sandbox.hosts) == (
        "bwrap",
        "hosts",
        ("pypi.org",),
    )
    assert (config.claude.permission_mode, config.claude.binary) == ("ask", "claude")
    assert (config.budget.repo.usd_per_day, config.budget.repo.turns_per_day) == (50, 9)
    assert set(config.authorization.blocklist) > {"git push"}
    assert resolved.provenance["sandbox.mode"] == source
    assert resolved.provenance["budget.repo.usdPerDay"] == str(home.config)
    [note] = resolved.notes
    assert "ignoring budget.repo.usdPerDay, claude.binary; applying authorization.blocklist, " in note
    assert "because that is stricter" in note
    assert "kimi.permissionMode" not in note


def test_the_environment_is_above_a_changed_file(home: Home, repo: Path) -> None:
    entry = write(repo, {})
    write(repo, {"slack": {"allowedUsers": []}, "claude": {"binary": "/tmp/evil"}})
    resolved = resolve_repo(home, entry, {"ALLOWED_USER_IDS": "U0001", "CLI_CLAUDE": "/usr/bin/claude"})
    assert resolved.config.slack.allowed_users == ("U0001",)
    assert resolved.config.claude.binary == "/usr/bin/claude"
    assert "ignoring claude.binary, slack.allowedUsers;" in resolved.notes[0]


def test_a_harmless_change_makes_no_noise(home: Home, repo: Path) -> None:
    entry = write(repo, {"slack": {"channelID": "C0001"}})
    write(repo, {"slack": {"channelID": "C0001"}, "claude": {"maxTurns": 4}})

    resolved = resolve_repo(home, entry, {})

    assert resolved.notes == ()
    assert resolved.config.claude.max_turns == 4


def test_a_deleted_config_leaves_the_registered_channel(home: Home, repo: Path) -> None:
    entry = write(repo, {"slack": {"channelID": "C0001"}})
    (repo / ".codebutler" / "config.json").unlink()
    (repo / ".codebutler").rmdir()

    assert resolve_repo(home, entry, {}).config.slack.channel_id == "C0001"


def test_a_deleted_repository_is_told_with_the_way_out(home: Home, tmp_path: Path) -> None:
    entry = RepoEntry(name="gone", path=str(tmp_path / "gone"))

    with pytest.raises(ConfigError, match=r"gone no longer exists.*codebutler remove-repo gone"):
        resolve_repo(home, entry, {})


@pytest.mark.parametrize("planted", ["file link", "directory link", "pipe", "directory", "huge"])
def test_what_is_planted_in_a_repository_is_not_read(
    home: Home, repo: Path, tmp_path: Path, planted: str
) -> None:
    target = tmp_path / "secrets"
    target.mkdir()
    (target / "config.json").write_text('{"sandbox": {"mode": "none"}}')
    config = repo / ".codebutler" / "config.json"
    if planted == "file link":
        config.symlink_to(target / "config.json")
    elif planted == "directory link":
        (repo / ".codebutler").rmdir()
        (repo / ".codebutler").symlink_to(target)
    elif planted == "pipe":
        os.mkfifo(config)
    elif planted == "directory":
        config.mkdir()
    else:
        config.write_text(" " * (256 * 1024 + 1))

    with pytest.raises(ConfigError) as caught:
        resolve_repo(home, RepoEntry(name="repo", path=str(repo)), {})

    assert str(repo) in str(caught.value)


def test_a_bad_file_is_told_by_its_path(home: Home, repo: Path) -> None:
    entry = write(repo, {"claude": {"maxTurns": "x"}})

    with pytest.raises(ConfigError) as caught:
        resolve_repo(home, entry, {})

    assert (
        str(caught.value)
        == f"{repo}/.codebutler/config.json: claude.maxTurns: expected a whole number, got text"
    )


def test_a_global_file_of_the_whatsapp_era_is_recognised(home: Home) -> None:
    home.config.write_text('{"whatsapp": {}}')

    with pytest.raises(LegacyConfigError, match="codebutler migrate"):
        resolve_global(home, {})


def test_the_values_are_the_config_as_json(home: Home) -> None:
    resolved = resolve_global(home, {"LOG_LEVEL": "warn"})

    assert msgspec.convert(resolved.values, type(resolved.config)) == resolved.config


GOOSE = {"prefix": "goose", "binary": "goose", "args": ["acp"], "mode": "acp"}
MINE = {"prefix": "mine", "binary": "mine", "mode": "headless"}


@pytest.mark.parametrize(
    ("name", "default"),
    [("goose", "goose"), ("mine", "mine"), ("native", "native"), ("agent", "native")],
)
def test_any_agent_may_be_the_default(home: Home, repo: Path, name: str, default: str) -> None:
    home.config.write_text(json.dumps({"commands": [GOOSE]}))
    entry = write(repo, {"agent": {"default": name}, "commands": [MINE]})
    assert resolve_repo(home, entry, {}).config.agent.default == default


@pytest.mark.parametrize("name", ["nobody", "run", "kimi", "shell"])
def test_what_is_no_agent_may_not(home: Home, repo: Path, name: str) -> None:
    programs = [{"prefix": each, "binary": "sh", "mode": "interactive"} for each in ("kimi", "shell")]
    entry = write(repo, {"agent": {"default": name}, "commands": [*programs, GOOSE]})
    with pytest.raises(
        ConfigError, match=r"agent\.default: expected one of claude, native, rehearsal, goose"
    ):
        resolve_repo(home, entry, {})


def test_an_untrusted_file_may_name_only_agents_that_count(home: Home, repo: Path) -> None:
    home.config.write_text(json.dumps({"commands": [GOOSE], "agent": {"default": "kimi"}}))
    changed = msgspec.structs.replace(
        write(repo, {"agent": {"default": "mine"}, "commands": [MINE]}), digest="old"
    )
    resolved = resolve_repo(home, changed, {})
    assert resolved.config.agent.default == "kimi"
    assert "ignoring commands" in resolved.notes[0]
    changed = msgspec.structs.replace(write(repo, {"agent": {"default": "goose"}}), digest="old")
    assert resolve_repo(home, changed, {}).config.agent.default == "goose"
