"""Whose direct conversation is known before the first message."""

from __future__ import annotations

import asyncio
from pathlib import Path

from codebutler.chat.slack.connection import ATTEMPTS, DirectConversations
from codebutler.domain.errors import ChatError, ChatRateLimitedError, ChatUnreachableError
from codebutler.intake.direct import DirectThreads
from codebutler.intake.journal import Journal
from tests.clock import ManualClock, settle


class Slack:
    """Opens conversations, after refusing as often as it is told to."""

    def __init__(self, *faults: ChatError) -> None:
        self.faults = list(faults)
        self.asked: list[str] = []

    async def open_direct(self, user: str) -> str:
        self.asked.append(user)
        if self.faults:
            raise self.faults.pop(0)
        return f"D{user}"


async def meeting(slack: Slack, book: DirectThreads, journal: Journal, *users: str) -> None:
    clock = ManualClock()
    task = asyncio.create_task(DirectConversations(slack.open_direct, book, journal, clock).meet(users))
    while not task.done():
        await clock.advance(60)
        await settle()
    await task


async def test_everybody_is_met_once_in_all_lives(tmp_path: Path) -> None:
    slack = Slack(ChatRateLimitedError(7.0))
    async with Journal.open(tmp_path / "journal.db", ManualClock()) as journal:
        book = DirectThreads(journal)
        await meeting(slack, book, journal, "U1", "U2")
        assert book.channels == ("DU1", "DU2")
        assert book.home("DU1", "1.1") == ""
        assert (await journal.gap("DU1"), bool(await journal.high_water("DU1"))) == (
            None,
            True,
        )
        await meeting(slack, book, journal, "U1", "U2")
    async with Journal.open(tmp_path / "journal.db", ManualClock()) as journal:
        book = DirectThreads(journal)
        await book.load()
        await meeting(slack, book, journal, "U1", "U2", "U3")
        assert book.channels == ("DU1", "DU2", "DU3")
    assert slack.asked == ["U1", "U1", "U2", "U3"]


async def test_without_the_scope_nobody_is_met_and_nothing_breaks(tmp_path: Path) -> None:
    slack = Slack(ChatError("no", "missing_scope"), ChatError("no", "missing_scope"))
    async with Journal.open(tmp_path / "journal.db", ManualClock()) as journal:
        await meeting(slack, DirectThreads(journal), journal, "U1", "U2")
    assert slack.asked == ["U1", "U2"]


async def test_where_slack_is_not_reached_it_is_given_up_for_now(tmp_path: Path) -> None:
    slack = Slack(*[ChatUnreachableError("down")] * ATTEMPTS)
    async with Journal.open(tmp_path / "journal.db", ManualClock()) as journal:
        await meeting(slack, DirectThreads(journal), journal, "U1")
    assert slack.asked == ["U1"] * ATTEMPTS
