"""A race whose worker dies: what the next one finds, says and does not do again."""

from __future__ import annotations

from pathlib import Path

import pytest

from codebutler.config.schema import Check, ChecksSection
from codebutler.domain.message import DROP_ACTION, RETRY_ACTION
from codebutler.domain.model import Post
from codebutler_worker.agents.backend import Started
from tests.racing import PICK, begun, both_done, card_of, changes, git, press, race, racers
from tests.shown import text_of
from tests.worker_kit import Parent, settings, worker


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return begun(tmp_path)


def asked(parent: Parent, agent: str) -> Post | None:
    """The question about an agent's interrupted run."""
    found = (post for post in parent.posts if post.message.buttons and f"{agent}: " in post.message.markdown)
    return next(found, None)


async def test_both_interrupted_are_asked_about_and_the_card_comes_after_the_answers(repo: Path) -> None:
    told = settings(repo)
    async with worker(told) as parent:
        race(parent)
        one, two = await racers(parent)
        one.does(Started("session-one"))
        two.does(Started("session-two"))
        (one.request.workdir / "app.py").write_text("half\n")
        await parent.until(lambda: parent.reactions("100.1") == ["eyes"], flow=True)
        place = one.request.workdir
    async with worker(told) as parent:
        first = await parent.until(lambda: asked(parent, "claude"), flow=True)
        second = await parent.until(lambda: asked(parent, "rehearsal"), flow=True)
        assert parent.backend.runs == []
        press(parent, first, RETRY_ACTION)
        again = await parent.run(0)
        assert (again.request.workdir, again.request.session_id) == (place, "session-one")
        press(parent, second, DROP_ACTION)
        (place / "more.py").write_text("1\n")
        again.finish("Done after all.", "session-one")
        card = await card_of(parent)
        text = text_of(card)
        assert "`claude`* · ✅ done in" in text
        # Also what it did before it was interrupted.
        assert "`app.py`" in text
        assert "`more.py`" in text
        assert "`rehearsal`* · 🛑 stopped after" in text
        assert len(parent.backend.runs) == 1
        await parent.until(lambda: parent.reactions("100.1") == ["white_check_mark"], flow=True)


async def test_what_had_not_begun_begins_once(repo: Path) -> None:
    told = settings(repo)
    async with worker(told) as parent:
        parent.says("Something else", "50.1")
        await parent.run(0)
        race(parent)
        await parent.post_with("each in its own worktree")
        assert len(parent.backend.runs) == 1
    async with worker(told) as parent:
        one, two = await racers(parent)
        changes(one, "one\n")
        changes(two, "two\n")
        assert len((await card_of(parent)).message.buttons) == 5
        assert len(parent.backend.runs) == 2


async def test_checks_that_were_cut_off_do_not_run_again_and_the_rest_do(repo: Path) -> None:
    told = settings(repo, checks=ChecksSection(commands=(Check(name="tests", command="make test"),)))
    async with worker(told) as parent:
        race(parent)
        one, two = await racers(parent)
        changes(one, "one\n")
        changes(two, "two\n")
        await parent.run(2)
    async with worker(told) as parent:
        check = await parent.run(0)
        assert check.request.workdir == two.request.workdir
        check.finish("")
        text = text_of(await card_of(parent))
        assert text.index("The machine stopped while the checks ran") < text.index("✅ `tests` passed")
        assert len(parent.backend.runs) == 1


async def test_the_card_decides_after_a_restart_as_well(repo: Path) -> None:
    told = settings(repo)
    async with worker(told) as parent:
        card = await both_done(parent)
        await parent.until(parent.is_idle, flow=True)
    async with worker(told) as parent:
        press(parent, card, PICK)
        await parent.until(lambda: (repo / "app.py").read_text() == "one\n", flow=True)
    async with worker(told) as parent:
        # Whatever step it was in: it is merged once, and both worktrees go.
        await parent.until(lambda: git(repo, "worktree", "list").count("\n") == 1, flow=True)
        await parent.until(parent.is_idle, flow=True)
        assert git(repo, "log", "--format=%s").splitlines() == ["Fix the login", "begin"]
        parent.says("And now the logout", "100.2", "100.1")
        run = await parent.run(0)
        assert run.request.workdir == repo
        run.finish()
