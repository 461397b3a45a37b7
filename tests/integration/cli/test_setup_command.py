from __future__ import annotations

import json
import stat

import pytest

from tests.integration.cli.conftest import Cli
from tests.integration.cli.slack_server import APP_TOKEN, BOT_TOKEN, SlackServer

TOKENS = ("--bot-token", BOT_TOKEN, "--app-token", APP_TOKEN)


def test_the_tokens_are_tried_and_written_privately(cli: Cli, slack: SlackServer) -> None:
    result = cli("setup", *TOKENS, "--allow-user", "U0123ABC", "--openai-key", "sk-1", "--api-url", slack.url)

    assert result.code == 0
    assert slack.methods() == ["auth.test", "apps.connections.open", "users.info"]
    assert json.loads(cli.home.config.read_text()) == {
        "slack": {
            "botToken": BOT_TOKEN,
            "appToken": APP_TOKEN,
            "allowedUsers": ["U0123ABC"],
            "apiBaseUrl": slack.url,
        },
        "openai": {"apiKey": "sk-1"},
    }
    assert stat.S_IMODE(cli.home.config.stat().st_mode) == 0o600
    assert "Testers" in result.out
    assert BOT_TOKEN not in result.out + result.err


def test_what_is_there_is_kept(connected: Cli) -> None:
    before = json.loads(connected.home.config.read_text())
    before["claude"] = {"maxTurns": 3}
    connected.home.config.write_text(json.dumps(before))

    assert connected("setup", "--allow-user", "U0456DEF", "--kimi-key", "k").code == 0

    after = json.loads(connected.home.config.read_text())
    assert after["slack"]["allowedUsers"] == ["U0123ABC", "U0456DEF"]
    assert after["slack"]["botToken"] == BOT_TOKEN
    assert after["claude"] == {"maxTurns": 3}
    assert after["kimi"] == {"apiKey": "k"}


def test_tokens_of_the_environment_are_used_and_not_written(
    cli: Cli, slack: SlackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLACK_BOT_TOKEN", BOT_TOKEN)
    monkeypatch.setenv("SLACK_APP_TOKEN", APP_TOKEN)
    monkeypatch.setenv("SLACK_API_URL", slack.url)

    assert cli("setup", "--allow-user", "U0123ABC").code == 0

    assert slack.methods() == ["auth.test", "apps.connections.open", "users.info"]
    assert json.loads(cli.home.config.read_text()) == {"slack": {"allowedUsers": ["U0123ABC"]}}


def test_a_file_that_the_environment_overrides_is_told(
    cli: Cli, slack: SlackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLACK_BOT_TOKEN", "xoxb-1-2-another")

    result = cli("setup", *TOKENS, "--allow-user", "U0123ABC", "--api-url", slack.url)

    assert result.code == 0
    assert "environment SLACK_BOT_TOKEN overrides slack.botToken" in result.err


def test_nobody_allowed_is_told(cli: Cli, slack: SlackServer) -> None:
    result = cli("setup", *TOKENS, "--api-url", slack.url)

    assert result.code == 0
    assert "Nobody is allowed yet" in result.err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (
            ("--bot-token", APP_TOKEN, "--app-token", APP_TOKEN),
            "slack.botToken: expected a bot token (xoxb-…)",
        ),
        (("--bot-token", BOT_TOKEN, "--app-token", BOT_TOKEN), "slack.appToken: expected an app-level token"),
        (("--bot-token", "xoxp-1-user", "--app-token", APP_TOKEN), "this is a user token"),
        (("--bot-token", BOT_TOKEN), "no app-level token: pass --app-token"),
        (
            (),
            "no chat is configured: pass --bot-token and --app-token (Slack), or --telegram-token (Telegram)",
        ),
        ((*TOKENS, "--api-url", "slack.com"), "slack.apiBaseUrl: expected a URL"),
    ],
)
def test_a_wrong_answer_is_one_line_and_nothing_is_written(
    cli: Cli, args: tuple[str, ...], said: str
) -> None:
    result = cli.fails("setup", *args, code=78, said=said)

    assert not cli.home.config.exists()
    assert "theapptoken" not in result.err
    assert "thebottoken" not in result.err


@pytest.mark.parametrize(
    ("method", "error", "said"),
    [
        ("auth.test", "token_revoked", "slack.botToken (token_revoked)"),
        ("auth.test", "account_inactive", "slack.botToken (account_inactive)"),
        ("apps.connections.open", "invalid_auth", "slack.appToken (invalid_auth)"),
    ],
)
def test_a_refused_token_is_one_line_and_nothing_is_written(
    cli: Cli, slack: SlackServer, method: str, error: str, said: str
) -> None:
    slack.failures[method] = error

    cli.fails("setup", *TOKENS, "--api-url", slack.url, code=78, said=said)

    assert not cli.home.config.exists()


def test_a_server_that_is_not_there_is_one_line(cli: Cli) -> None:
    said = "cannot be reached for auth.test: connection refused"
    cli.fails("setup", *TOKENS, "--api-url", "http://127.0.0.1:9/api/", code=1, said=said)
    said = "cannot be reached for auth.test: its name does not resolve"
    cli.fails("setup", *TOKENS, "--api-url", "https://nowhere.invalid/api/", code=1, said=said)


@pytest.mark.parametrize(
    ("user", "said"),
    [
        ("U0NOBODY", "there is no user U0NOBODY in Slack"),
        ("@nobody", "nobody in Slack is called nobody"),
        ("U0789GHI", "gone (U0789GHI) is deactivated in Slack"),
    ],
)
def test_somebody_who_is_not_there_is_refused_and_nothing_is_written(
    cli: Cli, slack: SlackServer, user: str, said: str
) -> None:
    cli.fails("setup", *TOKENS, "--allow-user", user, "--api-url", slack.url, code=1, said=said)

    assert not cli.home.config.exists()


def test_an_app_that_may_not_look_up_people_takes_ids_unchecked(cli: Cli, slack: SlackServer) -> None:
    slack.failures = {"users.info": "missing_scope", "users.list": "missing_scope"}

    result = cli("setup", *TOKENS, "--allow-user", "U0XYZ", "--api-url", slack.url)

    assert result.code == 0
    assert "U0XYZ was not checked" in result.err
    cli.fails("setup", "--allow-user", "bob", code=1, said="pass a user ID")
