"""What a person pushes from chat, by a whole worker with real git and a bare remote."""

from __future__ import annotations

from pathlib import Path

from codebutler.config.schema import GitSection
from tests.integration.forge.kit import Desk, git, says, turn
from tests.shown import text_of
from tests.worker_kit import worker


async def test_the_branch_that_is_checked_out_is_pushed(desk: Desk) -> None:
    git(desk.repo, "checkout", "-qb", "fix-login")
    commit = desk.commit(subject="Fix the *login*")
    async with worker(desk.settings()) as parent:
        says(parent, "push", "100.2")
        told = await parent.post_with("Pushed to `fix-login` on")
        assert desk.at("fix-login") == commit
        assert "Fix the" in text_of(told)
        assert told.thread == "100.1"
        says(parent, "push", "100.3")
        await parent.post_with("is already up to date")


async def test_commits_on_a_protected_branch_go_to_one_of_their_own(desk: Desk) -> None:
    before = desk.at("main")
    async with worker(desk.settings()) as parent:
        await turn(parent)
        commit = desk.commit()
        says(parent, "push", "100.2")
        told = await parent.post_with("`main` is protected")
        (own,) = desk.branches - {"main"}
        assert own.startswith("codebutler/fix-login-bug-")
        assert own in text_of(told)
        assert (desk.at(own), desk.at("main")) == (commit, before)


async def test_a_threads_own_branch_is_pushed(desk: Desk) -> None:
    async with worker(desk.settings(isolation="worktree")) as parent:
        await turn(parent)
        (tree,) = [each for each in (desk.repo / ".codebutler/worktrees").iterdir() if each.is_dir()]
        (tree / "app.py").write_text("print('mine')\n")
        git(tree, "commit", "-qam", "Mine")
        says(parent, "push", "100.2")
        await parent.post_with("Pushed to `codebutler/fix-login-bug-")
        (own,) = desk.branches - {"main"}
        assert desk.at(own) == git(tree, "rev-parse", "HEAD")
        says(parent, "push", "100.9", thread=None)
        await parent.post_with("Each thread has its own branch here")


async def test_what_is_not_committed_is_told(desk: Desk) -> None:
    (desk.repo / "new.py").write_text("1\n")
    async with worker(desk.settings()) as parent:
        says(parent, "push", "100.2")
        await parent.post_with("there is nothing to push")
        assert desk.branches == {"main"}
        git(desk.repo, "checkout", "-qb", "topic")
        desk.commit()
        says(parent, "push", "100.3")
        assert "1 file is not committed" in text_of(await parent.post_with("Pushed to `topic`"))


async def test_a_restart_neither_loses_nor_repeats_a_push(desk: Desk) -> None:
    git(desk.repo, "checkout", "-qb", "topic")
    first = desk.commit()
    log = desk.remote / "pushed"
    hook = desk.remote / "hooks/post-receive"
    hook.write_text(f"#!/bin/sh\ncat >> {log}\n")
    hook.chmod(0o755)
    async with worker(desk.settings(), mute=True) as parent:
        says(parent, "push", "100.2")
        await parent.until(lambda: desk.at("topic") == first)
    async with worker(desk.settings()) as parent:
        await parent.until(lambda: any("`topic` on" in text_of(post) for post in parent.posts), flow=True)
        await parent.until(parent.is_idle, flow=True)
    assert log.read_text().count("refs/heads/topic") == 1


async def test_force_replaces_what_was_pushed_from_here_only(desk: Desk) -> None:
    git(desk.repo, "checkout", "-qb", "topic")
    desk.commit(subject="First")
    async with worker(desk.settings()) as parent:
        says(parent, "push", "100.2")
        await parent.post_with("Pushed to `topic`")
        git(desk.repo, "commit", "-q", "--amend", "-m", "Better")
        says(parent, "push", "100.3")
        await parent.post_with("has commits on the remote that are not in this repository")
        says(parent, "push", "100.4", "force")
        await parent.until(lambda: desk.at("topic") == git(desk.repo, "rev-parse", "HEAD"), flow=True)
        # Somebody else goes on with it.
        other = desk.repo.parent / "other"
        git(desk.repo.parent, "clone", "-q", "-b", "topic", str(desk.remote), str(other))
        (other / "theirs.py").write_text("1\n")
        git(other, "add", ".")
        git(other, "commit", "-qm", "Theirs")
        git(other, "push", "-q")
        theirs = desk.at("topic")
        git(desk.repo, "commit", "-q", "--amend", "-m", "Best")
        says(parent, "push", "100.5", "force")
        await parent.post_with("nothing was overwritten")
        assert desk.at("topic") == theirs


async def test_the_owners_own_configuration_of_git_counts(desk: Desk, home: Path) -> None:
    with (home / ".gitconfig").open("a") as file:
        file.write(f'[url "{desk.remote.parent}/"]\n\tinsteadOf = {desk.remote.parent}/old/\n')
    git(desk.repo, "remote", "set-url", "origin", f"{desk.remote.parent}/old/shop.git")
    git(desk.repo, "checkout", "-qb", "topic")
    commit = desk.commit()
    async with worker(desk.settings()) as parent:
        says(parent, "push", "100.2")
        await parent.post_with("Pushed to `topic`")
        assert desk.at("topic") == commit


async def test_a_remote_that_refuses_is_quoted_without_secrets(desk: Desk) -> None:
    hook = desk.remote / "hooks/pre-receive"
    hook.write_text("#!/bin/sh\necho 'no key ghp_0123456789abcdefghij here' >&2\nexit 1\n")
    hook.chmod(0o755)
    git(desk.repo, "checkout", "-qb", "topic")
    desk.commit()
    async with worker(desk.settings()) as parent:
        says(parent, "push", "100.2")
        told = text_of(await parent.post_with("refused it"))
        assert "no key" in told
        assert "ghp_0123" not in told


async def test_the_owners_own_ssh_reaches_the_remote(desk: Desk, home: Path) -> None:
    ssh = home / "ssh"
    ssh.write_text('#!/bin/sh\nfor last; do :; done\nexec sh -c "$last"\n')
    ssh.chmod(0o755)
    with (home / ".gitconfig").open("a") as file:
        file.write(f"[core]\n\tsshCommand = {ssh}\n[ssh]\n\tvariant = ssh\n")
    git(desk.repo, "remote", "set-url", "origin", f"git@example.org:{desk.remote}")
    git(desk.repo, "config", "core.sshCommand", "false")
    git(desk.repo, "checkout", "-qb", "topic")
    commit = desk.commit()
    async with worker(desk.settings()) as parent:
        says(parent, "push", "100.2")
        assert "example.org/" in text_of(await parent.post_with("Pushed to `topic`"))
        assert desk.at("topic") == commit


async def test_a_first_branch_goes_to_an_empty_remote(desk: Desk) -> None:
    git(desk.remote, "update-ref", "-d", "refs/heads/main")
    git(desk.repo, "checkout", "-qb", "topic")
    commit = desk.commit()
    async with worker(desk.settings()) as parent:
        says(parent, "push", "100.2")
        await parent.post_with("Pushed to `topic`")
        assert desk.at("topic") == commit


async def test_what_is_pushed_while_the_agent_works_is_not_made_again(desk: Desk) -> None:
    section = GitSection(local_remotes=(str(desk.remote.parent),), trailers=("agent",))
    git(desk.repo, "config", "user.name", "Ana")
    git(desk.repo, "config", "user.email", "ana@example.org")
    git(desk.repo, "checkout", "-qb", "topic")
    async with worker(desk.settings(git_section=section)) as parent:
        parent.says("fix the login bug", "100.1")
        run = await parent.run(0)
        pushed = desk.commit()
        says(parent, "push", "100.2")
        await parent.post_with("Pushed")
        desk.commit("more.py", subject="More")
        run.finish()
        await parent.until(lambda: "Agent: claude" in git(desk.repo, "log", "-1", "--format=%b"), flow=True)
        says(parent, "push", "100.3")
        await parent.until(lambda: desk.at("topic") != pushed, flow=True)
    assert git(desk.repo, "rev-parse", "HEAD~1") == pushed
    assert desk.at("topic") == git(desk.repo, "rev-parse", "HEAD")
