"""``!merge``, ``!discard`` and ``!worktrees``, and what is told and removed without a word, with real git."""

from __future__ import annotations

import subprocess
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from codebutler.config.schema import AuthorizationRule, AuthorizationSection, RepoSettings
from codebutler.domain.model import Command, Post
from tests.events import clicked, posted
from tests.programs import require
from tests.shown import text_of
from tests.worker_kit import CHANNEL, USER, Parent, settings, worker

IDENTITY = ("-c", "user.name=a", "-c", "user.email=a@b")


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    require("git")
    (tmp_path / "app.py").write_text("print('hello')\n")
    (tmp_path / "other.py").write_text("print('hello')\n")
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-qm", "begin"]):
        git(tmp_path, *words)
    return tmp_path


def git(path: Path, *words: str) -> str:
    ran = subprocess.run(["git", *IDENTITY, *words], cwd=path, check=True, capture_output=True, text=True)
    return ran.stdout


def isolated(repo: Path) -> RepoSettings:
    return settings(repo, isolation="worktree", worktree_days=1)


def does(tree: Path, script: str) -> None:
    subprocess.run(["sh", "-ec", script], cwd=tree, check=True)


def command(
    parent: Parent, name: str, ref: str, thread: str | None = None, argument: str = "", user: str = USER
) -> None:
    event = posted(channel=CHANNEL, ref=ref, user=user, text=f"!{name} {argument}", thread=thread)
    parent.deliver(event, Command(name=name, argument=argument))


def press(parent: Parent, card: Post, user: str = USER, moment: str = "1") -> None:
    """The card's button."""
    [button] = card.message.buttons
    parent.deliver(
        clicked(
            channel=CHANNEL,
            user=user,
            action_id=button.action,
            value=button.value,
            message="9000.9",
            press=moment,
            thread=card.thread,
        )
    )


async def works(parent: Parent, ref: str, task: str, script: str, thread: str | None = None) -> Path:
    """A run in which the agent does that."""
    number = len(parent.backend.runs)
    parent.says(task, ref, thread)
    run = await parent.run(number)
    does(run.request.workdir, script)
    run.finish()
    await parent.until(lambda: parent.reactions(ref) == ["white_check_mark"], flow=True)
    await parent.until(parent.is_idle, flow=True)
    return run.request.workdir


COMMIT = "git -c user.name=a -c user.email=a@b commit -qam done"


async def test_a_thread_is_merged_by_a_word(repo: Path) -> None:
    async with worker(isolated(repo)) as parent:
        await works(parent, "100.1", "Fix the login", f"echo fixed > app.py; {COMMIT}")
        command(parent, "merge", "100.2", "100.1")
        told = await parent.post_with("✅ Merged `codebutler/fix-login-")
        assert told.thread == "100.1"
        assert "into `main`: 1 file changed" in text_of(told)
        assert (repo / "app.py").read_text() == "fixed\n"
        command(parent, "worktrees", "200.1")
        listed = text_of(await parent.post_with("1 worktree, compared with `main`:"))
        assert "✅ `codebutler/fix-login-" in listed
        assert "Fix the login" in listed
        assert "merged" in listed


async def test_what_is_not_committed_needs_a_message(repo: Path) -> None:
    async with worker(isolated(repo)) as parent:
        await works(parent, "100.1", "Fix the login", "echo fixed > app.py")
        command(parent, "merge", "100.2", "100.1")
        await parent.post_with("not committed yet:")
        assert (repo / "app.py").read_text() == "print('hello')\n"
        command(parent, "merge", "100.3", "100.1", "Fix the login")
        await parent.post_with("✅ Merged")
        assert git(repo, "log", "-1", "--format=%s") == "Fix the login\n"


async def test_conflicts_become_the_agents_next_task(repo: Path) -> None:
    async with worker(isolated(repo)) as parent:
        tree = await works(parent, "100.1", "Fix the login", f"echo theirs > app.py; {COMMIT}")
        (repo / "app.py").write_text("ours\n")
        git(repo, "commit", "-qam", "in main")
        command(parent, "merge", "100.2", "100.1")
        told = await parent.post_with("conflicts with `main` in `app.py`. Nothing was changed.")
        assert told.thread == "100.1"
        assert (tree / "app.py").read_text() == "theirs\n"
        run = await parent.run(1)
        assert run.request.workdir == tree
        assert run.request.session_id == "session-1"
        assert "- app.py" in run.request.prompt
        git(tree, "merge", "-q", "-X", "ours", "main")
        run.finish()
        await parent.until(parent.is_idle, flow=True)
        command(parent, "merge", "100.3", "100.1")
        await parent.post_with("✅ Merged")
        assert (repo / "app.py").read_text() == "theirs\n"


async def test_work_that_would_be_lost_is_asked_about_once(repo: Path) -> None:
    async with worker(isolated(repo)) as parent:
        tree = await works(parent, "100.1", "Fix the login", "echo fixed > app.py; echo new > new.py")
        command(parent, "discard", "100.2", "100.1")
        card = await parent.post_with("🗑️ Discard the worktree")
        assert "2 files not committed (`app.py`, `new.py`)" in text_of(card)
        assert tree.exists()
        press(parent, card)
        press(parent, card, moment="2")
        told = text_of(await parent.post_with("🗑️ Removed the worktree"))
        assert not tree.exists()
        ref = told.partition("NAME ")[2].partition("`")[0]
        assert git(repo, "show", f"{ref}:new.py") == "new\n"
        await parent.until(parent.is_idle, flow=True)
        assert len([post for post in parent.posts if "🗑️ Removed" in text_of(post)]) == 1


async def test_the_button_of_an_old_card_does_not_take_newer_work(repo: Path) -> None:
    async with worker(isolated(repo)) as parent:
        tree = await works(parent, "100.1", "Fix the login", "echo fixed > app.py")
        command(parent, "discard", "100.2", "100.1")
        card = await parent.post_with("🗑️ Discard the worktree")
        await works(parent, "100.3", "and more", "echo more > more.py", "100.1")
        press(parent, card)
        await parent.post_with("the worktree has changed since you were asked")
        assert (tree / "more.py").exists()


async def test_a_button_pressed_before_a_restart_works_after_it(repo: Path) -> None:
    told = isolated(repo)
    async with worker(told) as parent:
        tree = await works(parent, "100.1", "Fix the login", "echo fixed > app.py")
        command(parent, "discard", "100.2", "100.1")
        card = await parent.post_with("🗑️ Discard the worktree")
        await parent.until(parent.is_idle, flow=True)
    async with worker(told) as parent:
        press(parent, card)
        await parent.post_with("🗑️ Removed the worktree")
        assert not tree.exists()


async def test_who_may_not_use_its_agent_merges_and_discards_nothing(repo: Path) -> None:
    rules = (AuthorizationRule(channels=(CHANNEL,), users=(USER,), allowed_prefixes=("claude",)),)
    told = isolated(repo)
    config = msgspec.structs.replace(told.config, authorization=AuthorizationSection(rules=rules))
    async with worker(msgspec.structs.replace(told, config=config)) as parent:
        tree = await works(parent, "100.1", "Fix the login", "echo fixed > app.py")
        command(parent, "discard", "100.2", "100.1")
        card = await parent.post_with("🗑️ Discard the worktree")
        press(parent, card, "U0EVE")
        await parent.post_with("You are not authorized")
        assert tree.exists()


async def test_nothing_is_done_while_an_agent_works(repo: Path) -> None:
    async with worker(isolated(repo)) as parent:
        await works(parent, "100.1", "Fix the login", f"echo fixed > app.py; {COMMIT}")
        parent.says("and more", "100.2", "100.1")
        run = await parent.run(1)
        command(parent, "merge", "100.3", "100.1")
        await parent.post_with("a run is under way in this thread")
        assert (repo / "app.py").read_text() == "print('hello')\n"
        run.finish()


@pytest.mark.parametrize("name", ["merge", "discard", "worktrees"])
async def test_where_threads_share_a_tree_it_says_what_to_do(repo: Path, name: str) -> None:
    async with worker(settings(repo)) as parent:
        command(parent, name, "100.2", "100.1")
        assert "Set `agent.isolation` to `worktree`" in text_of(await parent.post_with("share"))


async def test_outside_threads_and_without_a_worktree_it_says_so(repo: Path) -> None:
    async with worker(isolated(repo)) as parent:
        command(parent, "merge", "100.1")
        await parent.post_with("Say it in the thread it is about")
        command(parent, "merge", "200.2", "200.1")
        command(parent, "discard", "300.2", "300.1")
        await parent.until(
            lambda: sum("this thread has no worktree" in text_of(post) for post in parent.posts) == 2,
            flow=True,
        )
        command(parent, "worktrees", "400.1")
        await parent.post_with("No thread has a worktree")


async def test_two_threads_that_change_the_same_file_are_told(repo: Path) -> None:
    async with worker(isolated(repo)) as parent:
        await works(parent, "100.1", "Fix the login", "echo one > app.py; echo one > mine.py")
        await works(parent, "200.1", "Rename it", "echo two > app.py; echo two > other.py")
        told = await parent.post_with("Also changed in")
        assert told.thread == "200.1"
        assert "Fix the login" in text_of(told)
        assert "`app.py`" in text_of(told)
        assert "other.py" not in text_of(told)
        await works(parent, "200.2", "and again", "echo three > app.py", "200.1")
        assert sum("Also changed in" in text_of(post) for post in parent.posts) == 1


def holds(path: Path, text: str) -> bool:
    """Whether there is such a file by now."""
    return path.is_file() and path.read_text() == text


async def test_what_is_merged_is_removed_after_some_days(repo: Path) -> None:
    async with worker(isolated(repo)) as parent:
        merged = await works(parent, "100.1", "Fix the login", f"echo fixed > app.py; {COMMIT}")
        unsaved = await works(parent, "200.1", "Rename it", "echo new > new.py")
        command(parent, "merge", "100.2", "100.1")
        await parent.post_with("✅ Merged")
        await parent.clock.advance(timedelta(hours=12).total_seconds())
        recent = await works(parent, "300.1", "Explain it", f"echo said > other.py; {COMMIT}")
        command(parent, "merge", "300.2", "300.1")
        await parent.until(lambda: holds(repo / "other.py", "said\n"), flow=True)
        await parent.clock.advance(timedelta(hours=14).total_seconds())
        await parent.until(lambda: not merged.exists(), flow=True)
        await parent.until(lambda: parent.logs("INF"), flow=True)
        assert any(
            "removed the merged worktree c0repo-100-1; kept as refs/" in line for line in parent.logs("INF")
        )
        assert unsaved.exists()
        assert recent.exists()
        assert "codebutler/fix-login" not in git(repo, "branch", "--list")
