"""The card after a run that changed something, its checks and its buttons, in a whole worker with real git."""

from __future__ import annotations

import subprocess
from pathlib import Path

import msgspec
import pytest

from codebutler.config.schema import Check, ChecksSection, GitSection, RepoSettings
from codebutler.config.section import BudgetSection, DailyLimit
from codebutler.domain.message import Button
from codebutler.domain.model import Post, Upload
from codebutler.protocol.conversations import AskDiff, RunChanges
from codebutler.protocol.messages import Audit
from codebutler.text.markup import PAGES
from codebutler_worker.agents.backend import Finished, Started
from tests.events import clicked
from tests.integration.worker.test_worker_undo import command, repo
from tests.shown import text_of
from tests.worker_kit import CHANNEL, USER, Parent, Run, settings, worker

__all__ = ["repo"]
CHECK = ChecksSection(command="make test")
TAIL = "\n".join(f"line {number}" for number in range(40)) + "\n1 failed"


def git(repo: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(repo), *arguments], capture_output=True, check=True)
    return done.stdout.decode().strip()


def told(repo: Path, checks: ChecksSection | None = None, **more: object) -> RepoSettings:
    return settings(repo, changes="card", checks=checks, **more)  # type: ignore[arg-type]  # of the agent


async def changed(
    parent: Parent, number: int, path: Path, text: str, ref: str, thread: str = "100.1"
) -> None:
    """A run that writes ``text`` into ``path``, and is answered."""
    parent.says(f"write {text.strip()}", ref, None if ref == thread else thread)
    run = await parent.run(number)
    path.write_text(text)
    run.finish(f"Wrote {text.strip()}.")
    await parent.until(lambda: parent.reactions(ref) == ["white_check_mark"], flow=True)


def cards(parent: Parent) -> list[Post]:
    return [post for post in parent.posts if text_of(post).startswith("📝")]


async def card(parent: Parent, number: int = 0) -> Post:
    await parent.until(lambda: len(cards(parent)) > number, flow=True)
    return cards(parent)[number]


def button(post: Post, label: str) -> Button:
    return next(each for each in post.message.buttons if each.label == label)


def press(parent: Parent, what: Button, moment: str, user: str = USER) -> None:
    click = clicked(
        channel=CHANNEL, user=user, message="9000.000002", action_id=what.action, value=what.value,
        press=moment, thread="100.1",
    )  # fmt: skip
    parent.deliver(click)


async def edit(parent: Parent, text: str) -> str:
    """The newest edit that says so."""
    return await parent.until(
        lambda: next((said for said in reversed([*map(text_of, parent.updates)]) if text in said), ""),
        flow=True,
    )


def fails(run: Run) -> None:
    run.does(Started("s"), Finished(False, TAIL, "failed", exit_code=2))


async def test_a_run_that_changed_nothing_has_no_card(repo: Path) -> None:
    async with worker(told(repo, CHECK)) as parent:
        parent.says("explain", "100.1")
        (await parent.run(0)).finish("So it is.")
        await parent.until(lambda: parent.reactions("100.1") == ["white_check_mark"])
        await parent.until(parent.is_idle, flow=True)
        assert cards(parent) == []
        assert len(parent.backend.runs) == 1


async def test_the_card_follows_the_answer_and_its_checks_edit_it(repo: Path) -> None:
    async with worker(told(repo, CHECK)) as parent:
        await changed(parent, 0, repo / "app.py", "print('changed')\n", "100.1")
        shown = await card(parent)
        texts = [text_of(post) for post in parent.posts]
        assert [text.partition(" ")[0] for text in texts] == ["Wrote", "📝"]
        turn = button(shown, "Diff").value
        head = f"📝 *1 file changed* · +1 −1 · <{PAGES}changes/sample/{turn}|Review>"
        assert texts[1] == f"{head}\n`app.py` +1 −1\n⏳ Running `make test` …"
        # Nothing can be pushed from here: there is no remote.
        assert [each.label for each in shown.message.buttons] == ["Diff", "Undo", "Commit"]
        check = await parent.run(1)
        assert check.request.prompt == "make test"
        check.does(Started("s"), Finished(True, "ok", "done", exit_code=0))
        assert (await edit(parent, "passed")).splitlines()[2:] == ["✅ `make test` passed in 0s"]
        await parent.until(parent.is_idle, flow=True)
        # One post and one edit.
        assert (len(cards(parent)), len(parent.updates)) == (1, 1)
        assert [each.decision for each in parent.said(Audit) if each.kind == "checks"] == ["started", "done"]


async def test_failed_checks_are_mended_once_then_a_person_is_asked(repo: Path) -> None:
    async with worker(told(repo, CHECK)) as parent:
        await changed(parent, 0, repo / "app.py", "print('broken')\n", "100.1")
        fails(await parent.run(1))
        said = await edit(parent, "failed (exit code 2)")
        assert "1 failed" in said
        assert "line 3\n" not in said
        assert "The agent tries to fix it, once" in said
        repair = await parent.run(2)
        assert repair.request.prompt.startswith("Make the repository's checks pass again.")
        assert "make test: exit code 2" in repair.request.prompt
        assert "line 38" in repair.request.prompt
        assert repair.request.session_id == "session-1"
        (repo / "app.py").write_text("print('still broken')\n")
        repair.finish("Mended.")
        fails(await parent.run(3))
        asked = await parent.post_with("still fail after one repair")
        assert (asked.mention, [each.label for each in asked.message.buttons]) == (
            USER,
            ["Try again", "Undo"],
        )
        await parent.until(parent.is_idle, flow=True)
        assert len(parent.backend.runs) == 4
        press(parent, button(asked, "Try again"), "101.0")
        press(parent, button(asked, "Try again"), "101.1")
        again = await parent.run(4)
        assert "- make test" in again.request.prompt
        again.finish("Nothing to be done.")
        await parent.until(parent.is_idle, flow=True)
        assert len(parent.backend.runs) == 5


@pytest.mark.parametrize("why", ["off", "budget"])
async def test_nothing_is_mended_where_that_is_not_wanted(repo: Path, why: str) -> None:
    found = told(repo, ChecksSection(command="make test", repair=why != "off"))
    if why == "budget":
        budget = BudgetSection(repo=DailyLimit(turns_per_day=1))
        found = msgspec.structs.replace(found, config=msgspec.structs.replace(found.config, budget=budget))
    async with worker(found) as parent:
        await changed(parent, 0, repo / "app.py", "print('broken')\n", "100.1")
        fails(await parent.run(1))
        assert "🔧" not in await edit(parent, "failed")
        await parent.until(parent.is_idle, flow=True)
        assert len(parent.backend.runs) == 2


async def test_checks_wait_for_a_run_that_begins_and_then_begin_anew(repo: Path) -> None:
    async with worker(told(repo, CHECK)) as parent:
        await changed(parent, 0, repo / "app.py", "print('changed')\n", "100.1")
        check = await parent.run(1)
        parent.says("explain", "200.1")
        other = await parent.run(2)
        await edit(parent, "⏳ The checks wait until")
        await parent.until(check.closed.is_set)
        other.finish("So it is.")
        (await parent.run(3)).does(Started("s"), Finished(True, "ok", "done", exit_code=0))
        assert "wait" not in await edit(parent, "✅ `make test` passed")
        await parent.until(parent.is_idle, flow=True)
        assert len(parent.backend.runs) == 4


async def test_the_last_state_of_a_busy_checkout_is_checked_once(repo: Path) -> None:
    async with worker(told(repo, CHECK)) as parent:
        await changed(parent, 0, repo / "app.py", "print('changed')\n", "100.1")
        first = await card(parent)
        await parent.run(1)
        parent.says("write more", "200.1")
        other = await parent.run(2)
        press(parent, Button("Run checks", "codebutler.checks", first.message.buttons[0].value), "101.0")
        (repo / "more.py").write_text("2\n")
        other.finish("Wrote more.")
        await edit(parent, "a later run changed files here too")
        (await parent.run(3)).does(Started("s"), Finished(True, "ok", "done", exit_code=0))
        assert "`more.py`" in await edit(parent, "✅ `make test` passed")
        await parent.until(parent.is_idle, flow=True)
        assert len(parent.backend.runs) == 4
        press(parent, Button("Run checks", "codebutler.checks", first.message.buttons[0].value), "101.1")
        await edit(parent, "⏳ Running")
        (await parent.run(4)).does(Started("s"), Finished(True, "ok", "done", exit_code=0))
        await parent.until(lambda: text_of(parent.updates[-1]).count("`app.py`") == 1, flow=True)


async def test_checks_asked_for_while_a_run_works_begin_when_it_has_ended(repo: Path) -> None:
    (repo / "Makefile").write_text("test:\n\ttrue\n")
    async with worker(told(repo)) as parent:
        await changed(parent, 0, repo / "app.py", "print('changed')\n", "100.1")
        shown = await card(parent)
        parent.says("explain", "200.1")
        other = await parent.run(1)
        press(parent, button(shown, "Run checks"), "101.0")
        await edit(parent, "⏳ The checks wait until")
        other.finish("So it is.")
        (await parent.run(2)).does(Started("s"), Finished(True, "ok", "done", exit_code=0))
        await edit(parent, "✅ `make test` passed")


async def test_what_is_undone_is_not_checked(repo: Path) -> None:
    async with worker(told(repo, CHECK)) as parent:
        await changed(parent, 0, repo / "app.py", "print('changed')\n", "100.1")
        check = await parent.run(1)
        press(parent, button(await card(parent), "Undo"), "101.0")
        ask = await parent.post_with("↩ Undo")
        press(parent, ask.message.buttons[0], "101.1")
        await edit(parent, "changes were undone here")
        await parent.until(check.closed.is_set)
        await parent.until(parent.is_idle, flow=True)


async def test_stop_ends_the_checks_and_says_so(repo: Path) -> None:
    async with worker(told(repo, CHECK)) as parent:
        await changed(parent, 0, repo / "app.py", "print('changed')\n", "100.1")
        check = await parent.run(1)
        command(parent, "stop", "100.2", "100.1")
        await parent.post_with("Stopped the checks")
        await edit(parent, "⏹️ The checks were stopped.")
        await parent.until(check.closed.is_set)


async def test_a_check_that_takes_too_long_is_ended_and_says_so(repo: Path) -> None:
    slow = Check(name="slow ones", command="sleep 999", time_limit=5)
    async with worker(told(repo, ChecksSection(commands=(slow,), repair=False))) as parent:
        await changed(parent, 0, repo / "app.py", "print('changed')\n", "100.1")
        check = await parent.run(1)
        assert "`slow ones` was stopped at its time limit" in await edit(parent, "❌")
        await parent.until(check.closed.is_set)


async def test_what_nobody_has_named_waits_for_a_press(repo: Path) -> None:
    (repo / "Makefile").write_text("test:\n\ttrue\n")
    async with worker(told(repo)) as parent:
        await changed(parent, 0, repo / "app.py", "print('changed')\n", "100.1")
        shown = await card(parent)
        await parent.until(parent.is_idle, flow=True)
        assert len(parent.backend.runs) == 1
        press(parent, button(shown, "Run checks"), "101.0")
        (await parent.run(1)).does(Started("s"), Finished(True, "ok", "done", exit_code=0))
        await edit(parent, "✅ `make test` passed")


async def test_a_worker_that_died_while_checks_ran_tells_it_and_does_not_run_them_again(repo: Path) -> None:
    async with worker(told(repo, CHECK)) as parent:
        await changed(parent, 0, repo / "app.py", "print('changed')\n", "100.1")
        await parent.run(1)
        await parent.until(lambda: any(text_of(each).startswith("📝") for each in parent.posts))
    async with worker(told(repo, CHECK)) as parent:
        said = await edit(parent, "The machine stopped while the checks ran")
        assert "`app.py` +1 −1" in said
        await parent.until(parent.is_idle, flow=True)
        assert parent.backend.runs == []


async def test_diff_undo_and_commit_are_the_commands_about_that_run(repo: Path) -> None:
    git(repo, "config", "user.name", "Ana")
    git(repo, "config", "user.email", "ana@example.com")
    async with worker(told(repo)) as parent:
        await changed(parent, 0, repo / "app.py", "print('changed')\n", "100.1")
        first = await card(parent)
        await changed(parent, 1, repo / "new.py", "1\n", "200.1", "200.1")
        await card(parent, 1)
        await parent.until(parent.is_idle, flow=True)
        press(parent, button(first, "Diff"), "101.0")
        difference = await parent.post_with("+print")
        assert f"{PAGES}changes/sample/{button(first, 'Undo').value}|Review>" in text_of(difference)
        assert ("new.py" in text_of(difference), difference.thread) == (False, "100.1")
        press(parent, button(first, "Undo"), "101.1")
        assert "app.py" in text_of(await parent.post_with("↩ Undo “write print"))
        press(parent, button(first, "Commit"), "101.2")
        done = text_of(await parent.post_with("✅ Committed"))
        assert "on `main`: write print('changed')" in done
        assert git(repo, "log", "-1", "--format=%an %s") == "Ana write print('changed')"
        assert git(repo, "show", "--format=", "--name-only") == "app.py"
        press(parent, button(first, "Commit"), "101.3")
        await parent.post_with("That is already committed")
        command(parent, "commit", "200.2", "200.1", "Add one")
        await parent.until(lambda: git(repo, "log", "-1", "--format=%s") == "Add one", flow=True)


def trailing(repo: Path) -> RepoSettings:
    git(repo, "config", "user.name", "Ana")
    git(repo, "config", "user.email", "ana@example.com")
    plain = told(repo)
    section = GitSection(trailers=("asked", "agent", "thread", "asked"))
    return msgspec.structs.replace(plain, config=msgspec.structs.replace(plain.config, git=section))


TRAILERS = [f"Asked-by: {USER}", "Agent: claude", "Thread: https://slack.com/archives/C0REPO/p1001"]


async def test_a_commit_says_who_asked_for_it_and_where(repo: Path) -> None:
    async with worker(trailing(repo)) as parent:
        await changed(parent, 0, repo / "app.py", "print('changed')\n", "100.1")
        press(parent, button(await card(parent), "Commit"), "101.0")
        await parent.post_with("✅ Committed")
    assert git(repo, "log", "-1", "--format=%(trailers:only,unfold)").splitlines() == TRAILERS


async def test_so_does_a_commit_that_the_agent_made(repo: Path) -> None:
    async with worker(trailing(repo)) as parent:
        parent.says("fix it", "100.1")
        run = await parent.run(0)
        (repo / "app.py").write_text("print('changed')\n")
        git(repo, "commit", "-qam", "Fix it")
        made = git(repo, "rev-parse", "--short", "HEAD")
        run.finish(f"Committed {made}.")
        shown = text_of(await card(parent))
    assert made not in shown
    assert f"`{git(repo, 'rev-parse', '--short', 'HEAD')}` `Fix it`" in shown
    assert git(repo, "log", "-1", "--format=%(trailers:only,unfold)").splitlines() == TRAILERS
    assert git(repo, "log", "-1", "--format=%s", "HEAD~1") == "begin"


async def test_who_may_not_commit_is_told(repo: Path) -> None:
    async with worker(told(repo)) as parent:
        await changed(parent, 0, repo / "app.py", "print('changed')\n", "100.1")
        press(parent, button(await card(parent), "Commit"), "101.0", user="U0STRANGER")
        await parent.post_with("not authorized")
        assert git(repo, "log", "--format=%s") == "begin"


async def test_without_an_identity_a_commit_says_what_to_do(repo: Path) -> None:
    git(repo, "config", "user.useConfigOnly", "true")
    async with worker(told(repo)) as parent:
        await changed(parent, 0, repo / "app.py", "print('changed')\n", "100.1")
        press(parent, button(await card(parent), "Commit"), "101.0")
        await parent.post_with("git config --global user.name")


async def test_commit_right_after_the_answer_waits_for_what_the_run_changed(repo: Path) -> None:
    git(repo, "config", "user.name", "Ana")
    git(repo, "config", "user.email", "ana@example.com")
    async with worker(told(repo)) as parent:
        command(parent, "commit", "50.1")
        await parent.post_with("nothing to commit here")
        parent.says("write it", "100.1")
        run = await parent.run(0)
        run.leave.clear()
        (repo / "app.py").write_text("print('changed')\n")
        run.finish("Wrote it.")
        await parent.until(lambda: parent.reactions("100.1") == ["white_check_mark"])
        # Its program has not ended.
        await parent.stored(command(parent, "commit", "100.2", "100.1"))
        run.leave.set()
        await parent.until(lambda: git(repo, "log", "-1", "--format=%s") == "write it", flow=True)


async def test_another_run_in_the_same_checkout_is_named(repo: Path) -> None:
    async with worker(told(repo, CHECK, parallel_turns=2)) as parent:
        parent.says("long work", "200.1")
        other = await parent.run(0)
        await changed(parent, 1, repo / "app.py", "print('changed')\n", "100.1")
        said = text_of(await card(parent))
        assert "Another run worked in this checkout at the same time" in said
        assert "The checks wait" in said
        other.finish("Done.")
        # Now the tree is at rest: nobody has to ask for them.
        (await parent.run(2)).does(Started("s"), Finished(True, "ok", "done", exit_code=0))
        await edit(parent, "✅ `make test` passed")


async def test_a_line_instead_of_a_card(repo: Path) -> None:
    config = told(repo, CHECK).config
    output = msgspec.structs.replace(config.output, changes="line")
    found = msgspec.structs.replace(told(repo), config=msgspec.structs.replace(config, output=output))
    async with worker(found) as parent:
        await changed(parent, 0, repo / "app.py", "print('changed')\n", "100.1")
        shown = await card(parent)
        assert (shown.message.buttons, "`app.py`" in text_of(shown)) == ((), False)
        (await parent.run(1)).does(Started("s"), Finished(True, "ok", "done", exit_code=0))
        await edit(parent, "✅ `make test` passed")


async def test_a_long_difference_is_read_a_file_at_a_time(repo: Path) -> None:
    async with worker(told(repo)) as parent:
        for number in range(10):
            (repo / f"file{number}.txt").write_text("line\n" * (5 if number else 100))
        command(parent, "diff", "100.1")
        page = await parent.post_with("10 files changed")
        assert [each.label for each in page.message.buttons][-3:] == [
            "file7.txt",
            "More files",
            "All in one file",
        ]
        press(parent, button(page, "file1.txt"), "101.0")
        short = await parent.post_with("+line")
        assert text_of(short).startswith("`file1.txt` +5 −0")
        press(parent, button(page, "file0.txt"), "101.1")
        uploads = await parent.until(lambda: [each for each in parent.operations if isinstance(each, Upload)])
        assert (uploads[0].filename, uploads[0].content.count(b"+line")) == ("file0.txt.diff", 100)
        press(parent, button(page, "More files"), "101.2")
        last = await parent.post_with("`file9.txt` +5 −0")
        assert "file0.txt" not in text_of(last)
        press(parent, button(last, "All in one file"), "101.3")
        await parent.until(
            lambda: any(
                isinstance(each, Upload) and each.filename == "changes.diff" for each in parent.operations
            )
        )


async def asked(parent: Parent, turn: str, number: int = 0) -> RunChanges:
    parent.channel.send(AskDiff(request_id=f"r{number}", turn=turn))
    return (await parent.until(lambda: parent.said(RunChanges)[number:], flow=True))[0]


async def test_the_parent_is_told_what_a_run_changed(repo: Path) -> None:
    async with worker(told(repo)) as parent:
        parent.says("write it", "100.1")
        run = await parent.run(0)
        (repo / "app.py").write_text("print('changed')\ntoken = 'xoxb-123456789012-abcdefghijklmnop'\n")
        # Nothing ends what begins here like a key.
        (repo / "key.pem").write_text("-----BEGIN PRIVATE KEY-----\n")
        (repo / "logo.png").write_bytes(b"\x89PNG\0\0")
        (repo / "long.txt").write_text("line\n" * 3000)
        (repo / "od\td").write_text("1\n")
        run.finish("Wrote it.")
        turn = button(await card(parent), "Diff").value
        found = await asked(parent, turn)
        assert (found.problem, found.thread, found.task, found.more) == ("", "100.1", "write it", 0)
        assert [(each.path, each.added, each.is_shown) for each in found.files] == [
            ("app.py", 2, True),
            ("key.pem", 1, True),
            ("logo.png", None, False),
            ("long.txt", 3000, False),
            ("od\N{REPLACEMENT CHARACTER}d", 1, True),
        ]
        assert found.body.count(b"diff --git") == 3
        assert b"+print('changed')" in found.body
        assert b"xoxb" not in found.body
        assert (await asked(parent, "no-such-run", 1)).problem == "CodeButler has no record of that run."
