"""A worktree for each conversation, made by real git behind real walls."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from codebutler_worker.sandbox.port import Sandbox
from codebutler_worker.store.state_dir import prepare_state_dir
from codebutler_worker.tree.git import Git, GitError
from codebutler_worker.tree.worktrees import Worktrees, branch_of, existing
from tests.integration.tree.test_tree import git
from tests.walls import as_it_is, walled

ONE, TWO = "C0REPO:100.1", "C0REPO:200.1"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    path = tmp_path / "repo"
    path.mkdir()
    git(path, "init", "-q", "-b", "main")
    (path / "a.txt").write_text("one\n")
    git(path, "add", ".")
    git(path, "commit", "-qm", "begin")
    prepare_state_dir(path)
    return path


@pytest.fixture(params=["bwrap", "none"])
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    return walled() if request.param == "bwrap" else as_it_is()


@pytest.fixture
def worktrees(repo: Path, sandbox: Sandbox, tmp_path: Path) -> Worktrees:
    return Worktrees(repo, sandbox, tmp_path / "home")


async def inside(sandbox: Sandbox, tree: Path, home: Path, script: str) -> str:
    return (await Git(sandbox, tree, home).run(script)).output.decode()


async def test_each_conversation_has_its_own_and_keeps_it(
    repo: Path, sandbox: Sandbox, worktrees: Worktrees, tmp_path: Path
) -> None:
    (repo / "a.txt").write_text("not committed\n")
    one, two = await worktrees.ensure(ONE), await worktrees.ensure(TWO)
    assert one != two
    assert one.parent == two.parent == repo / ".codebutler" / "worktrees"
    assert (one / "a.txt").read_text() == "one\n"
    await inside(
        sandbox, one, tmp_path / "home", "echo two > a.txt; git commit -qam 'in one'; echo new > b.txt"
    )
    assert (two / "a.txt").read_text() == "one\n"
    assert (repo / "a.txt").read_text() == "not committed\n"
    assert await worktrees.ensure(ONE) == existing(repo, ONE) == one
    assert (one / "b.txt").read_text() == "new\n"
    assert git(repo, "log", "-1", "--format=%s", branch_of(ONE)) == "in one\n"
    assert git(repo, "status", "--short") == " M a.txt\n"
    assert git(one, "status", "--short") == "?? b.txt\n"
    assert git(repo, "worktree", "list").count("\n") == 3


async def test_one_that_was_taken_away_comes_back_with_its_commits(
    repo: Path, sandbox: Sandbox, worktrees: Worktrees, tmp_path: Path
) -> None:
    tree = await worktrees.ensure(ONE)
    await inside(sandbox, tree, tmp_path / "home", "echo two > a.txt; git commit -qam 'in one'")
    git(repo, "worktree", "remove", "-f", "-f", str(tree))
    assert existing(repo, ONE) is None
    assert await worktrees.ensure(ONE) == tree
    assert (tree / "a.txt").read_text() == "two\n"
    shutil.rmtree(tree)
    assert await worktrees.ensure(ONE) == tree
    assert (tree / "a.txt").read_text() == "two\n"


async def test_no_other_conversation_prunes_it(
    repo: Path, sandbox: Sandbox, worktrees: Worktrees, tmp_path: Path
) -> None:
    one, two = await worktrees.ensure(ONE), await worktrees.ensure(TWO)
    for place in (repo, two):
        tried = "git worktree prune -v 2>&1 || :; git gc -q --prune=now || :"
        assert await inside(sandbox, place, tmp_path / "home", tried) == ""
    assert await inside(sandbox, one, tmp_path / "home", "git branch --show-current") == branch_of(ONE)
    assert git(one, "status", "--short") == ""


async def test_one_that_was_not_finished_is_made_anew(repo: Path, worktrees: Worktrees) -> None:
    tree = await worktrees.ensure(ONE)
    (tree / ".codebutler" / "ready").unlink()
    (tree / "a.txt").unlink()
    assert existing(repo, ONE) is None
    assert await worktrees.ensure(ONE) == tree
    assert (tree / "a.txt").read_text() == "one\n"


async def test_without_a_commit_it_says_what_to_do(tmp_path: Path, sandbox: Sandbox) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    trees = Worktrees(empty, sandbox, tmp_path / "home")
    with pytest.raises(GitError, match="run `git init`"):
        await trees.ensure(ONE)
    git(empty, "init", "-q")
    prepare_state_dir(empty)
    with pytest.raises(GitError, match="make the first one"):
        await trees.ensure(ONE)


async def test_a_link_in_its_place_leads_nowhere(repo: Path, worktrees: Worktrees, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").touch()
    parent = repo / ".codebutler" / "worktrees"
    parent.symlink_to(outside)
    with pytest.raises(GitError, match="no worktree can be made"):
        await worktrees.ensure(ONE)
    parent.unlink()
    parent.mkdir()
    (parent / "c0repo-100-1").symlink_to(outside)
    with pytest.raises(GitError, match="no worktree can be made"):
        await worktrees.ensure(ONE)
    assert [each.name for each in outside.iterdir()] == ["precious"]
