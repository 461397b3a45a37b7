"""A stopped turn says what it had done until then."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from codebutler.domain.model import Command
from codebutler_worker.agents.backend import Started, Text, ToolResult, ToolUse, Writing
from tests.events import posted
from tests.programs import require
from tests.shown import text_of
from tests.worker_kit import CHANNEL, USER, Parent, settings, worker


async def stop(parent: Parent) -> str:
    """Stop the turn; what its last post says."""
    event = posted(channel=CHANNEL, ts="100.2", user=USER, text="!stop", thread_ts="100.1")
    parent.deliver(event, Command(name="stop", argument=""))
    await parent.until(lambda: parent.reactions("100.1") == ["octagonal_sign"], flow=True)
    return text_of(parent.posts[-1])


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    require("git")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    return tmp_path


async def test_tools_files_and_text_are_told_below_the_mark(repo: Path) -> None:
    async with worker(settings(repo)) as parent:
        parent.says("work", "100.1")
        run = await parent.run(0)
        assert run.request.ready is not None
        await run.request.ready()
        (repo / "app.py").write_text("print('hello')\n")
        run.does(
            Started("session-1"),
            ToolUse("t1", "Write", "app.py"),
            ToolResult("t1", True, "written"),
            Text("Now <!channel> the tests."),
            ToolUse("t2", "Bash", "make test"),
        )
        told = await stop(parent)
        assert told == (
            "🛑 Stopped. 2 tool calls, the last one `Bash: make test`. "
            "1 file changed: `app.py` (`!diff run` shows the changes, `!undo` reverts them).\n"
            "> Now &lt;\u200b!channel&gt; the tests."
        )


async def test_where_nothing_was_done_it_says_so(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.says("work", "100.1")
        await parent.run(0)
        assert await stop(parent) == "🛑 Stopped before anything was done."


async def test_what_it_was_just_writing_counts(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.says("work", "100.1")
        run = await parent.run(0)
        run.does(Started("session-1"), Writing("The reason is"))
        assert await stop(parent) == "🛑 Stopped before any tool ran.\n> The reason is…"
