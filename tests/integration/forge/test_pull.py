"""Pull requests from chat, at a GitHub of the tests: with a token, and by the real gh."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from codebutler.config.schema import AuthorizationRule, AuthorizationSection, ForgeSection, GitSection
from codebutler.text.envelopes import enveloped
from codebutler_worker.agents.backend import AgentEvent, Text, ToolUse
from tests.events import clicked
from tests.forgeserver.github import NAME, OWNER, TOKEN, GitHubServer, certificate, serving
from tests.integration.forge.kit import Desk, at_github, git, says, turn
from tests.programs import require
from tests.shown import text_of
from tests.worker_kit import CHANNEL, USER, worker


async def test_a_pull_request_tells_what_was_asked_and_answered(desk: Desk, github: GitHubServer) -> None:
    async with worker(at_github(desk, github)) as parent:
        await turn(parent, "fix the login bug @everybody")
        commit = desk.commit(subject="Fix the login")
        says(parent, "pr", "100.2")
        told = await parent.post_with("Pull request")
    (pull,) = github.pulls
    assert f"<{pull['html_url']}|acme/shop#12>" in text_of(told)
    assert pull["title"] == "Fix the login"
    assert pull["base"]["ref"] == "main"
    assert desk.at(pull["head"]["ref"]) == commit
    assert "> fix the login bug" in pull["body"]
    assert "@everybody" not in pull["body"]
    assert "Done." in pull["body"]
    assert "1 file changed" in pull["body"]
    assert "https://slack.com/archives/C0REPO/p1001" in pull["body"]


async def test_said_again_it_updates_the_one_there_is(desk: Desk, github: GitHubServer) -> None:
    async with worker(at_github(desk, github, describe=False)) as parent:
        await turn(parent)
        desk.commit()
        says(parent, "pr", "100.2", "A *title* of my own")
        await parent.post_with("opened.")
        second = desk.commit("more.py", subject="More")
        says(parent, "pr", "100.3")
        await parent.post_with("updated.")
    (pull,) = github.pulls
    assert pull["title"] == "A *title* of my own"
    assert desk.at(pull["head"]["ref"]) == second
    assert "2 files changed" in pull["body"]
    assert "fix the login" not in pull["body"]


async def test_a_restart_opens_no_second_one(desk: Desk, github: GitHubServer) -> None:
    git(desk.repo, "checkout", "-qb", "topic")
    desk.commit()
    async with worker(at_github(desk, github), mute=True) as parent:
        says(parent, "pr", "100.2")
        await parent.until(lambda: github.pulls)
    async with worker(at_github(desk, github)) as parent:
        await parent.until(lambda: any("Pull request" in text_of(post) for post in parent.posts), flow=True)
        await parent.until(lambda: len(github.pulls) == 1)


async def test_a_button_after_a_run_does_the_same(desk: Desk, github: GitHubServer) -> None:
    async with worker(at_github(desk, github)) as parent:
        await turn(parent)
        desk.commit()
        turn_id = parent.backend.runs[0].request.turn_id
        for number, (action, value) in enumerate((("push", "unknown"), ("push", turn_id), ("pr", turn_id))):
            press = clicked(
                channel=CHANNEL, user=USER, message="9000.9", action_id=f"codebutler.{action}", value=value,
                press=f"101.{number}", thread="100.1",
            )  # fmt: skip
            parent.deliver(press)
        assert (await parent.post_with("Pull request")).thread == "100.1"
        assert len(github.pulls) == 1


WISH = f"Ready, [click](https://evil.example) <!channel> \u202eon\u202c {TOKEN}"


@pytest.mark.parametrize(
    "asked",
    [
        Text(enveloped(WISH, "push")),
        ToolUse("1", "ask_to_push", WISH, {"why": WISH}),
        ToolUse("1", "mcp__codebutler__ask_to_push", WISH, {"why": WISH}),
    ],
)
async def test_an_agent_asks_and_a_person_who_may_push_opens_it(
    desk: Desk, github: GitHubServer, asked: AgentEvent
) -> None:
    settings = at_github(desk, github)
    rules = (
        AuthorizationRule(channels=(CHANNEL,), users=(USER,), allowed_prefixes=("claude", "push")),
        AuthorizationRule(channels=(CHANNEL,), users=("*",), allowed_prefixes=("claude",)),
    )
    config = msgspec.structs.replace(settings.config, authorization=AuthorizationSection(rules=rules))
    async with worker(msgspec.structs.replace(settings, config=config)) as parent:
        parent.says("fix the login bug", "100.1")
        run = await parent.run(0)
        desk.commit()
        run.does(asked, asked)
        run.finish()
        card = await parent.post_with("asks you to push")
        assert "Ready" in text_of(card)
        assert "<!channel>" not in text_of(card)
        assert "<https://evil.example" not in text_of(card)
        assert TOKEN not in text_of(card)
        assert "\u202e" not in text_of(card)
        assert [each.label for each in card.message.buttons] == ["Open a pull request", "Push"]
        await parent.until(lambda: parent.reactions("100.1") == ["white_check_mark"], flow=True)
        assert len([post for post in parent.posts if "asks you to push" in text_of(post)]) == 1
        assert github.pulls == []
        for user in ("U0BEN", USER):
            press = clicked(
                channel=CHANNEL, user=user, message="9000.9", action_id=card.message.buttons[0].action,
                value=card.message.buttons[0].value, press=f"101.{user}", thread="100.1",
            )  # fmt: skip
            parent.deliver(press)
            await parent.post_with("not authorized to push")
        await parent.post_with("opened.")
        assert len(github.pulls) == 1


async def test_a_refusal_is_told_beside_what_was_pushed_and_names_no_token(
    desk: Desk, github: GitHubServer
) -> None:
    github.refuses = f"no, {TOKEN}"
    git(desk.repo, "checkout", "-qb", "topic")
    commit = desk.commit()
    async with worker(at_github(desk, github)) as parent:
        says(parent, "pr", "100.2")
        told = text_of(await parent.post_with("No pull request was opened"))
        assert desk.at("topic") == commit
        assert TOKEN not in told
        assert not any(TOKEN in line for tag in ("INF", "WRN", "ERR") for line in parent.logs(tag))


async def test_without_a_login_the_push_stands_and_it_says_what_to_do(
    desk: Desk, github: GitHubServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    for each in ("git", "sh"):
        (programs / each).symlink_to(require(each) if each == "git" else "/bin/sh")
    monkeypatch.setenv("PATH", str(programs))
    git(desk.repo, "checkout", "-qb", "topic")
    commit = desk.commit()
    plain = desk.settings(git_section=GitSection())
    config = msgspec.structs.replace(plain.config, forge=ForgeSection(kind="github"))
    async with worker(msgspec.structs.replace(plain, config=config)) as parent:
        says(parent, "pr", "100.2")
        await parent.post_with("gh auth login")
        assert desk.at("topic") == commit


async def test_the_owners_gh_opens_it(
    desk: Desk, github: GitHubServer, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require("gh")
    require("openssl")
    tls = certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(tls[0]))
    monkeypatch.delenv("GH_CONFIG_DIR", raising=False)
    git(desk.repo, "checkout", "-qb", "topic")
    desk.commit()
    async with serving(GitHubServer(desk.remote), tls) as server:
        git(desk.repo, "remote", "set-url", "origin", f"https://{server.host}/{OWNER}/{NAME}.git")
        with (home / ".gitconfig").open("a") as file:
            file.write(f'[url "git@localhost:"]\n\tinsteadOf = https://{server.host}/\n')
        settings = desk.settings(git_section=GitSection())
        config = msgspec.structs.replace(settings.config, forge=ForgeSection(kind="github"))
        settings = msgspec.structs.replace(settings, config=config)
        async with worker(settings) as parent:
            says(parent, "pr", "100.2")
            await parent.post_with("gh has no login for localhost")
            (home / ".config/gh").mkdir(parents=True)
            (home / ".config/gh/hosts.yml").write_text(
                f"{server.host}:\n    oauth_token: {TOKEN}\n    user: ana\n    git_protocol: https\n"
            )
            says(parent, "pr", "100.3", "By gh")
            told = text_of(await parent.post_with("Pull request"))
            assert TOKEN not in told
            server.check("test", "failure", "E   assert 1 == 2")
            server.lines.append(
                {"id": 9, "body": "Why?", "user": {"login": "eve"}, "path": "app.py", "line": 3}
            )
            assert "assert 1 == 2" in text_of(await parent.post_with("failed on"))
            assert "Why?" in text_of(await parent.post_with("1 new comment"))
    (pull,) = server.pulls
    assert (pull["title"], pull["head"]["ref"]) == ("By gh", "topic")
