"""Files that git tracks below `.codebutler`: hidden as they are, but never deleted by what git does inside."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from codebutler_worker.sandbox.port import SandboxPolicy
from codebutler_worker.sandbox.prelude import FAILED
from codebutler_worker.store.opening import prepare_state_dir
from codebutler_worker.tree.worktrees import Worktrees
from tests.ordinary import give_repository_away
from tests.walls import ended, walled

ENV = {
    "PATH": "/usr/bin:/bin",
    **{f"GIT_{role}_NAME": "Ann" for role in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{role}_EMAIL": "ann@example.org" for role in ("AUTHOR", "COMMITTER")},
}
KEPT = [".codebutler/config.json", ".codebutler/jobs.yaml", ".codebutler/skills/deploy.md"]
SECRET = "xoxb-not-in-git"


def git(repo: Path, *words: str) -> str:
    """The owner's own git, outside."""
    run = ["git", "-c", "safe.directory=*", "-c", "user.name=o", "-c", "user.email=o@example.org", *words]
    return subprocess.run(run, cwd=repo, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def policy(git_repo: Path, tmp_path: Path) -> SandboxPolicy:
    """A team keeps its jobs, skills and configuration in git, and another branch has others; a token is not in git."""
    (tmp_path / "home").mkdir()
    for name in KEPT:
        (git_repo / name).parent.mkdir(parents=True, exist_ok=True)
        (git_repo / name).write_text("of main\n")
    git(git_repo, "add", "-A")
    git(git_repo, "commit", "-qm", "Ours")
    git(git_repo, "checkout", "-qb", "other")
    (git_repo / KEPT[1]).write_text("of other\n")
    (git_repo / KEPT[2]).unlink()
    (git_repo / "src" / "app.py").write_text("other = True\n")
    git(git_repo, "add", "-A")
    git(git_repo, "commit", "-qm", "Other")
    git(git_repo, "checkout", "-q", "main")
    prepare_state_dir(git_repo)
    (git_repo / KEPT[0]).write_text(SECRET)
    (git_repo / ".codebutler" / "store.db").write_text(SECRET)
    (git_repo / ".codebutler" / "files" / "sent.pdf").write_text("sent")
    give_repository_away(git_repo)
    return SandboxPolicy(workdir=git_repo, home=tmp_path / "home", env=ENV, network="none")


async def inside(policy: SandboxPolicy, script: str) -> str:
    sandbox = walled()
    code, said = await ended(sandbox.wrap(("sh", "-ec", script), policy))
    assert code == 0, said
    return said


def tracked(repo: Path, commit: str = "HEAD") -> list[str]:
    return git(repo, "ls-tree", "-r", "--name-only", commit, ".codebutler/").split()


async def test_git_finds_nothing_changed(policy: SandboxPolicy) -> None:
    assert await inside(policy, "git status --porcelain; git stash list; git diff --stat HEAD") == ""


@pytest.mark.parametrize(
    "commit",
    [
        "git commit -qam more",
        "git add -A && git commit -qm more",
        "git add . && git commit -qm more",
        "git stash -q && git stash pop -q && git commit -qam more",
        "git stash -qu && git stash pop -q && git commit -qam more",
        "git reset -q --hard && echo more >> README.md && git commit -qam more",
        "git checkout -q . && echo more >> README.md && git commit -qam more",
        "git add -A && git commit -qm more && git rebase -q --force-rebase HEAD~1",
        "git commit -qam more && git commit -q --amend -am again",
        "cd src && git commit -qam more",
        "git clean -fdq && git commit -qam more",
    ],
)
async def test_no_commit_takes_them_away(policy: SandboxPolicy, commit: str) -> None:
    await inside(policy, f"echo more >> README.md; {commit}")
    assert tracked(policy.workdir) == KEPT
    assert git(policy.workdir, "show", "--name-only", "--format=").split() == ["README.md"]
    assert git(policy.workdir, "show", f"HEAD:{KEPT[0]}") == "of main\n"


async def test_what_lies_outside_stays_as_it_is(policy: SandboxPolicy) -> None:
    await inside(policy, "rm -rf .codebutler/jobs.yaml .codebutler/skills; echo x > .codebutler/config.json")
    await inside(policy, "git checkout -q other; git reset -q --hard; git checkout -q main")
    private = policy.workdir / ".codebutler"
    assert (private / "config.json").read_text() == SECRET
    assert (private / "jobs.yaml").read_text() == "of main\n"
    assert (private / "skills" / "deploy.md").read_text() == "of main\n"


async def test_secrets_stay_hidden(policy: SandboxPolicy) -> None:
    said = await inside(
        policy, "cat .codebutler/config.json; find .codebutler -type f; cat .codebutler/*.db || :"
    )
    assert SECRET not in said
    assert said.splitlines()[0] == "of main"
    assert ".codebutler/store.db\n" not in said
    forced = "git update-index --add --cacheinfo 100644,$(git hash-object -w README.md),.codebutler/store.db"
    assert SECRET not in await inside(policy, f"{forced}; git diff -a; git diff -a --cached")
    said = await inside(policy, "cat .codebutler/store.db; git diff -a HEAD; git add -Af .; git diff -a HEAD")
    assert said.startswith("# Sample")
    assert SECRET not in said


async def test_another_branch_has_its_own_and_programs_after_it_too(policy: SandboxPolicy) -> None:
    said = await inside(policy, "git checkout -q other; git status --porcelain; cat .codebutler/jobs.yaml")
    assert said == "of other\n"
    said = await inside(
        policy, "git status --porcelain; ls .codebutler; echo x >> README.md; git commit -qam x"
    )
    assert said.split() == ["config.json", "files", "images", "jobs.yaml"]
    assert tracked(policy.workdir) == KEPT[:2]
    await inside(policy, "git checkout -q main; git merge -q other; git reset -q --hard HEAD~1")
    assert tracked(policy.workdir, "main") == tracked(policy.workdir, "other")


async def test_what_people_sent_is_not_committed(policy: SandboxPolicy) -> None:
    await inside(
        policy, "cat .codebutler/files/sent.pdf; git add -A; git stash -qu; git commit -q --allow-empty -m x"
    )
    assert (policy.workdir / ".codebutler" / "files" / "sent.pdf").exists()
    assert "sent.pdf" not in git(policy.workdir, "log", "--all", "--name-only")


async def test_a_branch_that_brings_the_first_of_them_can_be_worked_on(policy: SandboxPolicy) -> None:
    await inside(
        policy, "git checkout -q --orphan bare; git rm -qrf --cached .codebutler; git commit -qam bare"
    )
    assert tracked(policy.workdir) == []
    await inside(policy, "git checkout -qf main; echo more >> README.md; git commit -qam more")
    assert tracked(policy.workdir) == KEPT


async def test_a_worktree_has_them_too(policy: SandboxPolicy) -> None:
    tree = await Worktrees(policy.workdir, walled(), policy.home).ensure("C1:1.0", "a task")
    there = SandboxPolicy(workdir=tree, home=policy.home, env=ENV, network="none")
    assert await inside(there, "git status --porcelain") == ""
    await inside(there, "echo more >> README.md; git add -A; git commit -qm more")
    assert tracked(tree) == KEPT


async def test_a_pipe_in_the_place_of_an_object_holds_nothing_up(policy: SandboxPolicy) -> None:
    digest = git(policy.workdir, "rev-parse", f"HEAD:{KEPT[1]}").strip()
    stored = f".git/objects/{digest[:2]}/{digest[2:]}"
    await inside(policy, f"rm -f {stored}; mkfifo {stored}")
    said = await inside(policy, "echo begun")
    assert said.splitlines() == [FAILED, "begun"]
