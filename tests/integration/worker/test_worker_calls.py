"""What a turn costs of Slack's scarce calls: a short one its answer and its end mark, a long one few more."""

from __future__ import annotations

from pathlib import Path

import msgspec

from codebutler.config.schema import CommandRule, RepoSettings
from codebutler.domain.model import Operation, Post, React, Update
from codebutler.protocol.messages import Doing, Send, TurnEnded
from codebutler_worker.agents.backend import (
    Approval,
    Finished,
    Output,
    Started,
    ToolResult,
    ToolUse,
    Withdrawn,
)
from tests.shown import blocks_of, text_of
from tests.worker_kit import Parent, settings, worker

MINE = "100.1"


def lively(repo: Path, *, progress_after_s: float = 3) -> RepoSettings:
    """As a user has it: progress is shown, of what lasts. ``rehearsal:`` runs a command."""
    base = settings(repo, verbosity="normal", progress_after_s=progress_after_s)
    command = CommandRule(prefix="rehearsal", binary="bash", args=("-c",))
    return msgspec.structs.replace(base, config=msgspec.structs.replace(base.config, commands=(command,)))


def calls(parent: Parent) -> list[Operation]:
    return [send.operation for send in parent.said(Send)]


async def short(parent: Parent, count: int = 1) -> list[Operation]:
    """All calls of turns that are over within a moment, however long the worker is watched afterwards."""
    await parent.until(lambda: len(parent.said(TurnEnded)) == count)
    return await over(parent, count)


async def over(parent: Parent, count: int = 1) -> list[Operation]:
    """All calls, once so many turns are over and everything is sent."""
    await parent.until(lambda: len(parent.said(TurnEnded)) == count and parent.is_idle(), flow=True)
    return calls(parent)


async def test_work_is_shown_at_once_and_costs_no_scarce_call(tmp_path: Path) -> None:
    repo = lively(tmp_path)
    slow = msgspec.structs.replace(repo.config.agent, debounce_seconds=5)
    repo = msgspec.structs.replace(repo, config=msgspec.structs.replace(repo.config, agent=slow))
    async with worker(repo) as parent:
        parent.says("what time is it?", MINE)
        await parent.until(lambda: parent.said(Doing) == [Doing(thread=MINE, text="is working")])
        assert not parent.backend.runs
        assert not calls(parent)


async def test_a_short_turn_costs_its_answer_and_its_mark(tmp_path: Path) -> None:
    async with worker(lively(tmp_path)) as parent:
        parent.says("what time is it?", MINE)
        run = await parent.run(0, flow=False)
        run.does(ToolUse("1", "Bash", "date"))
        run.finish("Late.")
        answer, mark = await short(parent)
        assert isinstance(answer, Post)
        assert (answer.value, mark) == (
            "answer",
            React(target=MINE, mark="done", value="outcome"),
        )


async def test_a_short_command_costs_its_page_and_its_mark(tmp_path: Path) -> None:
    async with worker(lively(tmp_path)) as parent:
        parent.says("ls", MINE, prefix="rehearsal")
        run = await parent.run(0, flow=False)
        run.does(Started("s"), Output(settled=("app.py",)), Finished(True, "", "done", exit_code=0))
        page, mark = await short(parent)
        assert isinstance(page, Post)
        assert "app.py" in text_of(page)
        assert "exit code 0" in text_of(page)
        assert blocks_of(page) == ()
        assert isinstance(mark, React)


async def test_a_command_that_lasts_shows_that_it_runs_and_can_be_stopped(tmp_path: Path) -> None:
    async with worker(lively(tmp_path)) as parent:
        parent.says("sleep 9; ls", MINE, prefix="rehearsal")
        run = await parent.run(0, flow=False)
        run.does(Started("s"))
        await parent.clock.advance(2.5)
        assert not parent.posts
        page = await parent.post_with("Running…")
        assert blocks_of(page)[-1]["type"] == "actions"
        run.does(Output(settled=("app.py",)))
        await parent.until(lambda: parent.updates, flow=True)
        assert "app.py" in text_of(parent.updates[-1])
        assert "Running…" in text_of(parent.updates[-1])
        run.does(Finished(True, "", "done", exit_code=0))
        await over(parent)
        assert parent.updates[-1].value == "answer"
        assert "Running…" not in text_of(parent.updates[-1])
        assert len(parent.posts) == 1


async def test_a_turn_of_two_seconds_shows_that_somebody_works_and_no_more(tmp_path: Path) -> None:
    async with worker(lively(tmp_path)) as parent:
        parent.says("fix the bug", MINE)
        run = await parent.run(0, flow=False)
        await parent.clock.advance(0.9)
        assert parent.reactions(MINE) == []
        await parent.until(lambda: parent.reactions(MINE) == ["eyes"], flow=True)
        run.finish("Fixed.")
        found = await short(parent)
        assert [type(each) for each in found] == [React, Post, React, React]
        assert parent.reactions(MINE) == ["white_check_mark"]


async def test_a_minute_with_twenty_tools_costs_twelve_calls_at_most(tmp_path: Path) -> None:
    async with worker(lively(tmp_path)) as parent:
        parent.says("refactor all of it", MINE)
        run = await parent.run(0)
        run.does(Started("s"))
        began_s = parent.clock.monotonic()
        for number in range(20):
            run.does(ToolUse(f"{number}", "Bash", f"make part-{number}"))
            # Time passes as the parent answers each call.
            while parent.clock.monotonic() < began_s + 3.0 * (number + 1):
                await parent.until(lambda: True, flow=True)
                await parent.clock.advance(0.1)
        await parent.until(lambda: parent.updates, flow=True)
        run.finish("Done.")
        found = await over(parent)
        assert len(found) <= 12, found
        edits = [each for each in found if isinstance(each, Update)]
        assert len(edits) >= 2
        assert "✅ Done" in text_of(edits[-1])
        posts = [each for each in found if isinstance(each, Post)]
        assert [post.value for post in posts] == ["progress", "answer"]


async def test_who_waits_for_a_moment_only_is_told_nothing_of_it(tmp_path: Path) -> None:
    async with worker(lively(tmp_path)) as parent:
        parent.says("one", "1.1")
        first = await parent.run(0, flow=False)
        await parent.stored(parent.says("two", "2.1"))
        await parent.clock.advance(0.5)
        first.finish("One.")
        (await parent.run(1, flow=False)).finish("Two.")
        found = await short(parent, 2)
        assert [type(each) for each in found] == [Post, React, Post, React]


async def test_who_waits_longer_has_a_mark_and_then_a_place(tmp_path: Path) -> None:
    async with worker(lively(tmp_path)) as parent:
        parent.says("one", "1.1")
        first = await parent.run(0)
        await parent.stored(parent.says("two", "2.1"))
        await parent.until(lambda: parent.reactions("2.1") == ["hourglass_flowing_sand"], flow=True)
        assert not [post for post in parent.posts if "in line" in text_of(post)]
        place = await parent.post_with("Next in line")
        assert (place.thread, place.value) == ("2.1", "progress")
        first.finish("One.")
        second = await parent.run(1)
        second.finish("Two.")
        await over(parent, 2)
        assert parent.reactions("2.1") == ["white_check_mark"]
        assert [text_of(update) for update in parent.updates if "Done" in text_of(update)]


async def test_progress_that_came_late_is_known_to_the_next_life(tmp_path: Path) -> None:
    async with worker(lively(tmp_path)) as parent:
        parent.says("fix the bug", MINE)
        run = await parent.run(0)
        run.does(Started("s"))
        await parent.post_with("claude is working")
        await parent.until(lambda: parent.reactions(MINE) == ["eyes"], flow=True)
    async with worker(lively(tmp_path)) as parent:
        await parent.until(lambda: [each for each in parent.updates if "interrupted" in text_of(each)])
        await parent.until(lambda: React(target=MINE, mark="working", remove=True) in parent.operations)


async def test_what_died_in_its_first_moment_has_nothing_to_take_away(tmp_path: Path) -> None:
    async with worker(lively(tmp_path)) as parent:
        parent.says("fix the bug", MINE)
        (await parent.run(0, flow=False)).does(Started("s"))
    async with worker(lively(tmp_path)) as parent:
        (question,) = await over(parent)
        assert isinstance(question, Post)


async def test_nothing_is_waited_for_where_progress_is_wanted_at_once(tmp_path: Path) -> None:
    async with worker(lively(tmp_path, progress_after_s=0)) as parent:
        await parent.stored(parent.says("fix the bug", MINE))
        await parent.until(lambda: parent.posts)
        assert "claude is working" in text_of(parent.posts[0])


async def test_each_call_says_what_it_is_worth(tmp_path: Path) -> None:
    config = lively(tmp_path).config
    output = msgspec.structs.replace(config.output, verbosity="verbose")
    told = msgspec.structs.replace(lively(tmp_path), config=msgspec.structs.replace(config, output=output))
    async with worker(told) as parent:
        parent.says("fix the bug", MINE)
        run = await parent.run(0)
        run.does(Started("s"), ToolUse("1", "Bash", "make"), ToolResult("1", True, "all green"))
        await parent.post_with("all green")
        await parent.until(lambda: [each for each in parent.posts if blocks_of(each)], flow=True)
        run.does(Approval("req-1", "Bash", "list the files", {"command": "ls"}))
        await parent.post_with("Permission needed")
        run.does(Withdrawn("req-1"))
        await parent.until(lambda: [each for each in parent.updates if "withdrew this" in text_of(each)])
        run.finish("Fixed.")
        await over(parent)
        parent.says("and again", "200.1")
        (await parent.run(1)).does(Finished(False, "The model is away.", "failed"))
        found = await over(parent, 2)
    worth = {(type(each).__name__, each.value) for each in found}

    assert worth == {
        ("Post", "answer"),  # the answer, the question
        ("Post", "notice"),  # the failure
        ("Post", "progress"),
        ("Update", "notice"),  # what became of the question
        ("Update", "progress"),
        ("React", "outcome"),
        ("React", "sign"),
    }
    assert {post.value for post in parent.posts if "all green" in text_of(post)} == {"progress"}
    assert {post.value for post in parent.posts if "Permission needed" in text_of(post)} == {"answer"}
    assert {post.value for post in parent.posts if "Fixed." in text_of(post)} == {"answer"}
    assert {post.value for post in parent.posts if "The model is away" in text_of(post)} == {"notice"}

    marks = [each for each in found if isinstance(each, React)]
    assert {(mark.mark, mark.value) for mark in marks if not mark.remove} == {
        ("working", "sign"),
        ("waiting", "sign"),
        ("done", "outcome"),
        ("failed", "outcome"),
    }
