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
    """Stop the turn; what the thread shows of it in the end: one message, which first says that it is being stopped."""
    event = posted(channel=CHANNEL, ref="100.2", user=USER, text="!stop", thread="100.1")
    parent.deliver(event, Command(name="stop", argument=""))
    await parent.until(lambda: parent.reactions("100.1") == ["octagonal_sign"], flow=True)
    stopping = [post for post in parent.posts if "Stopp" in text_of(post)]
    assert [text_of(post) for post in stopping] == ["🛑 Stopping 1 run."]
    return text_of(next(edit for edit in parent.updates if "🛑 Stopped" in text_of(edit)))


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    require("git")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    return tmp_path


async def test_tools_files_and_text_are_told_below_the_mark(repo: Path) -> None:
    async with worker(settings(repo, changes="card")) as parent:
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
        # What is different in the tree is shown once, on the card.
        assert "`app.py` +1 −0" in text_of(await parent.post_with("1 file changed"))
        assert told == (
            "🛑 Stopped. 2 tool calls, the last one `Bash: make test`.\n"
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


async def test_what_is_stopped_twice_is_told_once_as_well(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.says("work", "100.1")
        await parent.run(0)
        parent.backend.obeys_stop = False
        for ref in ("100.2", "100.3"):
            event = posted(channel=CHANNEL, ref=ref, user=USER, text="!stop", thread="100.1")
            parent.deliver(event, Command(name="stop", argument=""))
        await parent.post_with("🛑 Already stopping.")
        await parent.until(lambda: parent.reactions("100.1") == ["octagonal_sign"], flow=True)
        assert sum("Stopped" in text_of(post) for post in parent.posts) == 0
