"""A conversation's branch is merged, and its worktree discarded, by real git behind real walls."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from codebutler_worker.commands.worktrees import merged_text
from codebutler_worker.sandbox.port import Sandbox
from codebutler_worker.tree.merging import Merged, merge, shared_paths
from codebutler_worker.tree.tree import Git, GitError, Tree
from codebutler_worker.tree.worktrees import (
    DISCARDED,
    KEPT_DAYS,
    Worktrees,
    WorktreeState,
    begun,
    existing,
    size_kib,
)
from tests.integration.tree.conftest import Committed
from tests.integration.tree.test_tree import git
from tests.walls import as_it_is

ONE, TWO = "C0REPO:100.1", "C0REPO:200.1"
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


async def idle() -> bool:
    return False


async def busy() -> bool:
    return True


@pytest.fixture
def repo(committed: Committed) -> Path:
    return committed({"a.txt": "one\n", "b.txt": "one\n", ".gitignore": "*.log\n"})


@pytest.fixture
def trees(repo: Path, sandbox: Sandbox, tmp_path: Path) -> Worktrees:
    return Worktrees(repo, sandbox, tmp_path / "home")


async def works(trees: Worktrees, script: str, conversation: str = ONE) -> Path:
    """An agent of the conversation runs ``script`` in its worktree."""
    tree = await trees.ensure(conversation, "fix the login")
    await trees.git(tree).run(script)
    return tree


async def merged(trees: Worktrees, message: str = "") -> Merged:
    return await merge(trees, ONE, message, idle)


async def state_of(trees: Worktrees, conversation: str = ONE) -> WorktreeState:
    return await trees.state(conversation, await trees.target())


def head(path: Path) -> str:
    return git(path, "rev-parse", "HEAD").strip()


async def test_a_branch_is_merged_by_moving_forward(repo: Path, trees: Worktrees) -> None:
    tree = await works(trees, "echo two > a.txt; git commit -qam 'in one'")
    done = await merged(trees)
    assert (done.into, done.stat) == ("main", "1 file changed, 1 insertion(+), 1 deletion(-)")
    assert (repo / "a.txt").read_text() == "two\n"
    assert head(repo) == head(tree)
    assert git(repo, "status", "--short") == ""
    assert git(repo, "symbolic-ref", "HEAD").strip() == "refs/heads/main"
    assert (await merged(trees)).stat == ""


SIGN = """
echo two > a.txt
git commit -qam 'in one'
commit=$(git cat-file commit HEAD | sed '0,/^$/s/^$/gpgsig of the owner\\n/' |
  git hash-object -t commit -w --literally --stdin)
git reset -q --soft "$commit"
"""


@pytest.mark.parametrize("moved", [False, True])
async def test_a_signature_that_a_rebase_costs_is_told(repo: Path, trees: Worktrees, *, moved: bool) -> None:
    await works(trees, SIGN)
    if moved:
        (repo / "b.txt").write_text("three\n")
        git(repo, "commit", "-qam", "in main")
    done = await merged(trees)
    assert done.unsigned == (1 if moved else 0)
    assert ("no longer signed" in merged_text(done)) is moved
    assert ("gpgsig of the owner" in git(repo, "cat-file", "commit", "HEAD")) is not moved


async def test_where_the_repository_has_moved_on_it_is_rebased_first(repo: Path, trees: Worktrees) -> None:
    tree = await works(trees, "echo two > a.txt; git -c user.name=Ana commit -qam 'in one'")
    (repo / "b.txt").write_text("three\n")
    git(repo, "commit", "-qam", "in main")
    assert (await merged(trees)).stat.startswith("1 file changed")
    assert git(repo, "log", "--format=%s %p").count(" ") >= 3
    assert [line.split()[-2:] for line in git(repo, "log", "--format=%s").splitlines()] == [
        ["in", "one"],
        ["in", "main"],
        ["begin"],
    ]
    assert (tree / "b.txt").read_text() == (repo / "b.txt").read_text() == "three\n"
    assert git(tree, "branch", "--show-current").strip() == done_branch(repo)


def done_branch(repo: Path) -> str:
    known = begun(repo, ONE)
    assert known is not None
    return known.branch


async def test_a_conflict_leaves_everything_as_it_was(repo: Path, trees: Worktrees) -> None:
    tree = await works(trees, "echo two > a.txt; git commit -qam 'in one'")
    (repo / "a.txt").write_text("three\n")
    git(repo, "commit", "-qam", "in main")
    before = head(repo), head(tree)
    done = await merged(trees)
    assert done.conflicts == ("a.txt",)
    assert (head(repo), head(tree)) == before
    assert git(tree, "status", "--short") == git(repo, "status", "--short") == ""
    assert git(tree, "branch", "--show-current").strip() == done.branch
    # Its agent resolves it, the way it is told to.
    await trees.git(tree).run("git merge -q main; echo both > a.txt; git commit -qam resolved")
    assert (await merged(trees)).stat
    assert (repo / "a.txt").read_text() == "both\n"


async def test_what_is_not_committed_is_committed_with_the_message(repo: Path, trees: Worktrees) -> None:
    tree = await works(
        trees, "echo two > a.txt; echo new > new.txt; echo x > x.log; echo f > .codebutler/files/f"
    )
    with pytest.raises(GitError, match=r"not committed yet: `a.txt`, `new.txt`. Say `!merge MESSAGE`"):
        await merged(trees)
    assert head(repo) == head(tree)
    await merged(trees, "Fix the login; $(touch pwned)")
    assert git(repo, "log", "-1", "--format=%s") == "Fix the login; $(touch pwned)\n"
    assert git(repo, "ls-files").split() == [".gitignore", "a.txt", "b.txt", "new.txt"]
    assert not (repo / "pwned").exists()
    assert not (tree / "pwned").exists()


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.txt", "mine\n"), ("new.txt", "mine\n"), ("new.log", "mine\n")],
)
async def test_work_in_the_repository_itself_is_not_overwritten(
    repo: Path, trees: Worktrees, name: str, text: str
) -> None:
    await works(
        trees,
        "echo 2 > a.txt; echo 2 > new.txt; echo 2 > new.log; git add -f *.txt *.log; git commit -qm one",
    )
    (repo / name).write_text(text)
    before = head(repo)
    with pytest.raises(GitError, match=f"uncommitted changes in `{name}`: commit or stash them there"):
        await merged(trees)
    assert (repo / name).read_text() == text
    assert head(repo) == before


async def test_work_elsewhere_in_the_repository_stays(repo: Path, trees: Worktrees) -> None:
    await works(trees, "echo two > a.txt; git commit -qam 'in one'")
    (repo / "b.txt").write_text("mine\n")
    assert (await merged(trees)).stat
    assert git(repo, "status", "--short") == " M b.txt\n"


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo 2 > a.txt; git commit -qam one; git checkout -q --detach", "detached HEAD"),
        (
            "echo 2 > a.txt; git commit -qam one; git checkout -q -b other HEAD~1; echo 3 > a.txt; "
            "git commit -qam two; git rebase -q @{-1} || :",
            "unfinished",
        ),
    ],
)
async def test_what_only_its_agent_can_finish_is_left_to_it(
    repo: Path, trees: Worktrees, script: str, why: str
) -> None:
    tree = await works(trees, script)
    before = git(tree, "status")
    with pytest.raises(GitError, match=why):
        await merged(trees, "message")
    assert git(tree, "status") == before
    assert git(repo, "log", "--format=%s") == "begin\n"


async def test_nothing_is_merged_or_discarded_under_a_run(repo: Path, trees: Worktrees) -> None:
    await works(trees, "echo two > a.txt; git commit -qam 'in one'")
    with pytest.raises(GitError, match="a run is under way"):
        await merge(trees, ONE, "", busy)
    with pytest.raises(GitError, match="a run is under way"):
        await trees.discard(ONE, busy, NOW, await trees.fingerprint(await state_of(trees)))
    assert existing(repo, ONE)
    with pytest.raises(GitError, match="has no worktree"):
        await merge(trees, TWO, "", idle)


async def test_a_rebase_that_was_cut_off_is_taken_back_by_the_next_merge(
    repo: Path, trees: Worktrees
) -> None:
    tree = await works(trees, "echo two > a.txt; git commit -qam 'in one'")
    (repo / "a.txt").write_text("three\n")
    git(repo, "commit", "-qam", "in main")
    before = head(tree)
    await trees.git(tree).run(': > "$(git rev-parse --git-dir)/codebutler-merge"; git rebase -q main || :')
    assert head(tree) != before
    assert (await merged(trees)).conflicts == ("a.txt",)
    assert head(tree) == before
    assert git(tree, "branch", "--show-current").strip() == done_branch(repo)


async def test_hooks_and_foreign_settings_stay_out(repo: Path, trees: Worktrees, tmp_path: Path) -> None:
    for name in (
        "pre-commit",
        "post-merge",
        "pre-rebase",
        "post-rewrite",
        "post-checkout",
        "reference-transaction",
    ):
        hook = repo / ".git" / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\ntouch {repo}/hooked {tmp_path}/hooked\n")
        hook.chmod(0o755)
    for key, value in (("commit.gpgSign", "true"), ("rebase.autoStash", "true"), ("core.editor", "false")):
        git(repo, "config", key, value)
    await works(trees, "echo two > a.txt")
    (repo / "b.txt").write_text("three\n")
    git(repo, "-c", "commit.gpgSign=false", "-c", "core.hooksPath=/dev/null", "commit", "-qam", "in main")
    assert (await merged(trees, "by hand")).stat
    assert not (repo / "hooked").exists()
    assert not (tmp_path / "hooked").exists()


async def test_a_squashed_or_rebased_merge_counts_as_merged(repo: Path, trees: Worktrees) -> None:
    await works(trees, "echo two > a.txt; git commit -qam one; echo three > a.txt; git commit -qam two")
    assert (await state_of(trees)).unmerged == 2
    git(repo, "merge", "-q", "--squash", done_branch(repo))
    git(repo, "commit", "-qm", "squashed")
    assert (await state_of(trees)).is_saved


@pytest.mark.parametrize(
    "work",
    [
        "echo two > a.txt",
        "echo new > new.txt",
        "echo two > a.txt; git commit -qam one; git checkout -q -b other HEAD~1",
        "echo x > .codebutler/files/x",
    ],
)
async def test_what_is_not_saved_goes_only_by_somebodys_word(repo: Path, trees: Worktrees, work: str) -> None:
    tree = await works(trees, work)
    state = await state_of(trees)
    assert not state.is_saved
    with pytest.raises(GitError, match="has changed since"):
        await trees.discard(ONE, idle, NOW)
    agreed = await trees.fingerprint(state)
    (tree / "later.txt").write_text("written after somebody agreed\n")
    with pytest.raises(GitError, match="has changed since"):
        await trees.discard(ONE, idle, NOW, agreed)
    assert (tree / "later.txt").exists()


async def test_what_is_discarded_is_kept_for_some_days(repo: Path, trees: Worktrees) -> None:
    tree = await works(
        trees,
        "echo side > side.txt; git add .; git commit -qm side; git checkout -q -b other HEAD~1; "
        "echo two > a.txt; git commit -qam one; echo new > new.txt",
    )
    branch, side = done_branch(repo), git(tree, "rev-parse", done_branch(repo)).strip()
    ref = await trees.discard(ONE, idle, NOW, await trees.fingerprint(await state_of(trees)))
    assert not tree.exists()
    assert existing(repo, ONE) is None
    assert begun(repo, ONE) is None
    assert branch not in git(repo, "branch", "--list")
    assert ref.startswith(f"{DISCARDED}/")
    assert git(repo, "show", f"{ref}:new.txt", f"{ref}:a.txt") == "new\ntwo\n"
    assert git(repo, "rev-parse", f"{ref}-branch").strip() == side
    assert git(repo, "worktree", "list").count("\n") == 1

    await trees.expire(NOW + timedelta(days=KEPT_DAYS))
    assert git(repo, "for-each-ref", DISCARDED).count("\n") == 2
    await trees.expire(NOW + timedelta(days=KEPT_DAYS + 1))
    assert git(repo, "for-each-ref", DISCARDED) == ""


async def test_a_merged_one_goes_without_a_word(repo: Path, trees: Worktrees) -> None:
    tree = await works(trees, "echo two > a.txt; git commit -qam one; echo x > x.log")
    await merged(trees)
    await trees.discard(ONE, idle, NOW)
    assert not tree.exists()
    assert git(repo, "branch", "--list") == "* main\n"
    assert await works(trees, ":") == tree


async def test_two_that_change_the_same_files_are_found(repo: Path, trees: Worktrees) -> None:
    one = await works(trees, "echo two > a.txt; git commit -qam one; echo 'ä' > 'ä b.txt'; echo 1 > mine.txt")
    two = await works(trees, "echo 3 > a.txt; echo 4 > b.txt; echo 'ü' > 'ä b.txt'", TWO)
    snapshots = []
    for tree in (one, two):
        kept = await Tree(trees.git(tree)).snapshot("x/after")
        assert kept is not None
        snapshots.append(kept.commit)
    main = trees.git(repo)
    assert await shared_paths(main, snapshots[0], [snapshots[1], "0" * 40]) == [("a.txt", "ä b.txt"), ()]
    await merge(trees, ONE, "all of one", idle)
    kept = await Tree(trees.git(one)).snapshot("x/after")
    assert kept is not None
    assert await shared_paths(main, snapshots[1], [kept.commit]) == [()]


async def test_its_size_is_known(trees: Worktrees) -> None:
    tree = await works(trees, "head -c 300000 /dev/zero > big.log")
    kib = await size_kib(trees.git(tree))
    assert kib is not None
    assert kib >= 290


async def test_without_a_branch_there_is_nothing_to_merge_into(repo: Path, trees: Worktrees) -> None:
    await works(trees, "echo two > a.txt; git commit -qam one")
    git(repo, "checkout", "-q", "--detach")
    with pytest.raises(GitError, match="the repository itself has a detached HEAD"):
        await merged(trees)


def test_git_commits_under_our_name_only_for_ourselves(repo: Path, tmp_path: Path) -> None:
    ours = Git(as_it_is(), repo, tmp_path)
    theirs = ours.as_owner()
    assert "GIT_AUTHOR_NAME" in ours._policy.env
    assert "GIT_AUTHOR_NAME" not in theirs._policy.env
