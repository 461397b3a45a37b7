"""Trailers on the commits that an agent made, through real git behind real walls: what anybody else has seen stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from codebutler_worker.tree.trailers import add_trailers
from codebutler_worker.tree.tree import Git, Tree
from tests.integration.tree.test_tree import git, repo
from tests.walls import as_it_is, walled

__all__ = ["repo"]
TRAILERS = ("Asked-by: U0ANA", "Thread: https://chat.example/C1/p1")


@pytest.fixture(params=["bwrap", "none"])
def tree(request: pytest.FixtureRequest, repo: Path, tmp_path: Path) -> Tree:
    # As the commits of these tests, but for what git leaves out of a name.
    git(repo, "config", "user.name", "a.")
    git(repo, "config", "user.email", "a@b")
    git(repo, "commit", "-q", "--allow-empty", "-m", "before the run")
    sandbox = walled() if request.param == "bwrap" else as_it_is()
    return Tree(Git(sandbox, repo, tmp_path / "home"))


async def begun(tree: Tree) -> str:
    kept = await tree.snapshot("t1/before")
    assert kept is not None
    return kept.commit


def commit(repo: Path, subject: str, *more: str, name: str = "a.txt") -> str:
    (repo / name).write_text(f"{subject}\n")
    git(repo, "add", name)
    git(repo, "commit", "-qm", subject, *more)
    return head(repo)


def head(repo: Path, ref: str = "HEAD") -> str:
    return git(repo, "rev-parse", ref).strip()


def history(repo: Path, form: str = "%s|%(trailers:only,unfold,separator=%x2c)") -> list[str]:
    return git(repo, "log", "--reverse", f"--format={form}").splitlines()


async def test_each_commit_of_the_run_gets_them_once_and_nothing_else_changes(repo: Path, tree: Tree) -> None:
    before = await begun(tree)
    commit(repo, "One", "--author", "Élise <e@example.com>", "--date", "2001-02-03T04:05:06+0700")
    commit(repo, "Two", "-m", "Because\n---\nof this.", "-m", "Refs: 7")
    (repo / "open.txt").write_text("not committed\n")
    same = "%T %an %ae %ai %cn %ce"
    kept, status = history(repo, same), git(repo, "status", "--porcelain")
    assert await add_trailers(tree.git, before, TRAILERS, ()) == 2
    assert (history(repo, same), git(repo, "status", "--porcelain")) == (kept, status)
    assert history(repo)[-3:] == [
        "before the run|",
        f"One|{','.join(TRAILERS)}",
        f"Two|Refs: 7,{','.join(TRAILERS)}",
    ]
    assert "Because\n---\nof this." in git(repo, "log", "-1", "--format=%b")
    again = head(repo)
    assert await add_trailers(tree.git, before, TRAILERS, ()) == 0
    assert head(repo) == again


async def test_what_others_have_stays_as_it_is(repo: Path, tree: Tree) -> None:
    for number, keep in enumerate(
        (["branch", "keep"], ["tag", "kept"], ["update-ref", "refs/remotes/o/x", "HEAD"])
    ):
        before = await begun(tree)
        seen = commit(repo, f"Seen {number}")
        git(repo, *keep)
        commit(repo, f"New {number}")
        assert await add_trailers(tree.git, before, TRAILERS, ()) == 1
        assert head(repo, "HEAD~1") == seen
        git(repo, "branch", "-f", "all")
    before = await begun(tree)
    pushed = commit(repo, "Pushed")
    assert await add_trailers(tree.git, before, TRAILERS, (pushed, "0" * 40)) == 0
    assert head(repo) == pushed
    away = commit(repo, "In another checkout")
    git(repo, "worktree", "add", "-q", "--detach", str(repo.parent / "away"))
    assert await add_trailers(tree.git, before, TRAILERS, (pushed,)) == 0
    assert head(repo) == away


async def test_where_it_could_lose_something_nothing_is_touched(repo: Path, tree: Tree) -> None:
    before = await begun(tree)
    git(repo, "config", "user.name", "Ben")
    now = commit(repo, "By another")
    assert await add_trailers(tree.git, before, TRAILERS, ()) == 0
    git(repo, "config", "user.name", "a")
    git(repo, "checkout", "-q", "--detach")
    assert await add_trailers(tree.git, before, TRAILERS, ()) == 0
    assert head(repo) == now
    git(repo, "checkout", "-q", "-B", "other", "HEAD~1")
    git(repo, "commit", "-q", "--amend", "--allow-empty", "-m", "Rewritten from before the run")
    now = head(repo)
    assert await add_trailers(tree.git, before, TRAILERS, ()) == 0
    assert head(repo) == now


async def test_a_rebase_under_way_is_left_alone(repo: Path, tree: Tree) -> None:
    before = await begun(tree)
    commit(repo, "One")
    now = commit(repo, "Two")
    (repo / ".git" / "rebase-merge").mkdir()
    assert await add_trailers(tree.git, before, TRAILERS, ()) == 0
    assert head(repo) == now


async def test_a_merge_keeps_its_parents(repo: Path, tree: Tree) -> None:
    before = await begun(tree)
    branch = git(repo, "symbolic-ref", "--short", "HEAD").strip()
    git(repo, "checkout", "-qb", "theirs")
    theirs = commit(repo, "Theirs", name="b.txt")
    git(repo, "checkout", "-q", branch)
    commit(repo, "Mine", name="c.txt")
    git(repo, "merge", "-q", "--no-ff", "-m", "Merge", "theirs")
    assert await add_trailers(tree.git, before, TRAILERS, ()) == 2
    assert head(repo, "HEAD^2") == theirs
    assert git(repo, "log", "-1", "--format=%s", "HEAD^1").strip() == "Mine"
    assert git(repo, "status", "--porcelain") == ""


async def test_nothing_of_the_repository_runs_outside_and_a_message_is_no_command(
    repo: Path, tmp_path: Path
) -> None:
    trap, tree = tmp_path / "trap", Tree(Git(walled(), repo, tmp_path / "home"))
    git(repo, "config", "user.name", "a")
    git(repo, "config", "user.email", "a@b")
    before = await begun(tree)
    commit(repo, f"$(touch {trap}) `touch {trap}`", "-m", "END\n$trailers")
    for key in ("trailer.asked-by.command", "trailer.asked-by.cmd", "gpg.program", "core.fsmonitor"):
        git(repo, "config", key, f"touch {trap}; echo")
    git(repo, "config", "log.showSignature", "true")
    await add_trailers(tree.git, before, (*TRAILERS, f"Agent: $(touch {trap})"), ())
    assert not trap.exists()
    assert "END\n$trailers" in git(repo, "-c", "log.showSignature=false", "log", "-1", "--format=%b")
