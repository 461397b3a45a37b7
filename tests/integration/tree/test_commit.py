"""What a run changed is committed through real git, behind real walls: that, nothing else, and once."""

from __future__ import annotations

from pathlib import Path

import pytest

from codebutler_worker.tree.tree import Git, GitError, Tree
from tests.integration.tree.test_tree import git, repo, work
from tests.walls import as_it_is, walled

__all__ = ["repo"]
MESSAGE = "Say 2\n\nBecause 'two' was $(too) long."


@pytest.fixture(params=["bwrap", "none"])
def tree(request: pytest.FixtureRequest, repo: Path, tmp_path: Path) -> Tree:
    git(repo, "config", "user.name", "Ana")
    git(repo, "config", "user.email", "ana@example.com")
    sandbox = walled() if request.param == "bwrap" else as_it_is()
    return Tree(Git(sandbox, repo, tmp_path / "home"))


async def ran(tree: Tree, repo: Path, name: str = "t1") -> tuple[str, str]:
    """The snapshots around a run that works."""
    before = await tree.snapshot(f"{name}/before")
    work(repo)
    after = await tree.snapshot(f"{name}/after")
    assert before is not None
    assert after is not None
    return before.commit, after.commit


async def test_only_what_the_run_changed_is_committed_and_once(repo: Path, tree: Tree) -> None:
    (repo / "mine.txt").write_text("not committed\n")
    (repo / "staged.txt").write_text("staged\n")
    git(repo, "add", "staged.txt")
    before, after = await ran(tree, repo)
    made = await tree.commit(before, after, "t1/commit", MESSAGE)
    assert (made.branch, made.again, made.commit) == ("main", False, git(repo, "rev-parse", "HEAD").strip())
    assert git(repo, "log", "-1", "--format=%an <%ae>%n%B").strip() == f"Ana <ana@example.com>\n{MESSAGE}"
    changed = git(repo, "show", "--format=", "--name-status", "-z", "HEAD").split("\0")
    assert changed[:-1] == ["M", "a.txt", "D", "gone.txt", "A", "new dir/-odd\nñame"]
    assert git(repo, "status", "--porcelain").splitlines() == ["A  staged.txt", "?? mine.txt"]
    again = await tree.commit(before, after, "t1/commit", MESSAGE)
    assert (again.commit, again.again) == (made.commit, True)
    assert len(git(repo, "log", "--format=%h").split()) == 2


async def test_what_was_uncommitted_before_in_the_same_file_stays_so(repo: Path, tree: Tree) -> None:
    (repo / "a.txt").write_text("".join(f"{number}\n" for number in range(20)))
    git(repo, "commit", "-qam", "long")
    lines = (repo / "a.txt").read_text().splitlines()
    (repo / "a.txt").write_text("\n".join(["mine", *lines[1:], ""]))
    before = await tree.snapshot("t1/before")
    (repo / "a.txt").write_text("\n".join(["mine", *lines[1:-1], "its", ""]))
    after = await tree.snapshot("t1/after")
    assert before is not None
    assert after is not None
    assert (await tree.commit(before.commit, after.commit, "t1/commit", MESSAGE)).commit
    assert git(repo, "show", "HEAD:a.txt").splitlines() == [*lines[:-1], "its"]
    assert "+mine" in git(repo, "diff")
    assert "its" not in git(repo, "diff").replace(" its", "")


async def test_lines_that_also_hold_something_else_are_left_to_a_person(repo: Path, tree: Tree) -> None:
    (repo / "a.txt").write_text("one\nmine\nthree\n")
    before, after = await ran(tree, repo)
    with pytest.raises(GitError, match="other uncommitted changes"):
        await tree.commit(before, after, "t1/commit", MESSAGE)
    assert git(repo, "log", "--format=%s").split() == ["begin"]


async def test_what_the_agent_has_committed_is_not_committed_again(repo: Path, tree: Tree) -> None:
    before = await tree.snapshot("t1/before")
    work(repo)
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "by the agent")
    after = await tree.snapshot("t1/after")
    assert before is not None
    assert after is not None
    assert (await tree.commit(before.commit, after.commit, "t1/commit", MESSAGE)).commit == ""
    assert len(git(repo, "log", "--format=%h").split()) == 2


async def test_a_merge_under_way_is_not_ended(repo: Path, tree: Tree) -> None:
    before, after = await ran(tree, repo)
    (repo / ".git" / "MERGE_HEAD").write_text(git(repo, "rev-parse", "HEAD"))
    with pytest.raises(GitError, match="merge or rebase"):
        await tree.commit(before, after, "t1/commit", MESSAGE)


async def test_the_first_commit_of_a_repository_can_be_a_runs(tmp_path: Path) -> None:
    path = tmp_path / "new"
    path.mkdir()
    git(path, "init", "-q", "-b", "main")
    git(path, "config", "user.name", "Ana")
    git(path, "config", "user.email", "ana@example.com")
    tree = Tree(Git(walled(), path, tmp_path / "home"))
    before = await tree.snapshot("t1/before")
    (path / "first.txt").write_text("hello\n")
    after = await tree.snapshot("t1/after")
    assert before is not None
    assert after is not None
    assert (await tree.commit(before.commit, after.commit, "t1/commit", "First")).branch == "main"
    assert git(path, "status", "--porcelain") == ""


async def test_hooks_and_filters_of_the_repository_reach_nothing_outside(repo: Path, tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    for key in ("filter.x.clean", "merge.x.driver", "core.fsmonitor", "gpg.program"):
        git(repo, "config", key, f"touch {trap}; cat")
    git(repo, "config", "user.name", "Ana")
    git(repo, "config", "user.email", "ana@example.com")
    for hook in ("pre-commit", "post-commit", "reference-transaction"):
        (repo / ".git" / "hooks" / hook).write_text(f"#!/bin/sh\ntouch {trap}\n")
        (repo / ".git" / "hooks" / hook).chmod(0o755)
    (repo / ".gitattributes").write_text("* filter=x merge=x\n")
    tree = Tree(Git(walled(), repo, tmp_path / "home"))
    before, after = await ran(tree, repo)
    assert (await tree.commit(before, after, "t1/commit", MESSAGE)).commit
    assert not trap.exists()
