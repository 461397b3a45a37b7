"""`codebutler allow` and `codebutler deny`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.cli.conftest import Cli
from tests.integration.cli.slack_server import SlackServer


def allowed(cli: Cli) -> list[str]:
    users: list[str] = json.loads(cli.home.config.read_text())["slack"]["allowedUsers"]
    return users


def test_people_are_allowed_by_name_and_denied_again(connected: Cli) -> None:
    result = connected("allow", "@bob")
    assert result.code == 0
    assert "Allowed: Bob (U0456DEF)" in result.out
    assert allowed(connected) == ["U0123ABC", "U0456DEF"]

    result = connected("deny", "ada@example.com")
    assert result.code == 0
    assert "Denied: Ada (U0123ABC)" in result.out
    assert allowed(connected) == ["U0456DEF"]

    assert "The list is now empty" in connected("deny", "U0456DEF").err
    assert allowed(connected) == []


def test_they_are_listed_with_their_names(connected: Cli, slack: SlackServer) -> None:
    assert connected("allow").out == "Ada (U0123ABC)\n"
    assert json.loads(connected("allow", "--json").out) == {"users": [{"id": "U0123ABC", "name": "Ada"}]}
    slack.failures["users.info"] = "missing_scope"
    assert connected("allow").out == "U0123ABC\n"


def test_who_is_not_there_is_neither_allowed_nor_denied(connected: Cli) -> None:
    connected.fails("allow", "U0NOBODY", code=1, said="there is no user U0NOBODY in Slack")
    connected.fails("deny", "U0456DEF", code=1, said="U0456DEF is not on the list")
    connected.fails("deny", "bob", code=1, said="Bob (U0456DEF) is not on the list")
    assert allowed(connected) == ["U0123ABC"]


def test_an_id_is_denied_without_slack(connected: Cli, slack: SlackServer) -> None:
    slack.failures = {"users.info": "fatal_error", "users.list": "fatal_error"}
    assert connected("deny", "U0123ABC").code == 0
    assert allowed(connected) == []
    assert slack.calls == []


def test_who_is_still_allowed_by_the_environment_is_not_said_to_be_denied(
    connected: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALLOWED_USER_IDS", "U0123ABC")
    connected.fails(
        "deny", "U0123ABC", code=1, said="is still allowed: environment ALLOWED_USER_IDS overrides"
    )


def test_a_repository_with_a_list_of_its_own_is_told(connected: Cli, git_repo: Path) -> None:
    own = git_repo / ".codebutler"
    assert connected("add-repo", str(git_repo), "--channel", "C0MINE000", "--name", "shop").code == 0
    config = json.loads((own / "config.json").read_text())
    config["slack"]["allowedUsers"] = ["U0123ABC"]
    (own / "config.json").write_text(json.dumps(config))
    assert connected("trust", "shop").code == 0
    assert "shop has its own list" in connected("deny", "U0123ABC").err


def test_without_a_token_it_says_what_to_do(cli: Cli) -> None:
    cli.fails("allow", "bob", code=78, said="run `codebutler setup` first")
    assert "Nobody is allowed yet" in cli("allow").err
