"""`config set` and `unset`: what the schema takes, in the home's file and in a repository's."""

from __future__ import annotations

import io
import json
import stat
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from codebutler.cli.config import change, with_value
from codebutler.config.resolve import resolve_global, resolve_repo
from tests.integration.cli.conftest import Cli
from tests.integration.cli.repos import config_of, only_entry


@pytest.mark.parametrize(
    ("key", "value", "stored"),
    [
        ("agent.default", "native", "native"),
        ("claude.model", "5", "5"),
        ("agent.debounceSeconds", "2.5", 2.5),
        ("dashboard.enabled", "false", False),
        ("sandbox.hosts", "pypi.org, a.org:80", ["pypi.org", "a.org:80"]),
        ("sandbox.hosts", '["pypi.org"]', ["pypi.org"]),
        ("sandbox.hosts", "", []),
        ("approvals.quorum", '{"git push": 2}', {"git push": 2}),
        ("claude.mcp", '{"a": {"command": "a"}}', {"a": {"command": "a"}}),
    ],
)
def test_a_value_is_read_as_its_key_expects(cli: Cli, key: str, value: str, stored: object) -> None:
    assert cli("config", "set", key, value).code == 0
    section, _, name = key.partition(".")
    assert json.loads(cli.home.config.read_text()) == {section: {name: stored}}
    assert stat.S_IMODE(cli.home.config.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("agent.debounceSeconds", "soon", "agent.debounceSeconds: expected"),
        ("agent.parallelTurns", "1000", "agent.parallelTurns: expected"),
        ("agent.defalt", "claude", "did you mean default"),
        ("newRepos.author", "Ana", "expected a name and an address such as Ana Lopez <ana@example.org>"),
        ("agent", "claude", "agent: expected"),
        ("agent.default", "nobody", "agent.default: expected one of claude, kimi, native, rehearsal"),
        ("agent.default", "run", "agent.default: expected one of claude, kimi, native, rehearsal"),
        ("agent.onLimit", "agent nobody", "agent.onLimit: expected one of claude, kimi, native, rehearsal"),
        ("agent.onLimit", "sleep", "agent.onLimit: expected wait, ask, or agent and its name"),
        ("agent.default.name", "claude", "there is no key agent.default.name"),
        ("slack.botToken", "xapp-1", "expected a bot token"),
        ("agent.debounceSeconds", "fast", "expected a number, got text"),
        ("budget.total", "5", "expected an object with keys such as usdPerDay"),
        ("newRepos.allow", "7", "expected the ID of a person, or *"),
    ],
)
def test_what_the_schema_refuses_changes_nothing(cli: Cli, key: str, value: str, said: str) -> None:
    cli("config", "set", "agent.default", "kimi")
    before = cli.home.config.read_bytes()
    cli.fails("config", "set", key, value, code=78, said=said)
    assert cli.home.config.read_bytes() == before


def test_a_key_is_read_from_standard_input_and_never_shown(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("sk-very-secret\n"))
    result = cli("config", "set", "kimi.apiKey")
    assert result.code == 0
    assert "secret" not in result.out + result.err
    assert resolve_global(cli.home, {}).config.kimi.api_key == "sk-very-secret"


def test_nothing_on_standard_input_sets_nothing(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    cli("config", "set", "kimi.apiKey", "sk-very-secret")
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    cli.fails(
        "config", "set", "kimi.apiKey", code=78, said="`codebutler config unset kimi.apiKey` removes it"
    )
    assert resolve_global(cli.home, {}).config.kimi.api_key == "sk-very-secret"


def test_what_overrides_the_file_is_told(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KIMI_API_KEY", "other")
    assert "environment KIMI_API_KEY overrides kimi.apiKey" in cli("config", "set", "kimi.apiKey", "mine").err


def test_unset_leaves_the_rest(cli: Cli) -> None:
    cli("config", "set", "agent.default", "kimi")
    cli("config", "set", "agent.busy", "steer")
    assert cli("config", "unset", "agent.default").code == 0
    assert json.loads(cli.home.config.read_text()) == {"agent": {"busy": "steer"}}
    cli.fails("config", "unset", "agent.default", code=78, said="agent.default is not set there")


def test_the_owners_change_of_a_trusted_repository_is_trusted(connected: Cli, git_repo: Path) -> None:
    connected("add-repo", str(git_repo), "--channel", "C0MINE000")
    result = connected("config", "set", "sandbox.mode", "none", "--repo", "repo")
    assert (result.code, result.err) == (0, "")
    resolved = resolve_repo(connected.home, only_entry(connected), {})
    assert (resolved.trusted, resolved.config.sandbox.mode) == (True, "none")
    assert resolved.config.slack.channel_id == "C0MINE000"
    assert stat.S_IMODE(config_of(git_repo).stat().st_mode) == 0o600
    assert connected("config", "unset", "sandbox.mode", "--repo", "repo").code == 0
    assert resolve_repo(connected.home, only_entry(connected), {}).trusted


def test_what_an_agent_wrote_before_is_not_trusted_with_it(connected: Cli, git_repo: Path) -> None:
    connected("add-repo", str(git_repo), "--channel", "C0MINE000")
    config_of(git_repo).write_text('{"sandbox": {"mode": "none"}}')
    result = connected("config", "set", "agent.busy", "steer", "--repo", "repo")
    assert result.code == 0
    assert "run `codebutler trust repo`" in result.err
    resolved = resolve_repo(connected.home, only_entry(connected), {})
    assert (resolved.trusted, resolved.config.sandbox.mode, resolved.config.agent.busy) == (
        False,
        "auto",
        "steer",
    )


def test_what_there_is_once_cannot_be_a_repositorys(connected: Cli, git_repo: Path) -> None:
    connected("add-repo", str(git_repo), "--channel", "C0MINE000")
    before = config_of(git_repo).read_bytes()
    connected.fails("config", "set", "dashboard.port", "1", "--repo", "repo", code=78, said="omit --repo")
    assert config_of(git_repo).read_bytes() == before


def test_a_name_still_shows_a_repository(connected: Cli, git_repo: Path) -> None:
    connected("add-repo", str(git_repo), "--channel", "C0MINE000")
    assert "C0MINE000" in connected("config", "repo").out
    assert connected("config", "repo", "--json").out.startswith("{")
    connected.fails("config", "nope", code=1, said="no repository is registered as 'nope'")


def test_an_agent_that_is_gone_can_be_replaced(cli: Cli) -> None:
    goose = {"prefix": "goose", "binary": "goose", "mode": "acp"}
    cli.home.ensure().config.write_text(json.dumps({"commands": [goose]}))
    assert cli("config", "set", "agent.default", "goose").code == 0
    cli.home.config.write_text(json.dumps({"agent": {"default": "goose"}}))
    cli.fails("config", code=78, said="agent.default: expected one of claude")
    assert cli("config", "set", "agent.default", "claude").code == 0


def test_what_was_set_as_an_object_can_be_unset(cli: Cli) -> None:
    cli("config", "set", "claude.model", "opus")
    cli("config", "set", "claude.mcp", '{"a": {"command": "a", "args": ["b"]}, "ab": {"command": "b"}}')
    assert cli("config", "unset", "claude.mcp.a").code == 0
    assert json.loads(cli.home.config.read_text())["claude"]["mcp"] == {"ab": {"command": "b"}}
    assert cli("config", "unset", "claude.mcp").code == 0
    assert json.loads(cli.home.config.read_text()) == {"claude": {"model": "opus"}}


def test_a_linked_file_is_changed_where_it_is(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "dotfiles.json").write_text("{}")
    cli.home.ensure()
    cli.home.config.symlink_to("../dotfiles.json")
    assert cli("config", "set", "agent.default", "kimi").code == 0
    assert json.loads((tmp_path / "dotfiles.json").read_text()) == {"agent": {"default": "kimi"}}
    assert cli.home.config.is_symlink()


def at_once(*commands: Callable[[], object]) -> None:
    start = threading.Barrier(len(commands))

    def run(command: Callable[[], object]) -> None:
        start.wait()
        command()

    threads = [threading.Thread(target=run, args=(each,)) for each in commands]
    for each in threads:
        each.start()
    for each in threads:
        each.join()


@pytest.mark.parametrize("name", ["", "repo"])
def test_changes_at_once_are_all_kept(connected: Cli, git_repo: Path, name: str) -> None:
    assert connected("add-repo", str(git_repo), "--channel", "C0MINE000").code == 0
    keys = [f"claude.mcp.server{number}.command" for number in range(12)]

    at_once(*(partial(change, partial(with_value, key=key, text="a"), "x", name) for key in keys))

    file = config_of(git_repo) if name else connected.home.config
    assert len(json.loads(file.read_text())["claude"]["mcp"]) == len(keys)
    assert "changed" not in connected("repos").out
