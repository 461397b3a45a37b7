"""The way in for a platform whose ids are no times, do not sort as text and begin with no letter."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from codebutler.config.chats import SlackSection
from codebutler.config.schema import Config
from codebutler.domain.model import MessagePosted, NoRequest
from codebutler.domain.refs import ConversationRef
from codebutler.intake.absence import Arrival
from codebutler.intake.direct import DirectReader, DirectThreads
from codebutler.intake.intake import Intake, Threads, dated
from codebutler.intake.journal import Journal
from codebutler.intake.records import Entry, SeenMessage
from codebutler.intake.repos import Repo
from tests.clock import ManualClock
from tests.dispatching import dispatcher
from tests.events import numbered
from tests.integration.intake.test_intake import Books

NOON = ManualClock().now()
NOON_S = NOON.timestamp()
NINE, TEN = numbered(9, NOON_S + 1), numbered(10, NOON_S + 2)


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    async with Journal.open(tmp_path / "journal.db", ManualClock()) as journal:
        yield journal


def test_what_was_held_goes_on_in_its_order() -> None:
    went: list[Entry] = []
    way = dispatcher(went.append)
    way.hold(NINE.channel)
    for seq, event in enumerate((TEN, NINE), start=1):
        way.dispatch(Entry(seq, event.channel, event, NoRequest(), NOON))
    way.release(NINE.channel)
    assert [entry.event for entry in went] == [NINE, TEN]


def test_it_is_late_by_the_time_it_tells() -> None:
    now = NOON + timedelta(hours=13)
    old, new = numbered(11, NOON_S), numbered(12, now.timestamp() - 5)
    told = [dated(each, now, now - timedelta(hours=20), 12) for each in (old, new)]
    assert [(each.late, each.stale) for each in told if isinstance(each, MessagePosted)] == [
        (True, True),
        (False, False),
    ]


async def test_the_journal_remembers_it_by_its_time(journal: Journal) -> None:
    for event in (TEN, NINE):
        assert await journal.append(event, NoRequest())
    assert [entry.event for entry in await journal.pending()] == [TEN, NINE]
    assert await journal.seen(NINE.channel) == (
        SeenMessage("9", "9", "111", taken=True, sent_at=NOON_S + 1),
        SeenMessage("10", "10", "111", taken=True, sent_at=NOON_S + 2),
    )
    assert await journal.high_water(NINE.channel) == NOON_S + 2
    assert await journal.newest_before(NINE.channel, NOON + timedelta(seconds=2)) == NOON_S + 1
    assert await journal.arrivals(NINE.channel, NOON + timedelta(seconds=2)) == (Arrival(NOON_S + 2, NOON),)


async def test_a_conversation_is_direct_where_the_event_says_so(journal: Journal) -> None:
    books, threads = Books(), DirectThreads(journal)
    private, group = numbered(1, NOON_S, channel="111", is_direct=True), numbered(2, NOON_S, channel="D1")
    slack = SlackSection(channel_id="D1", allowed_users=(private.user,))
    repos = {ConversationRef("D1"): Repo("shop", Config(slack=slack))}
    intake = Intake(
        repos=repos,
        journal=journal,
        dispatch=books.routed.append,
        refusals=books,
        clock=ManualClock(),
        threads=Threads(direct=DirectReader(threads, repos)),
    )
    assert [await intake.accept(each) for each in (private, group)] == ["accepted", "accepted"]
    assert (threads.home("111", "1"), threads.home("D1", "2")) == ("D1", "")
