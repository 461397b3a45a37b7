"""Before a turn that needs what its agent was seen not to have, the thread is told, once."""

from __future__ import annotations

from pathlib import Path

import pytest

from codebutler.config.paths import Home
from codebutler.protocol.capabilities import AgentResult, Capability, Cell, CellState, LiveResult, keep_result
from tests.integration.worker.test_worker_files import PICTURE, PNG, give, request, share
from tests.shown import text_of
from tests.worker_kit import Parent, settings, worker

TOLD = "may not see your picture"


def keep(tmp_path: Path, state: CellState, *, version: str = "1.2.3", repo: str = "sample") -> None:
    """A result as `doctor --live` keeps it; the scripted agent's version is 1.2.3."""
    home = Home(tmp_path / ".codebutler" / "home")
    home.root.mkdir(parents=True, exist_ok=True)
    names: tuple[Capability, ...] = ("image", "resume")
    cells = tuple(Cell(capability=name, state=state, text="it saw nothing") for name in names)
    row = AgentResult(agent="claude", repos=(repo,), version=version, cells=cells)
    keep_result(home, LiveResult(at="2026-03-01T12:00:00+00:00", codebutler="0.1.0", agents=(row,)))


def texts(parent: Parent) -> list[str]:
    return [text_of(post) for post in parent.posts]


async def pictured(parent: Parent, ts: str, number: int, thread: str | None = None) -> None:
    share(parent, ts, PICTURE, text="look", thread_ts=thread)
    give(parent, await request(parent, number), PNG)
    (await parent.run(number)).finish()
    await parent.until(lambda: parent.reactions(ts) == ["white_check_mark"])


async def test_it_is_told_once_in_a_conversation_and_again_in_another(tmp_path: Path) -> None:
    keep(tmp_path, "no")
    async with worker(settings(tmp_path)) as parent:
        await pictured(parent, "100.1", 0)
        assert sum(TOLD in text for text in texts(parent)) == 1
        await pictured(parent, "100.2", 1, "100.1")
        assert sum(TOLD in text for text in texts(parent)) == 1
        # This one resumed a session.
        assert sum("may not know what was said before" in text for text in texts(parent)) == 1
        await pictured(parent, "200.1", 2)
        assert sum(TOLD in text for text in texts(parent)) == 2


@pytest.mark.parametrize(
    ("state", "version", "repo"),
    [
        ("yes", "1.2.3", "sample"),
        ("not tried", "1.2.3", "sample"),
        ("no", "1.2.4", "sample"),
        ("no", "1.2.3", "other"),
    ],
)
async def test_nothing_is_told_of_what_works_or_of_another_version_or_repository(
    tmp_path: Path, state: CellState, version: str, repo: str
) -> None:
    keep(tmp_path, state, version=version, repo=repo)
    async with worker(settings(tmp_path)) as parent:
        await pictured(parent, "100.1", 0)
        assert not [text for text in texts(parent) if "may not" in text]


async def test_a_result_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    keep(tmp_path, "no")
    (tmp_path / ".codebutler" / "home" / "agents.json").write_text('{"format": 2}')
    async with worker(settings(tmp_path)) as parent:
        await pictured(parent, "100.1", 0)
        assert not [text for text in texts(parent) if "may not" in text]
