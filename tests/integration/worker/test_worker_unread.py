"""A turn that ends before its agent has taken it: what it was asked is not lost to the agent."""

from __future__ import annotations

from pathlib import Path

import msgspec

from codebutler.config.schema import CommandRule
from codebutler.domain.model import ButtonClicked, Command, Post
from codebutler_worker.agents.backend import Finished, Started
from tests.events import clicked, posted
from tests.shown import blocks_of
from tests.worker_kit import CHANNEL, USER, Parent, settings, worker

MARK = "[sent earlier; your run was stopped before you read it]"


async def command(parent: Parent, name: str, ts: str) -> None:
    event = posted(channel=CHANNEL, ref=ts, user=USER, text=f"!{name}", thread="100.1")
    await parent.stored(parent.deliver(event, Command(name=name)))


def retry(card: Post) -> ButtonClicked:
    """Somebody presses *Continue* on the card."""
    [value] = [
        element["value"]
        for block in blocks_of(card)
        for element in block.get("elements", [])
        if element.get("action_id") == "codebutler.retry"
    ]
    return clicked(
        channel=CHANNEL,
        user=USER,
        message="9000.1",
        action_id="codebutler.retry",
        value=value,
        press="500.1",
    )


async def killed_early(parent: Parent, text: str, ts: str, number: int, thread_ts: str | None = None) -> None:
    """A turn that somebody kills before its agent has said that it took it."""
    parent.says(text, ts, thread_ts)
    await parent.run(number)
    await command(parent, "kill", f"{ts}9")
    await parent.until(lambda: parent.reactions(ts) == ["octagonal_sign"], flow=True)


async def test_the_next_message_tells_what_a_killed_turn_was_asked(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        await killed_early(parent, "the parser drops commas", "100.1", 0)
        await killed_early(parent, "and tabs", "101.1", 1, "100.1")
        parent.says("please mend both", "102.1", "100.1")
        third = await parent.run(2)
        assert third.request.prompt == (
            f"{MARK} the parser drops commas\n\n{MARK} and tabs\n\nplease mend both"
        )
        third.finish("I did.")
        await parent.until(lambda: parent.reactions("102.1") == ["white_check_mark"], flow=True)
        parent.says("thanks", "103.1", "100.1")
        assert (await parent.run(3)).request.prompt == "thanks"


async def test_also_in_a_session_that_goes_on_and_after_a_failure(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.says("hello", "100.1")
        (await parent.run(0)).finish("Hi.")
        await parent.until(lambda: parent.reactions("100.1") == ["white_check_mark"], flow=True)
        parent.says("find the leak", "101.1", "100.1")
        (await parent.run(1)).does(Finished(False, "log in first", "unavailable"))
        await parent.until(lambda: parent.reactions("101.1") == ["x"], flow=True)
        parent.says("I logged in", "102.1", "100.1")
        again = await parent.run(2)
        assert again.request.session_id == "session-1"
        assert again.request.prompt == f"{MARK} find the leak\n\nI logged in"


async def test_what_the_agent_took_is_its_own_affair(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.says("count to ten", "100.1")
        (await parent.run(0)).does(Started("session-1"))
        await parent.until(lambda: parent.logs("CLD") != [])
        await command(parent, "stop", "100.9")
        await parent.until(lambda: parent.reactions("100.1") == ["octagonal_sign"], flow=True)
        parent.says("to five", "101.1", "100.1")
        assert (await parent.run(1)).request.prompt == "to five"


async def test_a_crash_counts_too_and_continuing_says_it_once(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.says("the first thing", "100.1")
        await parent.run(0)
    async with worker(settings(tmp_path)) as parent:
        card = await parent.post_with("machine stopped")
        parent.says("the second thing", "101.1", "100.1")
        run = await parent.run(0)
        assert run.request.prompt == f"{MARK} the first thing\n\nthe second thing"
        run.finish("Both done.")
        await parent.until(lambda: parent.reactions("101.1") == ["white_check_mark"], flow=True)
        parent.deliver(retry(card))
        assert "the first thing" not in (await parent.run(1)).request.prompt


async def test_who_continues_while_the_next_turn_is_about_to_tell_it_has_it_told_once(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.says("the first thing", "100.1")
        await parent.run(0)
    async with worker(settings(tmp_path)) as parent:
        card = await parent.post_with("machine stopped")
        parent.says("the second thing", "101.1", "100.1")
        run = await parent.run(0)
        await parent.stored(parent.deliver(retry(card)))
        run.finish("Both done.")
        await parent.until(lambda: parent.reactions("101.1") == ["white_check_mark"], flow=True)
        assert "the first thing" not in (await parent.run(1)).request.prompt


async def test_what_was_reset_is_not_told(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        await killed_early(parent, "a secret plan", "100.1", 0)
        await command(parent, "reset", "101.1")
        parent.says("hello", "102.1", "100.1")
        assert (await parent.run(1)).request.prompt == "hello"


async def test_a_program_is_given_its_own_words_alone(tmp_path: Path) -> None:
    base = settings(tmp_path)
    shell = CommandRule(prefix="claude", binary="bash", args=("-c",))
    config = msgspec.structs.replace(base.config, commands=(shell,))
    async with worker(msgspec.structs.replace(base, config=config)) as parent:
        await killed_early(parent, "rm -r build", "100.1", 0)
        parent.says("ls", "101.1", "100.1")
        assert (await parent.run(1)).request.prompt == "ls"
