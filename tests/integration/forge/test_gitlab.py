"""Merge requests from chat, at a GitLab of the tests."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from codebutler.config.schema import ForgeSection, GitSection
from codebutler_worker.forge.push import service_of
from codebutler_worker.forge.remote import ForgeError, validate_remote
from tests.forgeserver.gitlab import PATH, TOKEN, GitLabServer, serving
from tests.integration.forge.kit import Desk, git, owners_ssh, says, turn
from tests.shown import text_of
from tests.worker_kit import worker


async def test_a_merge_request_is_opened_updated_and_followed(desk: Desk, home: Path) -> None:
    owners_ssh(desk, home)
    git(desk.repo, "remote", "set-url", "origin", f"git@localhost:{PATH}.git")
    async with serving(GitLabServer()) as server:
        base = desk.settings(git_section=GitSection())
        section = ForgeSection(kind="gitlab", token=TOKEN, api_url=f"http://127.0.0.1:{server.port}/api/v4")
        config = msgspec.structs.replace(base.config, forge=section)
        async with worker(msgspec.structs.replace(base, config=config)) as parent:
            await turn(parent)
            desk.commit(subject="Fix the login")
            says(parent, "pr", "100.2")
            told = text_of(await parent.post_with("Merge request"))
            assert f"/-/merge_requests/7|{PATH}!7> opened." in told
            says(parent, "pr", "100.3")
            await parent.post_with("updated.")
            (merge,) = server.merges
            assert (merge["title"], merge["target_branch"]) == ("Fix the login", "main")
            assert desk.at(merge["source_branch"])
            server.traces[31] = "make test\nFAILED test_login\nERROR: Job failed: exit code 1\n"
            server.statuses += [
                {"id": 30, "name": "lint", "status": "success", "allow_failure": False},
                {"id": 31, "name": "test", "status": "failed", "allow_failure": False},
                {"id": 32, "name": "flaky", "status": "failed", "allow_failure": True},
            ]
            at = {"new_path": "app.py", "new_line": 3}
            server.notes += [
                {"id": 1, "body": "added 1 commit", "system": True, "author": {"username": "ana"}},
                {"id": 2, "body": "Why?", "system": False, "author": {"username": "eve"}, "position": at},
            ]
            failed = text_of(await parent.post_with("failed on"))
            assert "1 of 3 checks" in failed
            assert "FAILED test_login" in failed
            said = text_of(await parent.post_with("1 new comment"))
            assert "*eve* on `app.py:3`" in said
            merge["state"] = "merged"
            await parent.clock.advance(400)
            await parent.post_with("was merged")
            assert not any(TOKEN in line for tag in ("INF", "WRN", "ERR") for line in parent.logs(tag))


@pytest.mark.parametrize("host", ["gitlab.evil.example", "github.com"])
def test_its_token_goes_to_no_host_that_only_the_repository_names(desk: Desk, host: str) -> None:
    base = desk.settings(git_section=GitSection())
    config = msgspec.structs.replace(base.config, forge=ForgeSection(kind="gitlab", token=TOKEN))
    settings = msgspec.structs.replace(base, config=config)
    with pytest.raises(ForgeError, match="is not sent to"):
        service_of(settings, validate_remote(f"https://{host}/{PATH}", desk.repo, ()), desk.repo)
    assert (
        service_of(settings, validate_remote(f"https://gitlab.com/{PATH}", desk.repo, ()), desk.repo)
        is not None
    )
