"""The channel that `codebutler add-repo --create-channel` makes: who is invited, and what it says it is for."""

from __future__ import annotations

from pathlib import Path

import pytest

from codebutler.workspace.server import Options, WorkspaceServer
from tests.commands import output_of
from tests.e2e.house import command, environment
from tests.integration.cli.conftest import Cli
from tests.integration.cli.slack_server import SlackServer
from tests.integration.cli.terminal import in_terminal


@pytest.fixture
def two(connected: Cli, slack: SlackServer) -> Cli:
    """Two people are allowed."""
    assert connected("allow", "bob").code == 0
    slack.calls.clear()
    return connected


def invited(slack: SlackServer) -> list[str]:
    return [given["users"] for method, given in slack.calls if method == "conversations.invite"]


@pytest.mark.parametrize(
    ("options", "who"),
    [
        ((), ["U0123ABC,U0456DEF"]),
        (("--invite", "ada@example.com"), ["U0123ABC"]),
        (("--invite", "ada", "--invite", "U0456DEF"), ["U0123ABC,U0456DEF"]),
        (("--invite", "none"), []),
    ],
)
def test_people_are_invited(
    two: Cli, slack: SlackServer, git_repo: Path, options: tuple[str, ...], who: list[str]
) -> None:
    result = two("add-repo", str(git_repo), "--name", "shop", "--create-channel", "shop", *options)

    assert result.code == 0
    assert invited(slack) == who
    told = {method: given for method, given in slack.calls if method.startswith("conversations.set")}
    assert "shop" in told["conversations.setTopic"]["topic"]
    assert "repository shop" in told["conversations.setPurpose"]["purpose"]


def test_somebody_at_a_terminal_chooses(two: Cli, slack: SlackServer, git_repo: Path) -> None:
    arguments = ["add-repo", str(git_repo), "--create-channel", "shop"]
    shown = in_terminal(arguments, ["nobody such", "ada"], two.home.root, {})

    assert "Ada (U0123ABC), Bob (U0456DEF)" in shown
    assert "nobody in Slack is called nobody such" in shown
    assert "Invited to #shop: Ada (U0123ABC)" in shown
    assert invited(slack) == ["U0123ABC"]


def test_a_wrong_person_is_refused_before_there_is_a_channel(
    connected: Cli, slack: SlackServer, git_repo: Path
) -> None:
    arguments = ("add-repo", str(git_repo), "--create-channel", "shop", "--invite", "U0NOBODY")
    connected.fails(*arguments, code=1, said="there is no user U0NOBODY in Slack")
    assert "conversations.create" not in slack.methods()
    arguments = ("add-repo", str(git_repo), "--channel", "mine", "--invite", "ada")
    connected.fails(*arguments, code=2, said="--invite needs --create-channel")


def test_what_slack_refuses_besides_is_told_and_the_channel_is_used(
    connected: Cli, slack: SlackServer, git_repo: Path
) -> None:
    slack.failures |= {"conversations.invite": "cant_invite", "conversations.setTopic": "missing_scope"}

    result = connected("add-repo", str(git_repo), "--create-channel", "shop")

    assert result.code == 0
    assert "could not invite anybody: Slack refused conversations.invite: cant_invite" in result.err
    assert "topic and purpose: Slack refused" in result.err


async def test_the_embedded_workspace_shows_it(cli: Cli, git_repo: Path) -> None:
    async with WorkspaceServer(Options(channels=("general",))) as workspace:
        env = environment(workspace, cli.home.root)
        tokens = ("--bot-token", workspace.bot_token, "--app-token", workspace.app_token)
        await output_of(*command("setup", *tokens, "--allow-user", "you"), env=env)
        said = await output_of(*command("add-repo", str(git_repo), "--create-channel", "shop"), env=env)
        assert "Invited to #shop: you (UYOU0000000)" in said
        channel = workspace.workspace.channels[workspace.channel_id("shop")]
        assert workspace.workspace.person.id in channel.members
        assert "Coding agents for" in channel.topic
