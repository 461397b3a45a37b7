"""From a message to a merged branch: the whole way, over the running product, a GitHub of the tests and its webhook.

| case | what happens |
|---|---|
| V10 | a run changes a file in its thread's worktree; *Commit* and `!pr` open a pull request with what was asked; a
    webhook says that its checks fail, and the thread has the log; *Fix it* starts a run, `!push` updates the pull
    request; a webhook says that they pass, and the thread says so; `!merge` brings it to `main` |
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from codebutler.domain.message import HAND_OVER_ACTION
from tests.e2e.house import House, house, whole_text
from tests.e2e.test_changes import QUICK, actions, card_with
from tests.e2e.test_jobs import Hook, hook_of
from tests.forgeserver.github import NAME, OWNER, TOKEN, GitHubServer, serving
from tests.integration.forge.kit import Desk, desk_at, git, owners_ssh
from tests.programs import require

SECRET = "a-secret-for-this-test-only"
HOOKS = "hooks:\n- {name: pulls, secretEnv: CI_SECRET, repo: sample, pulls: true}\n"


def next_look(repo: Path) -> str:
    """When the pull request is looked at next."""
    with closing(sqlite3.connect(f"file:{repo}/.codebutler/store.db?mode=ro", uri=True)) as store:
        found: str = store.execute("SELECT next_at FROM pulls").fetchone()[0]
    return found


async def news(built: House, hook: Hook, repo: Path) -> None:
    """The service calls the webhook; the pull request is then looked at sooner than it would have been."""
    before = next_look(repo)
    body = json.dumps({"check_run": {"pull_requests": [{"number": 12}]}}).encode()
    assert await hook.post(body, **{"X-GitHub-Event": "check_run"}) == 202
    await built.until_status(lambda _: next_look(repo) < before)


def at_work(place: Path) -> Desk:
    """A clone whose remote is reached as one at a service is; its owner commits as Ana."""
    require("bwrap")
    require("git")
    desk = desk_at(place)
    owners_ssh(desk, place)
    with (place / ".gitconfig").open("a") as config:
        config.write("[user]\n\tname = Ana\n\temail = ana@example.org\n")
    git(desk.repo, "remote", "set-url", "origin", f"git@localhost:{OWNER}/{NAME}.git")
    return desk


async def served(built: House, desk: Desk, github: GitHubServer) -> tuple[str, Hook]:
    """Its channel, and the webhook that the service calls."""
    forge = {"kind": "github", "token": TOKEN, "apiUrl": f"http://127.0.0.1:{github.port}"}
    config = built.home / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "forge": forge}))
    (built.home / ".env").write_text(f"CI_SECRET={SECRET}\n")
    (built.home / "jobs.yaml").write_text(HOOKS)
    channel = await built.add_repo(desk.repo, "sample", agent={**QUICK, "isolation": "worktree"})
    await built.supervise()
    hook = await hook_of(built, SECRET)
    hook.name = "pulls"
    return channel, hook


async def committed(built: House, channel: str, text: str, thread: str | None = None) -> str:
    """A run changes one file, and *Commit* is pressed; returns what was asked."""
    asked = await built.say(channel, text, thread)
    card = await card_with(built, channel, thread or asked, f"`{text.split()[1]}` +1 −0")
    assert await built.outcome(channel, asked) == "white_check_mark"
    await built.click(channel, card["ts"], "codebutler.commit", actions(card)["codebutler.commit"])
    await built.answer(channel, thread or asked, "✅ Committed", after=asked)
    return asked


async def test_v10_from_a_message_to_a_merged_branch(tmp_path: Path) -> None:
    desk = at_work(tmp_path)
    async with serving(GitHubServer(desk.remote)) as github, house(tmp_path, "sample", cards=True) as built:
        channel, hook = await served(built, desk, github)
        github.check("test", None)
        thread = await committed(built, channel, "create made.txt with one")
        await built.say(channel, "!pr Make one", thread)
        await built.answer(channel, thread, "Pull request")
        (pull,) = github.pulls
        branch = pull["head"]["ref"]
        assert (pull["title"], pull["base"]["ref"]) == ("Make one", "main")
        assert "> create made.txt with one" in pull["body"]
        first = desk.at(branch)

        github.check("test", "failure", "FAILED test_made.py: two is missing\n")
        await news(built, hook, desk.repo)
        failed = await built.answer(channel, thread, "failed on")
        assert "two is missing" in whole_text(failed)
        await built.click(channel, failed["ts"], HAND_OVER_ACTION, actions(failed)[HAND_OVER_ACTION])
        await built.answer(channel, thread, "handed this to the agent")
        again = await committed(built, channel, "create second.txt with two", thread)
        await built.say(channel, "!push", thread)
        await built.answer(channel, thread, "Pushed", after=again)
        assert desk.at(branch) not in ("", first)

        github.check("test", "success")
        await news(built, hook, desk.repo)
        await built.answer(channel, thread, "passed on")
        await built.say(channel, "!merge", thread)
        await built.answer(channel, thread, "Merged")
        assert git(desk.repo, "show", "main:second.txt") == "two"
        assert git(desk.repo, "log", "-1", "--format=%an", "main") == "Ana"
