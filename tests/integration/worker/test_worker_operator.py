"""What the operator says from a script or a terminal ends in one mark, whoever answers it; people's words get none."""

from __future__ import annotations

from pathlib import Path

from codebutler.model import OPERATOR, Command, MessagePosted, React
from tests.worker_kit import CHANNEL, USER, Parent, settings, worker


def says(parent: Parent, text: str, ts: str, user: str = OPERATOR) -> None:
    name, _, argument = text.removeprefix("!").partition(" ")
    event = MessagePosted(channel=CHANNEL, ts=ts, user=user, text=text)
    parent.deliver(event, Command(name=name, argument=argument))


async def marked(parent: Parent, ts: str, name: str) -> None:
    await parent.until(lambda: parent.reactions(ts) == [name], flow=True)


async def test_a_command_is_marked_below_its_answer(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        says(parent, "!ping", "100.1", USER)
        says(parent, "!ping", "100.2")
        await marked(parent, "100.2", "white_check_mark")
        says(parent, "!pong", "100.3")
        await marked(parent, "100.3", "x")
        assert [post.thread_ts for post in parent.posts] == ["100.1", "100.2", "100.3"]
        assert parent.reactions("100.1") == []


async def test_what_has_to_be_looked_up_is_marked_when_all_of_it_is_said(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        says(parent, "!skills", "100.1")
        await marked(parent, "100.1", "white_check_mark")
        says(parent, "!diff", "100.2")
        await marked(parent, "100.2", "x")
        kinds = [type(operation) for operation in parent.operations]
        assert kinds.index(React) > 0
        assert "run `git init`" in parent.posts[-1].text


async def test_a_skill_is_marked_when_its_run_has_ended(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        says(parent, "!skills review-diff the last commit", "100.1")
        run = await parent.run(0)
        assert "white_check_mark" not in parent.reactions("100.1")
        run.finish("Ready.")
        await marked(parent, "100.1", "white_check_mark")
