"""A command that the parent answers, while the parent ends or its handler breaks: one answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast
from zoneinfo import ZoneInfo

import pytest

from codebutler.chat.chats import Chats, ServedChat, StatusBoard
from codebutler.chat.delivery.outgoing import Editor
from codebutler.chat.delivery.sender import Sender
from codebutler.chat.listeners import Listeners
from codebutler.domain.errors import ChatUnreachableError
from codebutler.domain.model import Command, TurnOutcome
from codebutler.intake.journal import Journal
from codebutler.parent.commands.asked import ParentCommands, Resources
from codebutler.platform.tasks import Tasks
from codebutler.schedule.commands import ScheduleCommands
from codebutler.schedule.files import FoundJobs
from codebutler.schedule.scheduler import IdempotentPublisher, Scheduler
from tests.clock import ManualClock, settle
from tests.events import posted
from tests.memory_chat import MemoryChat
from tests.notes import Notes


class Parent:
    """One life of it after another; the chat and the journal's file outlive each."""

    def __init__(self, root: Path) -> None:
        self.chat = MemoryChat()
        self.clock = ManualClock()
        self.notes = Notes()
        self.failures: list[str] = []
        self.outcomes: list[str] = []
        self._path = root / "journal.db"

    async def _ended(self, channel: str, messages: Collection[str], outcome: TurnOutcome) -> None:
        self.outcomes.append(outcome)

    @asynccontextmanager
    async def life(self) -> AsyncIterator[tuple[Journal, ParentCommands]]:
        tasks = Tasks(lambda name, error: self.failures.append(f"{name}: {error!r}"))
        async with (
            Journal.open(self._path, self.clock) as journal,
            Sender(self.chat, self.clock, Editor(str), self.notes) as sender,
        ):
            board = StatusBoard(None, self.clock, str)
            chats = Chats([ServedChat(name="Slack", chat=self.chat, sender=sender, statuses=board)])
            listeners = Listeners()
            listeners.on_ended.append(self._ended)
            publish = IdempotentPublisher(chats, listeners).publish
            scheduler = Scheduler(self.notes, publish, lambda: FoundJobs({}), self.clock, tasks)
            scheduler._ready.set()
            jobs = ScheduleCommands(scheduler, self.clock, ZoneInfo("UTC"))
            nothing = cast("Any", None)
            own = Resources(jobs, nothing, nothing, nothing, self.clock, self.clock.now())
            yield (
                journal,
                ParentCommands(own, publish, listeners, journal, tasks, lambda channel: "shop"),
            )
        while len(tasks):
            await settle()


@pytest.fixture
def parent(tmp_path: Path) -> Parent:
    return Parent(tmp_path)


async def test_what_was_not_sent_before_the_end_is_sent_by_the_next_life(parent: Parent) -> None:
    parent.chat.fail_next("post", ChatUnreachableError("down"), times=100)
    async with parent.life() as (journal, commands):
        ref = parent.chat.say("C1", "U1", "!jobs")
        asked = posted(channel="C1", ref=ref, user="U1", text="!jobs")
        entry = await journal.append(asked, Command(name="jobs"))
        assert entry is not None
        commands.take(entry, lambda entry: None)
        await settle()
    parent.chat.heal()
    await parent.clock.advance(60)
    async with parent.life() as (journal, commands):
        [entry] = await journal.pending()
        commands.take(entry, lambda entry: None)
        await settle()
        await parent.clock.advance(3)  # until an earlier attempt can be looked up
        await settle()
        [answer] = parent.chat.texts("C1")
        assert answer.startswith("Nothing is scheduled.")
        assert journal.pending_count == 0
    assert parent.failures == []


async def test_a_fault_of_ours_is_answered_and_not_tried_again(
    parent: Parent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> str:
        raise OverflowError("a fault of ours")

    monkeypatch.setattr(ScheduleCommands, "listing", broken)
    async with parent.life() as (journal, commands):
        ref = parent.chat.say("C1", "U1", "!jobs")
        entry = await journal.append(
            posted(channel="C1", ref=ref, user="U1", text="!jobs"), Command(name="jobs")
        )
        assert entry is not None
        commands.take(entry, lambda entry: None)
        await settle()
        [answer] = parent.chat.texts("C1")
        assert "internal error" in answer
        assert journal.pending_count == 0
    assert (parent.failures, parent.outcomes) == ([], ["failed"])
