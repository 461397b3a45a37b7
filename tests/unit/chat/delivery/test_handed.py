"""Only what was handed to the chat is looked for before it is sent again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

from codebutler.chat.delivery.handover import begin_anew
from codebutler.chat.delivery.outgoing import Editor
from codebutler.chat.delivery.sender import Sender
from codebutler.domain.message import said
from codebutler.domain.model import Post
from tests.clock import ManualClock, settle
from tests.memory_chat import MemoryChat
from tests.notes import Notes

C = "C1"


class Stage:
    """A workspace and a disk, and one sender after the other."""

    def __init__(self) -> None:
        self.chat, self.clock, self.notes = MemoryChat(), ManualClock(), Notes()
        self.root = self.chat.say(C, "U1", "question")
        self.tasks: list[asyncio.Task[str]] = []

    @asynccontextmanager
    async def life(self) -> AsyncIterator[Sender]:
        async with Sender(self.chat, self.clock, Editor(str), rng=Random(1), notes=self.notes) as sender:
            yield sender
        await asyncio.gather(*self.tasks, return_exceptions=True)

    def say(
        self, sender: Sender, op_id: str, *, unsure: bool = False, lasting: bool = True
    ) -> asyncio.Task[str]:
        post = Post(message=said(op_id), thread=self.root)
        task = asyncio.ensure_future(sender.submit(C, op_id, post, unsure=unsure, lasting=lasting))
        self.tasks.append(task)
        return task

    async def passes(self, seconds: float) -> None:
        await self.clock.advance(seconds)
        await settle()


async def test_what_waited_for_its_turn_is_not_looked_for_and_what_was_under_way_is() -> None:
    stage = Stage()
    async with stage.life() as sender:
        stage.chat.hold("post")
        stage.say(sender, "under way")
        stage.say(sender, "behind it")
        await stage.passes(1)
    stage.chat.release("post")
    async with stage.life() as sender:
        behind = stage.say(sender, "behind it", unsure=True)
        await stage.passes(3)
        assert behind.done()
        assert stage.chat.calls.count("history") == 0
        stage.say(sender, "under way", unsure=True)
        await stage.passes(3)
        assert stage.chat.calls.count("history") == 1
    assert stage.chat.texts(C) == ["behind it", "under way"]


async def test_what_an_earlier_version_may_have_sent_is_looked_for_in_this_life_and_the_next() -> None:
    stage = Stage()
    ts = await stage.chat.post(C, Post(message=said("old"), thread=stage.root), "old")
    async with stage.life() as sender:
        stage.say(sender, "old", unsure=True)
        await stage.passes(1)
    async with stage.life() as sender:
        again = stage.say(sender, "old", unsure=True)
        await stage.passes(3)
        assert await again == ts
    assert stage.chat.texts(C) == ["old"]


async def test_notes_from_a_backup_do_not_say_what_was_not_handed_over() -> None:
    stage = Stage()
    async with stage.life() as sender:
        ts = stage.say(sender, "since the backup")
        await stage.passes(1)
    stage.notes.kept = {"sent": "noted"}
    await begin_anew(stage.notes)
    async with stage.life() as sender:
        again = stage.say(sender, "since the backup", unsure=True)
        await stage.passes(3)
        assert await again == await ts
    assert stage.chat.texts(C) == ["since the backup"]


async def test_a_post_waits_for_the_disk_and_a_notice_goes_out() -> None:
    stage = Stage()
    async with stage.life() as sender:
        stage.notes.is_full = True
        post = stage.say(sender, "post")
        notice = stage.say(sender, "notice", lasting=False)
        await stage.passes(60)
        assert stage.chat.texts(C) == ["notice"]
        assert not post.done()
        stage.notes.is_full = False
        await stage.passes(60)
        assert await post
        assert await notice
    assert stage.chat.texts(C) == ["notice", "post"]
