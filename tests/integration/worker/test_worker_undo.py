"""Seeing and undoing what a turn changed, and the repository's checks, in a whole worker with real git."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from codebutler.domain.model import Command, Post, Prompt, Upload
from codebutler_worker.agents.backend import Finished, Started
from tests.events import clicked, posted, slashed
from tests.programs import require
from tests.shown import blocks_of, text_of
from tests.worker_kit import CHANNEL, USER, Parent, settings, worker

IDENTITY = ("-c", "user.name=a", "-c", "user.email=a@b")


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    require("git")
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-qm", "begin"]):
        (tmp_path / "app.py").write_text("print('hello')\n")
        subprocess.run(["git", *IDENTITY, *words], cwd=tmp_path, env={**os.environ}, check=True)
    return tmp_path


def command(parent: Parent, name: str, ts: str, thread_ts: str | None = None, argument: str = "") -> int:
    event = posted(channel=CHANNEL, ref=ts, user=USER, text=f"!{name} {argument}".strip(), thread=thread_ts)
    return parent.deliver(event, Command(name=name, argument=argument))


def press(parent: Parent, card: Post, moment: str, thread_ts: str = "100.1") -> None:
    button = blocks_of(card)[1]["elements"][0]
    assert button["action_id"] == "codebutler.undo"
    click = clicked(
        channel=CHANNEL, user=USER, message="9000.9", action_id=button["action_id"], value=button["value"],
        press=moment, thread=thread_ts,
    )  # fmt: skip
    parent.deliver(click)


async def turn(parent: Parent, number: int, path: Path, text: str, ts: str) -> None:
    """A turn of the thread 100.1 that writes ``text`` into ``path``."""
    parent.says(f"write {text.strip()}", ts, None if ts == "100.1" else "100.1")
    run = await parent.run(number)
    path.write_text(text)
    run.finish(f"Wrote {text.strip()}.")
    await parent.until(lambda: parent.reactions(ts) == ["white_check_mark"])
    await parent.until(parent.is_idle, flow=True)


async def test_undo_asks_puts_back_and_can_be_undone(repo: Path) -> None:
    async with worker(settings(repo)) as parent:
        await turn(parent, 0, repo / "app.py", "print('changed')\n", "100.1")
        command(parent, "diff", "100.2", "100.1")
        assert "+print('changed')" in text_of(await parent.post_with("1 file changed"))
        command(parent, "undo", "100.3", "100.1")
        card = await parent.post_with("↩ Undo “write print")
        assert card.thread == "100.1"
        assert "app.py" in text_of(card)
        assert (repo / "app.py").read_text() == "print('changed')\n"
        press(parent, card, "101.0")
        press(parent, card, "101.1")
        await parent.post_with("That was already undone")
        await parent.post_with("Undid changes to 1 file")
        assert (repo / "app.py").read_text() == "print('hello')\n"
        await parent.until(lambda: any("Confirmed by" in text_of(update) for update in parent.updates))
        await parent.until(parent.is_idle, flow=True)
        command(parent, "undo", "100.4", "100.1")
        again = await parent.post_with("↩ Redo “write print")
        assert "Redo 1 file" in [each.label for each in again.message.buttons]
        press(parent, again, "102.0")
        await parent.post_with("Redid changes to 1 file")
        assert (repo / "app.py").read_text() == "print('changed')\n"
        await parent.until(parent.is_idle, flow=True)
        command(parent, "undo", "100.5", "100.1")
        await parent.until(
            lambda: sum("↩ Undo “write print" in text_of(post) for post in parent.posts) == 2, flow=True
        )


async def test_undo_takes_the_last_turn_that_changed_anything(repo: Path) -> None:
    async with worker(settings(repo)) as parent:
        await turn(parent, 0, repo / "new.py", "1\n", "100.1")
        parent.says("only explain", "100.2", "100.1")
        (await parent.run(1)).finish("So it is.")
        await parent.until(lambda: parent.reactions("100.2") == ["white_check_mark"])
        await parent.until(parent.is_idle, flow=True)
        command(parent, "diff", "100.3", "100.1", "turn")
        assert "+1" in text_of(await parent.post_with("new.py"))
        # Also from outside the thread.
        command(parent, "undo", "200.1")
        card = await parent.post_with("↩ Undo “write 1”")
        assert "would be removed" in text_of(card)
        assert card.thread == "200.1"
        press(parent, card, "201.0", "200.1")
        assert (await parent.post_with("Undid changes to 1 file")).thread == "200.1"
        assert not (repo / "new.py").exists()


async def test_what_was_changed_by_hand_since_is_left_and_named(repo: Path) -> None:
    async with worker(settings(repo)) as parent:
        await turn(parent, 0, repo / "app.py", "print('changed')\n", "100.1")
        (repo / "app.py").write_text("print('by hand')\n")
        command(parent, "undo", "100.2", "100.1")
        card = await parent.post_with("Changed since, so left alone")
        assert blocks_of(card) == ()


async def test_a_click_on_undo_while_a_turn_runs_waits_for_nobody(repo: Path) -> None:
    async with worker(settings(repo)) as parent:
        await turn(parent, 0, repo / "app.py", "print('changed')\n", "100.1")
        command(parent, "undo", "100.2", "100.1")
        card = await parent.post_with("↩ Undo “write")
        parent.says("more", "100.3", "100.1")
        await parent.run(1)
        press(parent, card, "101.0")
        await parent.post_with("An agent is running")
        assert (repo / "app.py").read_text() == "print('changed')\n"


async def test_the_changes_of_a_turn_that_died_can_be_undone(repo: Path) -> None:
    async with worker(settings(repo)) as parent:
        parent.says("write", "100.1")
        (await parent.run(0)).does(Started("s"))
        await parent.until(parent.backend.runs[0].events.empty)
        await parent.stored(command(parent, "ping", "100.2"))
        (repo / "app.py").write_text("half\n")
    async with worker(settings(repo)) as parent:
        await parent.post_with("The machine stopped")
        command(parent, "undo", "100.3", "100.1")
        press(parent, await parent.post_with("↩ Undo “write”"), "101.0")
        await parent.post_with("Undid changes to 1 file")
        assert (repo / "app.py").read_text() == "print('hello')\n"


async def test_a_long_difference_is_a_file_and_for_one_alone_a_summary(repo: Path) -> None:
    async with worker(settings(repo)) as parent:
        (repo / "long.txt").write_text("line\n" * 5000)
        command(parent, "diff", "100.1")
        post = await parent.post_with("1 file changed")
        assert "long.txt" in text_of(post)
        (file,) = await parent.until(lambda: [each for each in parent.operations if isinstance(each, Upload)])
        assert (file.filename, file.thread, file.content.count(b"+line")) == (
            "changes.diff",
            "100.1",
            5000,
        )
        event = slashed(channel=CHANNEL, user=USER, command="/butler", text="diff", invocation="t1")
        parent.deliver(event, Command(name="diff"))
        assert (await parent.post_with("as a file")).only_for == USER
        assert sum(isinstance(each, Upload) for each in parent.operations) == 1


async def test_checks_are_a_turn_that_runs_the_repositorys_command(repo: Path) -> None:
    async with worker(settings(repo)) as parent:
        event = posted(channel=CHANNEL, ref="100.1", user=USER, text="!checks")
        parent.deliver(event, Prompt(text="checks", prefix="checks"))
        await parent.post_with("set `checks.commands`")
        await parent.until(lambda: parent.reactions("100.1") == ["x"])
        (repo / "Makefile").write_text("test:\n\ttrue\n")
        parent.says("work", "200.1")
        await parent.run(0)
        event = posted(channel=CHANNEL, ref="300.1", user=USER, text="!checks")
        await parent.stored(parent.deliver(event, Prompt(text="checks", prefix="checks")))
        # A tree that is being written is not checked.
        await parent.until(lambda: parent.reactions("300.1") == ["hourglass_flowing_sand"], flow=True)
        parent.backend.runs[0].finish()
        checks = await parent.run(1)
        assert checks.request.prompt == "make test"
        checks.does(Started("s"), Finished(False, "1 failed", "failed", exit_code=2))
        await parent.until(lambda: parent.reactions("300.1") == ["x"])


async def test_a_turn_runs_also_where_its_tree_cannot_be_kept(repo: Path) -> None:
    async with worker(settings(repo)) as parent:
        (repo / ".git" / "HEAD").write_text("rubbish")
        parent.says("work", "100.1")
        (await parent.run(0)).finish("Done.")
        await parent.until(lambda: parent.reactions("100.1") == ["white_check_mark"])
        assert any("cannot be undone" in line for line in parent.logs("WRN"))
        command(parent, "undo", "100.2", "100.1")
        await parent.post_with("nothing to undo")
        command(parent, "diff", "100.3", "100.1")
        await parent.post_with("❌ `!diff`")
