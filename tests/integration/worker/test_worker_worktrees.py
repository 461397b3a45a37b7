"""``agent.isolation`` "worktree": each thread's turns work in a git worktree of their own, side by side."""

from __future__ import annotations

import subprocess
from functools import partial
from pathlib import Path

import pytest

from codebutler.domain.model import Command
from tests.events import posted
from tests.programs import require
from tests.shown import text_of
from tests.worker_kit import CHANNEL, USER, Parent, settings, worker

IDENTITY = ("-c", "user.name=a", "-c", "user.email=a@b")


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    require("git")
    (tmp_path / "app.py").write_text("print('hello')\n")
    (tmp_path / "Makefile").write_text("check:\n\ttrue\n")
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-qm", "begin"]):
        subprocess.run(["git", *IDENTITY, *words], cwd=tmp_path, check=True)
    return tmp_path


def command(parent: Parent, name: str, ref: str, thread: str | None = None) -> None:
    event = posted(channel=CHANNEL, ref=ref, user=USER, text=f"!{name}", thread=thread)
    parent.deliver(event, Command(name=name, argument=""))


async def done(parent: Parent, ref: str) -> None:
    await parent.until(lambda: parent.reactions(ref) == ["white_check_mark"], flow=True)


async def test_two_threads_work_side_by_side_and_do_not_see_each_other(repo: Path) -> None:
    async with worker(settings(repo, isolation="worktree", parallel_turns=2)) as parent:
        parent.says("one", "100.1")
        parent.says("two", "200.1")
        one, two = await parent.run(0), await parent.run(1)
        places = {run.request.conversation: run.request.workdir for run in (one, two)}
        assert len(set(places.values())) == 2
        for run in (one, two):
            place = run.request.workdir
            assert place.parent == repo / ".codebutler" / "worktrees"
            assert f"You are working in: {place}" in run.request.system_prompt
            (place / "app.py").write_text(f"print('{run.request.prompt}')\n")
            run.finish(session_id=f"session of {run.request.prompt}")
        for ref, task in (("100.1", "one"), ("200.1", "two")):
            await done(parent, ref)
            told = await parent.until(partial(tellings, parent, ref), flow=True)
            assert [f"`codebutler/{task}-" in text for text in told] == [True]
        assert (repo / "app.py").read_text() == "print('hello')\n"
        await parent.until(parent.is_idle, flow=True)

        parent.says("one again", "100.2", "100.1")
        again = await parent.run(2)
        assert again.request.workdir == places[f"{CHANNEL}:100.1"]
        again.finish()
        await done(parent, "100.2")
        await parent.until(parent.is_idle, flow=True)
        assert sum("in its own worktree" in text_of(post) for post in parent.posts) == 2


async def test_a_question_leaves_no_worktree_and_no_branch_behind(repo: Path) -> None:
    async with worker(settings(repo, isolation="worktree")) as parent:
        parent.says("What does app.py do?", "100.1")
        run = await parent.run(0)
        assert (run.request.workdir / "app.py").read_text() == "print('hello')\n"
        run.finish()
        await done(parent, "100.1")
        await parent.until(lambda: not run.request.workdir.exists(), flow=True)
        await parent.until(parent.is_idle, flow=True)
        assert tellings(parent, "100.1") == []
        assert not any(repo.joinpath(".git", "refs", "heads").glob("codebutler/*"))

        parent.says("Then change it", "100.2", "100.1")
        again = await parent.run(1)
        assert again.request.workdir == run.request.workdir
        (again.request.workdir / "app.py").unlink()
        again.finish()
        await parent.post_with("on branch `codebutler/change-")


def tellings(parent: Parent, ref: str) -> list[str]:
    """What a thread was told of its worktree."""
    return [
        text_of(post)
        for post in parent.posts
        if post.thread == ref and "in its own worktree" in text_of(post)
    ]


async def test_words_and_programs_of_a_thread_look_where_it_works(repo: Path) -> None:
    async with worker(settings(repo, isolation="worktree")) as parent:
        parent.says("one", "100.1")
        run = await parent.run(0)
        (run.request.workdir / "app.py").write_text("print('changed')\n")
        run.finish()
        await done(parent, "100.1")
        await parent.until(parent.is_idle, flow=True)

        command(parent, "diff", "100.2", "100.1")
        assert "+print('changed')" in text_of(await parent.post_with("1 file changed"))
        command(parent, "diff", "300.1")
        await parent.post_with("Nothing has changed")

        parent.says("make check", "100.3", "100.1", prefix="checks")
        inside = await parent.run(1)
        assert inside.request.workdir == run.request.workdir
        inside.finish()
        parent.says("make check", "400.1", prefix="checks")
        outside = await parent.run(2)
        assert outside.request.workdir == repo
        outside.finish()
        await done(parent, "400.1")
        trees = (repo / ".codebutler" / "worktrees").iterdir()
        assert sorted(each.name for each in trees) == ["c0repo-100-1", "c0repo-100-1.branch"]


async def test_where_none_can_be_made_nothing_runs(tmp_path: Path) -> None:
    async with worker(settings(tmp_path, isolation="worktree")) as parent:
        parent.says("one", "100.1")
        await parent.post_with("run `git init`")
        await parent.until(lambda: parent.reactions("100.1") == ["x"], flow=True)
        assert parent.backend.runs == []
