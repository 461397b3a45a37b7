"""A worktree for each conversation, made by real git behind real walls."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from asyncio.subprocess import PIPE
from contextlib import suppress
from pathlib import Path

import pytest

from codebutler_worker.sandbox.port import Sandbox
from codebutler_worker.store.opening import prepare_state_dir
from codebutler_worker.tree.tree import Git, GitError
from codebutler_worker.tree.worktrees import Worktrees, begun, existing, names_of
from tests.integration.tree.conftest import Committed
from tests.integration.tree.test_tree import git

ONE, TWO = "C0REPO:100.1", "C0REPO:200.1"
TASK = "Please fix the login bug"


@pytest.fixture
def repo(committed: Committed) -> Path:
    return committed({"a.txt": "one\n"})


@pytest.fixture
def worktrees(repo: Path, sandbox: Sandbox, tmp_path: Path) -> Worktrees:
    return Worktrees(repo, sandbox, tmp_path / "home")


def branch(repo: Path) -> str:
    """That of ONE."""
    found = begun(repo, ONE)
    assert found is not None
    return found.branch


async def inside(sandbox: Sandbox, tree: Path, home: Path, script: str) -> str:
    return (await Git(sandbox, tree, home).run(script)).output.decode()


async def test_each_conversation_has_its_own_and_keeps_it(
    repo: Path, sandbox: Sandbox, worktrees: Worktrees, tmp_path: Path
) -> None:
    (repo / "a.txt").write_text("not committed\n")
    one, two = await worktrees.ensure(ONE, TASK), await worktrees.ensure(TWO, TASK)
    assert one != two
    assert one.parent == two.parent == repo / ".codebutler" / "worktrees"
    assert (one / "a.txt").read_text() == "one\n"
    await inside(
        sandbox, one, tmp_path / "home", "echo two > a.txt; git commit -qam 'in one'; echo new > b.txt"
    )
    assert (two / "a.txt").read_text() == "one\n"
    assert (repo / "a.txt").read_text() == "not committed\n"
    assert await worktrees.ensure(ONE, TASK) == existing(repo, ONE) == one
    assert (one / "b.txt").read_text() == "new\n"
    assert git(repo, "log", "-1", "--format=%s", branch(repo)) == "in one\n"
    assert git(repo, "status", "--short") == " M a.txt\n"
    assert git(one, "status", "--short") == "?? b.txt\n"
    assert git(repo, "worktree", "list").count("\n") == 3


async def test_one_that_was_taken_away_comes_back_with_its_commits(
    repo: Path, sandbox: Sandbox, worktrees: Worktrees, tmp_path: Path
) -> None:
    tree = await worktrees.ensure(ONE, TASK)
    await inside(sandbox, tree, tmp_path / "home", "echo two > a.txt; git commit -qam 'in one'")
    git(repo, "worktree", "remove", "-f", "-f", str(tree))
    assert existing(repo, ONE) is None
    assert await worktrees.ensure(ONE, TASK) == tree
    assert (tree / "a.txt").read_text() == "two\n"
    shutil.rmtree(tree)
    assert await worktrees.ensure(ONE, TASK) == tree
    assert (tree / "a.txt").read_text() == "two\n"


async def test_no_other_conversation_prunes_it(
    repo: Path, sandbox: Sandbox, worktrees: Worktrees, tmp_path: Path
) -> None:
    one, two = await worktrees.ensure(ONE, TASK), await worktrees.ensure(TWO, TASK)
    for place in (repo, two):
        tried = "git worktree prune -v 2>&1 || :; git gc -q --prune=now || :"
        assert await inside(sandbox, place, tmp_path / "home", tried) == ""
    assert await inside(sandbox, one, tmp_path / "home", "git branch --show-current") == branch(repo)
    assert git(one, "status", "--short") == ""


async def test_one_that_was_not_finished_is_made_anew(repo: Path, worktrees: Worktrees) -> None:
    tree = await worktrees.ensure(ONE, TASK)
    (tree / ".codebutler" / "ready").unlink()
    (tree / "a.txt").unlink()
    assert existing(repo, ONE) is None
    assert await worktrees.ensure(ONE, TASK) == tree
    assert (tree / "a.txt").read_text() == "one\n"


async def test_what_a_killed_worker_left_running_may_still_write_there(
    repo: Path, worktrees: Worktrees
) -> None:
    tree = await worktrees.ensure(ONE, TASK)
    (tree / ".codebutler" / "ready").unlink()
    # Its git ends a moment after it.
    script = "echo begun; for i in $(seq 20000); do : > file$i; done 2>/dev/null"
    writing = await asyncio.create_subprocess_exec("/bin/sh", "-c", script, cwd=tree, stdout=PIPE)
    assert writing.stdout is not None
    try:
        await writing.stdout.readline()
        asyncio.get_running_loop().call_later(0.3, writing.kill)
        assert await worktrees.ensure(ONE, TASK) == tree
    finally:
        with suppress(ProcessLookupError):
            writing.kill()
        await writing.wait()
    assert git(tree, "status", "--short") == ""


async def test_without_a_commit_it_says_what_to_do(tmp_path: Path, sandbox: Sandbox) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    trees = Worktrees(empty, sandbox, tmp_path / "home")
    with pytest.raises(GitError, match="run `git init`"):
        await trees.ensure(ONE, TASK)
    git(empty, "init", "-q")
    prepare_state_dir(empty)
    with pytest.raises(GitError, match="make the first one"):
        await trees.ensure(ONE, TASK)


async def test_a_link_in_its_place_leads_nowhere(repo: Path, worktrees: Worktrees, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").touch()
    parent = repo / ".codebutler" / "worktrees"
    parent.symlink_to(outside)
    with pytest.raises(GitError, match="cannot create a worktree"):
        await worktrees.ensure(ONE, TASK)
    parent.unlink()
    parent.mkdir()
    (parent / "c0repo-100-1").symlink_to(outside)
    with pytest.raises(GitError, match="cannot create a worktree"):
        await worktrees.ensure(ONE, TASK)
    assert [each.name for each in outside.iterdir()] == ["precious"]


async def test_its_branch_is_called_after_the_task_and_no_other_takes_the_name(
    repo: Path, worktrees: Worktrees
) -> None:
    names = names_of(ONE, TASK)
    git(repo, "branch", names[0])
    tree = await worktrees.ensure(ONE, TASK)
    assert git(tree, "branch", "--show-current").strip() == names[1] == branch(repo)
    assert re.fullmatch(r"codebutler/fix-login-bug-[0-9a-f]{8}", names[1])
    git(repo, "worktree", "remove", "-f", "-f", str(tree))
    assert git(await worktrees.ensure(ONE, "more"), "branch", "--show-current").strip() == names[1]


async def test_one_in_which_nothing_was_changed_is_taken_away_with_its_branch(
    repo: Path, sandbox: Sandbox, worktrees: Worktrees, tmp_path: Path
) -> None:
    before = everything(repo)
    two = await worktrees.ensure(TWO, TASK)
    (two / "b.txt").touch()
    tree = await worktrees.ensure(ONE, TASK)
    await inside(sandbox, tree, tmp_path / "home", "cat a.txt; git status; git log")
    assert await worktrees.tidy(ONE) == ""
    assert existing(repo, ONE) is None
    assert await worktrees.tidy(ONE) == ""
    assert await worktrees.tidy(TWO) != ""
    (two / "b.txt").unlink()
    assert await worktrees.tidy(TWO) == ""
    assert git(repo, "worktree", "list").count("\n") == 1
    assert git(repo, "branch", "--list") == "* main\n"
    assert everything(repo) == before
    assert await worktrees.ensure(ONE, TASK) == tree


def everything(repo: Path) -> list[str]:
    """The paths in the repository, but git's own."""
    return sorted(
        str(path) for path in repo.rglob("*") if ".git" not in path.parts and path.name != "worktrees"
    )


@pytest.mark.parametrize(
    "change",
    [
        "echo new > b.txt",
        "echo two > a.txt",
        "rm a.txt",
        "echo '*.log' > .git-ignored; git config core.excludesFile x 2>/dev/null; mkdir d; echo x > d/x",
        "printf '*.o\n' > $(git rev-parse --git-common-dir)/info/exclude; echo x > a.o",
        "git commit -q --allow-empty -m empty",
        "git commit -q --allow-empty -m gone; git reset -q --hard HEAD~1",
        "git checkout -q -b other",
        "git checkout -q --detach",
        "git add -N . ; echo staged > s; git add s; rm s",
        "echo x > .codebutler/files/x",
    ],
)
async def test_work_is_never_taken_away(
    repo: Path, sandbox: Sandbox, worktrees: Worktrees, tmp_path: Path, change: str
) -> None:
    (repo / ".git" / "info").mkdir(exist_ok=True)
    tree = await worktrees.ensure(ONE, TASK)
    await inside(sandbox, tree, tmp_path / "home", f"{change}; :")
    assert await worktrees.tidy(ONE) == branch(repo)
    assert existing(repo, ONE) == tree


async def test_what_runs_in_another_thread_is_not_disturbed(
    repo: Path, sandbox: Sandbox, worktrees: Worktrees, tmp_path: Path
) -> None:
    await worktrees.ensure(ONE, TASK)
    two = await worktrees.ensure(TWO, TASK)
    for pipe in (two / "ready", two / "go"):
        os.mkfifo(pipe)
        pipe.chmod(0o666)
    script = "echo > ready; cat go"
    running = asyncio.create_task(inside(sandbox, two, tmp_path / "home", script))
    async with asyncio.timeout(20):
        await asyncio.to_thread((two / "ready").read_text)
        assert await worktrees.tidy(ONE) == ""
        await asyncio.to_thread((two / "go").write_text, "alive")
        assert await running == "alive"


async def test_hooks_and_scripts_that_git_tracks_are_filled_in_and_then_stay(
    repo: Path, sandbox: Sandbox, worktrees: Worktrees, tmp_path: Path
) -> None:
    (repo / ".husky").mkdir()
    (repo / "tools").mkdir()
    (repo / ".husky" / "pre-commit").write_text("exit 0\n")
    (repo / "tools" / "clean").write_text("cat\n")
    git(repo, "add", ".")
    git(repo, "commit", "-qm", "hooks")
    git(repo, "config", "core.hooksPath", ".husky")
    git(repo, "config", "filter.x.clean", "tools/clean %f")
    tree = await worktrees.ensure(ONE, TASK)
    assert (tree / ".husky" / "pre-commit").read_text() == "exit 0\n"
    home = tmp_path / "home"
    if sandbox.name != "none":
        for place in (".husky/pre-commit", ".husky/commit-msg", "tools/clean"):
            with pytest.raises(GitError, match="Read-only"):
                await inside(sandbox, tree, home, f"echo evil >> {place}")
    assert (
        await inside(sandbox, tree, home, "echo two > a.txt; git commit -qam two; git status --short") == ""
    )
    assert git(repo, "log", "-1", "--format=%s", branch(repo)) == "two\n"
