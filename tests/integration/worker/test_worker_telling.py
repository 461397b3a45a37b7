"""What a turn tells beside its progress message: the line under its thread, and with "verbose" every tool."""

from __future__ import annotations

from pathlib import Path

from codebutler.domain.model import Post
from codebutler.protocol.messages import Doing
from codebutler_worker.agents.backend import Started, ToolResult, ToolUse
from tests.shown import text_of
from tests.worker_kit import Parent, settings, worker


def doings(parent: Parent) -> list[str]:
    return [message.text for message in parent.said(Doing) if message.thread == "100.1"]


async def test_the_thread_shows_what_is_done_until_the_end(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.says("work", "100.1")
        run = await parent.run(0)
        await parent.until(lambda: doings(parent) == ["is working"] * 2, flow=True)
        run.does(Started("s"), ToolUse("1", "Bash", "npm test"))
        await parent.until(lambda: doings(parent)[-1] == "is working: Bash: npm test", flow=True)
        told = len(doings(parent))
        await parent.clock.advance(70)
        await parent.until(lambda: len(doings(parent)) == told + 1, flow=True)
        run.finish("Done.")
        await parent.post_with("Done.")
        await parent.until(lambda: doings(parent)[-1] == "")


async def test_verbose_tells_every_tool_with_its_result_before_the_answer(tmp_path: Path) -> None:
    async with worker(settings(tmp_path, verbosity="verbose")) as parent:
        parent.says("work", "100.1")
        run = await parent.run(0)
        run.does(
            Started("s"),
            ToolUse("1", "Bash", "npm test"),
            ToolResult("1", True, "12 passed"),
            ToolUse("2", "Edit", "app.py"),
            ToolResult("2", False, "no such file"),
        )
        post = await parent.post_with("12 passed")
        assert "✓ `Bash: npm test`" in text_of(post)
        assert post.thread == "100.1"
        run.does(ToolUse("3", "Bash", "ls"), ToolResult("3", True, "last words"))
        run.finish("Done.")
        await parent.post_with("Done.")
        texts = [text_of(post) for post in parent.posts]
        shown = "\n".join(texts)
        assert "✗ `Edit: app.py`" in shown
        assert shown.index("last words") < shown.index("Done.")


async def test_what_is_shown_comes_after_our_messages_which_end_it(tmp_path: Path) -> None:
    async with worker(settings(tmp_path, verbosity="verbose")) as parent:
        parent.says("work", "100.1")
        run = await parent.run(0)
        run.does(ToolUse("1", "Bash", "npm test"), ToolResult("1", True, "12 passed"))
        await parent.post_with("12 passed")
        await parent.until(lambda: doings(parent)[-1:] == ["is working: Bash: npm test"], flow=True)
        kept = [one for one in parent.heard if isinstance(one, Doing) or "12 passed" in str(one)]
        assert isinstance(kept[-1], Doing)
        assert not isinstance(kept[-2], Doing)


async def test_a_flood_of_tools_is_told_in_few_messages(tmp_path: Path) -> None:
    async with worker(settings(tmp_path, verbosity="verbose")) as parent:
        parent.says("work", "100.1")
        run = await parent.run(0)
        for number in range(500):
            run.does(ToolUse(f"{number}", "Bash", "x"), ToolResult(f"{number}", True, "y" * 900))
        run.finish("Done.")
        await parent.post_with("Done.")
        told = [post for post in parent.posts if "Bash: x" in text_of(post)]
        assert 1 <= len(told) <= 3
        assert all(len(text_of(post)) <= 3600 for post in told)
        assert "more, too many to show" in text_of(told[-1])


async def test_normal_tells_no_tools(tmp_path: Path) -> None:
    async with worker(settings(tmp_path, verbosity="normal")) as parent:
        parent.says("work", "100.1")
        run = await parent.run(0)
        run.does(ToolUse("1", "Bash", "npm test"), ToolResult("1", True, "12 passed"))
        run.finish("Done.")
        await parent.post_with("Done.")
        assert not [one for one in parent.operations if isinstance(one, Post) and "12 passed" in text_of(one)]
