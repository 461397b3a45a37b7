"""Strangers who fill a public pull request: what they write is looked at as far as it is shown, and the worker goes on
meanwhile."""

from __future__ import annotations

from tests.forgeserver.github import TOKEN, GitHubServer
from tests.integration.forge.kit import Desk, at_github
from tests.integration.forge.test_following import looked, one, opened
from tests.pulse import Pulse
from tests.shown import text_of
from tests.worker_kit import worker

LONGEST = 65_536
"""The longest comment that GitHub takes."""
COSTLY = "%73"
"""What takes longest to be searched for secrets."""
COMMENTS = 300
HELD_UP_S = 1.5


async def test_many_long_comments_and_checks_hold_up_nothing(desk: Desk, github: GitHubServer) -> None:
    github.check("test", None)
    long = f"lorem {COSTLY * (LONGEST // len(COSTLY) - 10)}"
    async with worker(at_github(desk, github)) as parent:
        await opened(parent, desk)
        await looked(parent, desk)
        for number in range(COMMENTS):
            said = f"{TOKEN} {long}" if number == 0 else long
            github.said.append({"id": number + 1, "user": {"login": "eve"}, "body": said})
            github.check(f"check {number} {long}", "failure")
        github.check("test", "failure")
        pulse = Pulse()
        async with pulse.felt():
            await looked(parent, desk)
        text = text_of(await one(parent, "new comments on"))
        assert f"{COMMENTS} new comments on" in text
        assert "[redacted] lorem" in text
        assert TOKEN not in text
        await one(parent, f"{COMMENTS + 1} of {COMMENTS + 1} checks failed on")
        assert pulse.worst_s < HELD_UP_S
