"""Catching up: what was said while nobody listened comes once, in order, and is judged as if it came live."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from codebutler.config.chats import SlackSection
from codebutler.config.schema import AgentSection, Config
from codebutler.domain.model import MessageDeleted, MessageEdited, MessagePosted
from tests.integration.chat.slack.absences import OWNER, World, world

__all__ = ["world"]


async def test_a_first_start_takes_nothing_from_the_past(tmp_path: Path) -> None:
    world = World(tmp_path / "journal.db")
    await world.say("long before")
    async with world.life() as life:
        life.catch_up.back()
        await life.caught_up()
        assert life.routed == []
    await world.say("while away")
    async with world.life() as life:
        life.catch_up.back()
        await life.caught_up()
        assert life.texts == ["while away"]


async def test_missed_messages_come_once_in_order_over_many_pages_and_late(world: World) -> None:
    said = [await world.say(f"missed {number}") for number in range(10)]
    for _ in range(2):
        async with world.life() as life:
            life.catch_up.back()
            await life.caught_up()
            if said:
                assert life.texts == [f"missed {number}" for number in range(10)]
                assert all(isinstance(event, MessagePosted) and event.late for event in life.routed)
                said = []
            else:
                assert life.routed == []


async def test_an_answer_in_an_old_thread_is_found(world: World) -> None:
    root = world.chat.messages("C1")[0]["ts"]
    await world.clock.advance(3600 * 30)
    async with world.life() as life:
        life.catch_up.back()
        await life.caught_up()
        await life.intake.accept(world.live(await world.say("in between", root)))
    reply = await world.say("and now?", root)
    world.chat.find(root)["latest_reply"] = reply
    async with world.life() as life:
        life.catch_up.back()
        await life.caught_up()
        assert life.texts == ["and now?"]
        assert isinstance(life.routed[0], MessagePosted)
        assert life.routed[0].thread == root


async def test_edits_and_deletions_are_found(world: World) -> None:
    async with world.life() as life:
        life.catch_up.back()
        await life.caught_up()
        edited, deleted = await world.say("do A"), await world.say("do B")
        for ts in (edited, deleted):
            await life.intake.accept(world.live(ts))
    world.chat.find(edited).update(text="do C", edited={"user": OWNER, "ts": "1767225700.000000"})
    world.chat.forget(deleted)
    async with world.life() as life:
        life.catch_up.back()
        await life.caught_up()
        # Each speaks of a message of its own: which comes first depends on whether they had to wait.
        first, second = sorted(life.routed, key=lambda event: getattr(event, "ref", ""))
        assert isinstance(first, MessageEdited)
        assert isinstance(second, MessageDeleted)
        assert [first.ref, second.ref] == [edited, deleted]
        assert first.text == "do C"


async def test_a_live_message_waits_for_what_was_written_before_it(world: World) -> None:
    await world.say("missed")
    async with world.life() as life:
        world.chat.hold("history")
        life.catch_up.back()
        await life.intake.accept(world.live(await world.say("live")))
        assert life.routed == []
        world.chat.release("history")
        await life.routed_count(2)  # no time passes: the patience with which it waits is another test's
        assert life.texts == ["missed", "live"]


async def test_a_stranger_is_refused_once_and_never_runs_later(world: World) -> None:
    async with world.life() as life:
        life.catch_up.back()
        await life.caught_up()
        await life.intake.accept(world.live(await world.say("let me in", user="U0GUEST")))
        assert life.refusals == ["U0GUEST"]
    world.config = Config(slack=SlackSection(allowed_users=(OWNER, "U0GUEST")))
    async with world.life() as life:
        life.catch_up.back()
        await life.caught_up()
        assert (life.routed, life.refusals) == ([], [])


async def test_talk_that_was_not_for_us_does_not_become_ours(world: World) -> None:
    world.config = Config(slack=SlackSection(allowed_users=(OWNER,)), agent=AgentSection(mention="mention"))
    async with world.life() as life:
        life.catch_up.back()
        await life.caught_up()
        assert await life.intake.accept(world.live(await world.say("among ourselves"))) == "ignored"
    world.config = Config(slack=SlackSection(allowed_users=(OWNER,)))
    async with world.life() as life:
        life.catch_up.back()
        await life.caught_up()
        assert life.routed == []


async def test_old_messages_are_marked_stale(world: World) -> None:
    await world.say("old")
    await world.clock.advance(3600 * 13)
    await world.say("young")
    async with world.life() as life:
        life.catch_up.back()
        await life.caught_up()
        assert [event.stale for event in life.routed if isinstance(event, MessagePosted)] == [True, False]


async def test_what_comes_at_once_is_never_late_and_what_comes_again_may_be(world: World) -> None:
    old = world.live(await world.say("old"))
    await world.clock.advance(3600 * 13)
    async with world.life() as life:
        await life.intake.accept(old)
        await life.intake.accept(replace(old, ref="1767225999.000000"), missed=True)
        assert [(e.late, e.stale) for e in life.routed if isinstance(e, MessagePosted)] == [
            (False, False),
            (True, True),
        ]
