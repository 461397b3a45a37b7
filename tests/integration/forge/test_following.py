"""The checks and comments of a pull request come back to its thread, at a GitHub of the tests."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import timedelta
from functools import partial

import msgspec
import pytest

from codebutler.config.schema import AuthorizationRule, AuthorizationSection, RepoSettings
from codebutler.domain.message import HAND_OVER_ACTION
from codebutler.domain.model import Post
from codebutler.domain.refs import MessageRef
from codebutler.protocol.messages import Heartbeat
from codebutler_worker.forge.api import Pull, PullChecks
from codebutler_worker.forge.following import PollResult, report
from codebutler_worker.forge.remote import Remote, validate_remote
from codebutler_worker.store.opening import open_store
from codebutler_worker.store.rows import PullRow
from codebutler_worker.store.unit_of_work import UnitOfWork
from tests.clock import ManualClock
from tests.events import clicked
from tests.forgeserver.github import TOKEN, GitHubServer
from tests.integration.forge.kit import Desk, at_github, says, turn
from tests.shown import text_of
from tests.worker_kit import CHANNEL, USER, Parent, worker

LOG = """\
2026-01-02T03:04:05.0000001Z ##[group]Run pytest
2026-01-02T03:04:05.0000002Z \x1b[31mFAILED\x1b[0m test_app.py::test_login - assert 1 == 2
2026-01-02T03:04:06.0000003Z ##[error]Process completed with exit code 1.
2026-01-02T03:04:07.0000004Z Post job cleanup.
"""


async def opened(parent: Parent, desk: Desk) -> None:
    """A run, a commit of it, and its pull request."""
    await turn(parent)
    desk.commit(subject="Fix the login")
    says(parent, "pr", "100.2")
    await parent.post_with("opened.")


async def looked(parent: Parent, desk: Desk, times: int = 1, hours: float = 1) -> None:
    """Let it look again and say what it has to."""
    for _ in range(times):
        due = next_look(desk)
        await parent.clock.advance(hours * 3600)
        await parent.until(partial(_has_looked, desk, due))


def next_look(desk: Desk) -> str:
    with closing(sqlite3.connect(desk.repo / ".codebutler/store.db")) as store:
        found: str = store.execute("SELECT state || next_at FROM pulls").fetchone()[0]
    return found


def _has_looked(desk: Desk, due: str) -> bool:
    return next_look(desk) != due


def _has_asked(github: GitHubServer, times: int) -> bool:
    return len(github.asked) >= times


async def one(parent: Parent, words: str) -> Post:
    """The only post with these words, once it is there."""
    await parent.until(lambda: told(parent, words))
    (post,) = told(parent, words)
    return post


def told(parent: Parent, words: str) -> list[Post]:
    return [post for post in parent.posts if words in text_of(post)]


def press(parent: Parent, post: Post, at: str, user: str = USER) -> None:
    """Press the post's button."""
    (button,) = post.message.buttons
    assert button.action == HAND_OVER_ACTION
    click = clicked(
        channel=CHANNEL, user=user, message="9000.9", action_id=button.action, value=button.value, press=at,
        thread="100.1",
    )  # fmt: skip
    parent.deliver(click)


async def test_a_failed_check_is_told_with_its_log_and_a_button_has_it_fixed(
    desk: Desk, github: GitHubServer
) -> None:
    github.check("lint", "success")
    github.check("test", None)
    async with worker(at_github(desk, github)) as parent:
        await opened(parent, desk)
        await looked(parent, desk)
        assert not told(parent, "failed on")
        github.check("test", "failure", LOG.replace("assert", f"{TOKEN} assert"))
        await looked(parent, desk, 3)
        post = await one(parent, "failed on")
        text = text_of(post)
        assert "1 of 2 checks failed on" in text
        assert "`test`" in text
        assert "FAILED test_app.py::test_login" in text
        assert "Process completed with exit code 1." in text
        assert "cleanup" not in text
        assert "\x1b" not in text
        assert TOKEN not in text
        assert (post.thread, post.mention) == ("100.1", USER)
        assert post.message.buttons[0].label == "Fix it"
        press(parent, post, "101.1")
        press(parent, post, "101.2")
        run = await parent.run(1)
        assert run.request.prompt.count("Fix the failing checks of the pull request acme/shop#12.") == 1
        assert "FAILED test_app.py::test_login" in run.request.prompt
        assert TOKEN not in run.request.prompt
        run.finish()
        await parent.until(
            lambda: any("handed this to the agent" in text_of(each) for each in parent.updates)
        )
        await parent.until(parent.is_idle, flow=True)
        assert len(parent.backend.runs) == 2


async def test_all_is_well_is_told_once(desk: Desk, github: GitHubServer) -> None:
    github.check("lint", "success")
    github.check("test", None)
    async with worker(at_github(desk, github)) as parent:
        await opened(parent, desk)
        await looked(parent, desk)
        assert not told(parent, "passed on")
        github.check("test", "success")
        await looked(parent, desk, 3)
        await one(parent, "2 checks passed on")
        await looked(parent, desk)
        assert len(told(parent, "passed on")) == 1


async def test_a_new_attempt_is_told_anew(desk: Desk, github: GitHubServer) -> None:
    github.check("test", "failure", "first")
    async with worker(at_github(desk, github)) as parent:
        await opened(parent, desk)
        await looked(parent, desk, 2)
        github.check("test", "failure", "second")
        await looked(parent, desk, 2)
        await parent.until(lambda: len(told(parent, "failed on")) == 2)
        assert [("first" in text_of(post), "second" in text_of(post)) for post in told(parent, "failed on")] == [
            (True, False), (False, True),
        ]  # fmt: skip
        github.check("test", "success")
        await looked(parent, desk, 3)
        await one(parent, "passed on")


async def test_a_restart_forgets_nothing_and_tells_nothing_twice(desk: Desk, github: GitHubServer) -> None:
    github.check("test", None)
    async with worker(at_github(desk, github)) as parent:
        await opened(parent, desk)
    github.check("test", "failure", "boom")
    async with worker(at_github(desk, github)) as parent:
        await looked(parent, desk)
        await one(parent, "failed on")
    # The test's clock begins anew with each worker.
    async with worker(at_github(desk, github)) as parent:
        await looked(parent, desk, hours=3)
        assert not told(parent, "failed on")


async def test_checks_that_have_passed_are_believed_at_the_second_look(desk: Desk) -> None:
    clock = ManualClock()
    row = PullRow(
        id="github.com/acme/shop#12", conversation="C:1", thread=MessageRef("1"), user_id=USER,
        remote="https://github.com/acme/shop", url="", number=12, next_at="", until="9",
    )  # fmt: skip
    remote, settings = validate_remote(row.remote, desk.repo, ()), desk.settings()
    first, both = (PullChecks("passed", number, key="passed") for number in (1, 2))
    async with open_store(desk.repo / "store.db", clock) as store:
        for checks, heard in ((first, 0), (PullChecks("pending", 2), 0), (both, 0), (both, 1), (both, 1)):
            looked_at = partial(_tell, settings, row, remote, PollResult(Pull(12, "", "abc"), checks))
            assert await store.run(looked_at) == heard


def _tell(settings: RepoSettings, row: PullRow, remote: Remote, found: PollResult, uow: UnitOfWork) -> int:
    report(uow, settings, uow.pulls.get(row.id) or row, remote, found)
    return len(uow.outbox.find(state="pending"))


async def test_review_comments_are_told_once_and_handed_over(desk: Desk, github: GitHubServer) -> None:
    async with worker(at_github(desk, github)) as parent:
        await opened(parent, desk)
        nice = "Nice <!channel> [x](https://evil.example)"
        github.said.append({"id": 5, "body": nice, "user": {"login": "ben"}})
        line = {"id": 9, "body": "Use `hash`\n```\nrm -rf /", "path": "app.py", "line": 3}
        github.lines.append({**line, "user": {"login": "eve"}})
        github.reviews.append({"id": 4, "body": "", "state": "COMMENTED", "user": {"login": "eve"}})
        github.reviews.append({"id": 6, "body": "", "state": "CHANGES_REQUESTED", "user": {"login": "eve"}})
        await looked(parent, desk, 3)
        post = await one(parent, "new comment")
        text = text_of(post)
        assert "3 new comments" in text
        assert "`app.py:3`" in text
        assert "changes requested" in text
        assert "<!channel>" not in text
        assert "<https://evil.example" not in text
        press(parent, post, "101.1")
        run = await parent.run(1)
        prompt = run.request.prompt
        assert "ben:\nNice" in prompt
        assert "eve app.py:3:" in prompt
        assert "\n```\nrm -rf" not in prompt
        run.finish()
        await parent.until(parent.is_idle, flow=True)
        github.said.append({"id": 7, "body": "One more", "user": None})
        await looked(parent, desk, 2)
        await one(parent, "1 new comment")


async def test_only_who_may_use_the_agent_hands_over(desk: Desk, github: GitHubServer) -> None:
    settings = at_github(desk, github)
    rules = (AuthorizationRule(channels=(CHANNEL,), users=(USER,), allowed_prefixes=("claude", "push")),)
    config = msgspec.structs.replace(settings.config, authorization=AuthorizationSection(rules=rules))
    github.check("test", "failure")
    async with worker(msgspec.structs.replace(settings, config=config)) as parent:
        await opened(parent, desk)
        await looked(parent, desk)
        post = await one(parent, "failed on")
        press(parent, post, "101.1", user="U0BEN")
        await parent.post_with("not authorized")
        assert len(parent.backend.runs) == 1


@pytest.mark.parametrize(
    "end", [{"state": "closed"}, {"state": "closed", "merged_at": "2026-01-01T00:00:00Z"}]
)
async def test_it_ends_with_the_pull_request(desk: Desk, github: GitHubServer, end: dict[str, str]) -> None:
    async with worker(at_github(desk, github)) as parent:
        await opened(parent, desk)
        await parent.until(lambda: parent.said(Heartbeat)[-1].followed == 1, flow=True)
        github.pulls[0].update(end)
        await looked(parent, desk)
        await one(parent, "was merged." if len(end) == 2 else "was closed.")
        await parent.until(lambda: parent.said(Heartbeat)[-1].followed == 0, flow=True)
        asked = len(github.asked)
        await parent.clock.advance(timedelta(hours=1).total_seconds())
        await parent.until(parent.is_idle, flow=True)
        assert len(github.asked) == asked


async def test_it_ends_when_nothing_happens_for_long(desk: Desk, github: GitHubServer) -> None:
    async with worker(at_github(desk, github, follow_hours=0.1)) as parent:
        await opened(parent, desk)
        await looked(parent, desk)
        await parent.until(lambda: parent.said(Heartbeat)[-1].followed == 0, flow=True)


async def test_without_hours_it_is_not_followed(desk: Desk, github: GitHubServer) -> None:
    github.check("test", "failure")
    async with worker(at_github(desk, github, follow_hours=0)) as parent:
        await opened(parent, desk)
        asked = len(github.asked)
        await parent.clock.advance(600)
        await parent.until(parent.is_idle, flow=True)
        assert (len(github.asked), parent.said(Heartbeat)[-1].followed) == (asked, 0)


async def test_a_token_that_may_not_read_checks_reads_the_runs_of_actions(
    desk: Desk, github: GitHubServer
) -> None:
    github.hides_checks = True
    github.check("test", "failure", LOG)
    async with worker(at_github(desk, github)) as parent:
        await opened(parent, desk)
        await looked(parent, desk, 2)
        post = await one(parent, "failed on")
        assert "FAILED test_app.py" in text_of(post)


async def test_a_log_is_not_fetched_from_this_machines_network(desk: Desk, github: GitHubServer) -> None:
    github.check("test", "failure", LOG)
    github.moved_to = "https://127.0.0.1/secret"
    async with worker(at_github(desk, github)) as parent:
        await opened(parent, desk)
        await looked(parent, desk, 2)
        post = await one(parent, "failed on")
        assert "`test`" in text_of(post)


async def test_trouble_that_lasts_is_told_once(desk: Desk, github: GitHubServer) -> None:
    settings = at_github(desk, github)
    async with worker(settings) as parent:
        await opened(parent, desk)
        github.pulls.clear()
        for _ in range(8):
            due = len(github.asked) + 1
            await parent.clock.advance(300)
            await parent.until(partial(_has_asked, github, due), flow=True)
        await parent.until(parent.is_idle, flow=True)
        await one(parent, "Cannot check")
