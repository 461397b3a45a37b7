"""The working tree through real git, behind real walls: seen, compared and put back."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from codebutler_worker.tree.tree import MAX_FILE_BYTES, Git, GitError, Tree
from tests.programs import require
from tests.walls import as_it_is, walled


def git(repo: Path, *arguments: str) -> str:
    require("git")
    identity = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b"}
    env = {**os.environ, **identity, "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}
    done = subprocess.run(["git", "-C", str(repo), *arguments], env=env, capture_output=True, check=True)
    return done.stdout.decode()


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    path = tmp_path / "repo"
    path.mkdir()
    git(path, "init", "-q", "-b", "main")
    (path / "a.txt").write_text("one\ntwo\nthree\n")
    (path / "gone.txt").write_text("still here\n")
    (path / ".gitignore").write_text("*.tmp\n")
    git(path, "add", ".")
    git(path, "commit", "-qm", "begin")
    return path


@pytest.fixture(params=["bwrap", "none"])
def tree(request: pytest.FixtureRequest, repo: Path, tmp_path: Path) -> Tree:
    sandbox = walled() if request.param == "bwrap" else as_it_is()
    return Tree(Git(sandbox, repo, tmp_path / "home"))


def state(repo: Path) -> dict[str, bytes]:
    paths = [
        path for path in repo.rglob("*") if path.is_file() and ".git" not in path.relative_to(repo).parts
    ]
    return {str(path.relative_to(repo)): path.read_bytes() for path in paths}


def work(repo: Path) -> None:
    """What a turn may do: edit, create (also with an odd name), delete."""
    (repo / "a.txt").write_text("one\n2\nthree\n")
    (repo / "gone.txt").unlink()
    (repo / "new dir").mkdir()
    (repo / "new dir" / "-odd\nñame").write_bytes(b"\x00binary\xff")


async def test_what_a_turn_did_is_put_back_and_forth(repo: Path, tree: Tree) -> None:
    (repo / "mine.txt").write_text("not committed\n")
    git(repo, "add", "mine.txt")
    index = git(repo, "diff", "--cached", "--raw")
    before_state = state(repo)
    before = await tree.snapshot("t1/before")
    work(repo)
    after_state = state(repo)
    after = await tree.snapshot("t1/after")
    assert before is not None
    assert after is not None
    asked = await tree.put_back(before.commit, after.commit, "check")
    assert set(asked.restored) == {"a.txt", "gone.txt"}
    assert asked.removed == ("new dir/-odd\nñame",)
    assert state(repo) == after_state
    assert await tree.put_back(before.commit, after.commit, "apply") == asked
    assert state(repo) == before_state
    assert (await tree.put_back(after.commit, before.commit, "apply")).left == ()
    assert state(repo) == after_state
    assert git(repo, "diff", "--cached", "--raw") == index
    assert git(repo, "branch", "--format=%(refname)").split() == ["refs/heads/main"]
    assert git(repo, "stash", "list") == ""


async def test_what_was_changed_since_stays(repo: Path, tree: Tree) -> None:
    before = await tree.snapshot("t1/before")
    work(repo)
    after = await tree.snapshot("t1/after")
    (repo / "a.txt").write_text("one\nby hand\nthree\n")
    assert before is not None
    assert after is not None
    done = await tree.put_back(before.commit, after.commit, "apply")
    assert done.left == ("a.txt",)
    assert (done.restored, done.removed) == (("gone.txt",), ("new dir/-odd\nñame",))
    assert (repo / "a.txt").read_text() == "one\nby hand\nthree\n"
    assert (repo / "gone.txt").exists()
    assert not (repo / "new dir").exists()


async def test_without_a_second_snapshot_everything_until_now_is_put_back(repo: Path, tree: Tree) -> None:
    before_state = state(repo)
    before = await tree.snapshot("t1/before")
    work(repo)
    assert before is not None
    await tree.put_back(before.commit, None, "apply")
    assert state(repo) == before_state


async def test_commits_that_were_made_stay_and_are_counted(repo: Path, tree: Tree) -> None:
    before = await tree.snapshot("t1/before")
    (repo / "a.txt").write_text("committed\n")
    git(repo, "commit", "-qam", "by the agent")
    after = await tree.snapshot("t1/after")
    assert before is not None
    assert after is not None
    (made,) = (await tree.difference(before.commit, after.commit)).commits
    assert made.endswith(" by the agent")
    done = await tree.put_back(before.commit, after.commit, "apply")
    assert (done.restored, done.commits) == (("a.txt",), 1)
    assert git(repo, "log", "--format=%s").split("\n")[0] == "by the agent"
    assert (repo / "a.txt").read_text() == "one\ntwo\nthree\n"


async def test_a_difference_shows_what_is_untracked_but_not_what_is_ignored_private_or_large(
    repo: Path, tree: Tree
) -> None:
    work(repo)
    (repo / "cache.tmp").write_text("ignored")
    (repo / ".codebutler" / "files").mkdir(parents=True)
    (repo / ".codebutler" / "files" / "sent.txt").write_text("private")
    with (repo / "huge.bin").open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1024)
    found = await tree.difference()
    assert [(file.path, file.added, file.removed) for file in found.files] == [
        ("a.txt", 1, 1),
        ("gone.txt", 0, 1),
        ("new dir/-odd\nñame", None, None),
    ]
    assert "-two\n+2\n" in found.body
    assert not found.cut
    assert not any(word in str(found) for word in ("cache", "sent", "huge"))
    (one, _, odd) = found.files
    only = await tree.difference(found.before, found.after, files=(one,))
    assert (only.body.count("diff --git"), only.files) == (1, found.files)
    assert "Binary" in (await tree.difference(found.before, found.after, files=(odd,))).body
    short = await tree.difference(limit_bytes=20)
    assert (short.cut, len(short.body)) == (True, 20)


async def test_a_repository_without_a_commit_has_a_difference_too(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "repo")
    (tmp_path / "repo" / "first.txt").write_text("hello\n")
    tree = Tree(Git(walled(), tmp_path / "repo", tmp_path / "home"))
    assert "+hello" in (await tree.difference()).body
    assert await tree.snapshot("t1/before")


async def test_without_git_there_is_no_snapshot_and_the_line_says_why(tmp_path: Path) -> None:
    tree = Tree(Git(as_it_is(), tmp_path, tmp_path / "home"))
    assert await tree.snapshot("t1/before") is None
    with pytest.raises(GitError, match="git init"):
        await tree.difference()


async def test_what_a_repository_tells_git_to_run_reaches_nothing_outside(repo: Path, tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    for key in ("core.fsmonitor", "filter.x.clean", "diff.x.textconv", "diff.external"):
        git(repo, "config", key, f"touch {trap}; cat")
    (repo / ".gitattributes").write_text("* filter=x diff=x\n")
    (repo / "a.txt").write_text("changed\n")
    tree = Tree(Git(walled(), repo, tmp_path / "home"))
    before = await tree.snapshot("t1/before")
    assert before is not None
    await tree.difference()
    await tree.put_back(before.commit, None, "check")
    assert not trap.exists()


async def test_a_damaged_index_of_ours_is_made_anew(repo: Path, tree: Tree) -> None:
    await tree.snapshot("t1/before")
    (repo / ".git" / "codebutler" / "index").write_bytes(b"rubbish")
    work(repo)
    assert len((await tree.difference()).files) == 3


async def test_where_nothing_has_changed_the_last_snapshot_is_kept_again(repo: Path, tree: Tree) -> None:
    first = await tree.snapshot("t1/before")
    assert await tree.snapshot("t2/before") == first
    work(repo)
    await tree.difference()
    changed = await tree.snapshot("t3/before")
    assert changed is not None
    assert first is not None
    assert changed.tree != first.tree
    git(repo, "commit", "-q", "--allow-empty", "-m", "empty")
    moved = await tree.snapshot("t4/before")
    assert moved is not None
    assert (moved.tree, moved.commit != changed.commit) == (changed.tree, True)
    assert len(git(repo, "for-each-ref", "refs/codebutler").splitlines()) == 4


async def test_only_the_newest_snapshots_are_kept(
    repo: Path, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("codebutler_worker.tree.tree.KEPT_REFS", 3)
    monkeypatch.setattr("codebutler_worker.tree.tree.PRUNE_EVERY", 2)
    for number in range(5):
        (repo / "a.txt").write_text(f"{number}\n")
        await tree.snapshot(f"t{number}/after")
    assert len(git(repo, "for-each-ref", "refs/codebutler").splitlines()) == 3


async def test_snapshots_asked_for_at_once_do_not_meet(repo: Path, tree: Tree) -> None:
    found = await asyncio.gather(*(tree.snapshot(f"t{number}/before") for number in range(4)))
    assert all(found)
    assert len(git(repo, "for-each-ref", "refs/codebutler").splitlines()) == 4


async def test_a_tree_that_takes_too_long_is_not_tried_again(
    repo: Path, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("codebutler_worker.tree.tree.SNAPSHOT_S", 0.0)
    with pytest.raises(GitError, match="no turn can be undone"):
        await tree.snapshot("t1/before")
    assert await tree.snapshot("t2/before") is None
    assert "t2" not in git(repo, "for-each-ref", "refs/codebutler")


async def test_a_lock_that_git_left_and_a_head_on_no_branch_are_no_hindrance(repo: Path, tree: Tree) -> None:
    git(repo, "checkout", "-q", "--detach")
    lock = repo / ".git" / "index.lock"
    lock.write_bytes(b"half an index")
    before = await tree.snapshot("t1/before")
    work(repo)
    after = await tree.snapshot("t1/after")
    assert before is not None
    assert after is not None
    assert "+2" in (await tree.difference()).body
    assert (await tree.put_back(before.commit, after.commit, "apply")).left == ()
    assert (repo / "a.txt").read_text() == "one\ntwo\nthree\n"
    # Whose it is, nobody knows: a git that still works would lose what it writes.
    assert lock.read_bytes() == b"half an index"


async def test_what_is_committed_of_our_own_files_is_no_change_of_a_turn(repo: Path, tree: Tree) -> None:
    (repo / ".codebutler").mkdir()
    (repo / ".codebutler" / "jobs.yaml").write_text("one\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "jobs")
    before = await tree.snapshot("t1/before")
    (repo / ".codebutler" / "jobs.yaml").write_text("two\n")
    git(repo, "commit", "-qam", "other jobs")
    after = await tree.snapshot("t1/after")
    assert before is not None
    assert after is not None
    assert (await tree.difference()).files == ()
    assert (await tree.put_back(before.commit, after.commit, "apply")).undone == 0
