"""The journal's Alembic chain over a file of each revision: what an older version kept says as much as what is new."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from codebutler.domain.errors import StoreError
from codebutler.domain.model import ButtonClicked, Event, MessageDeleted, MessageEdited, MessagePosted
from codebutler.intake.absence import Arrival
from codebutler.intake.journal import Journal
from codebutler.intake.records import Gap, SeenMessage
from codebutler_migrations import runner
from tests import events
from tests.clock import ManualClock

GOLDEN = Path(__file__).parents[2] / "golden" / "journal" / "0005.sql"
FIRST, SECOND = "1700000001.000002", "1700000003.000004"
OLD_ROOT = "1699000000.000100"
EVENTS: list[Event] = [
    events.posted(channel="C1", ref=FIRST, user="U1", text='é "x"', thread=OLD_ROOT, mentioned=True),
    events.edited(channel="C1", ref=FIRST, user="U1", text="y", edit="1700000005.000006"),
    events.deleted(channel="C1", ref=FIRST, user="U1"),
    events.clicked(
        channel="D1", user="U1", message="1700000007.000008", action_id="a", value="v", press="7.1"
    ),
    events.slashed(channel="C1", user="U1", command="/butler", text="status", invocation="t"),
    events.posted(channel="D1", ref="1700000009.000001", user="U1", text="shop: x"),
]


def do(path: Path, script: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "journal.db"
    do(path, GOLDEN.read_text())
    return path


def test_the_golden_events_say_what_slack_says_of_them() -> None:
    written = [each for each in EVENTS if isinstance(each, MessagePosted | MessageEdited | MessageDeleted)]
    assert [(each.sent_at, each.order, each.is_direct) for each in written] == [
        (1700000001.000002, FIRST, False),
        (1700000005.000006, "1700000005.000006", False),
        (1700000001.000002, FIRST, False),
        (1700000009.000001, "1700000009.000001", True),
    ]
    assert [each.is_direct for each in EVENTS if isinstance(each, ButtonClicked)] == [True]


@pytest.mark.parametrize("revision", ["0001", "0002", "0003", "0004", "0005"])
async def test_waiting_events_of_every_revision_have_their_facts(path: Path, revision: str) -> None:
    if revision != "0005":
        runner.downgrade("journal", path, revision)
    async with Journal.open(path, ManualClock()) as journal:
        assert [entry.event for entry in await journal.pending()] == EVENTS
        assert await journal.append(EVENTS[0], (await journal.pending())[0].request) is None


async def test_what_is_remembered_of_channels_is_told_in_seconds(path: Path) -> None:
    async with Journal.open(path, ManualClock()) as journal:
        first = SeenMessage(FIRST, OLD_ROOT, "U1", taken=True, sent_at=1700000001.000002)
        second = SeenMessage(SECOND, SECOND, "U2", taken=False, sent_at=1700000003.000004)
        assert await journal.high_water("C1") == 1700000003.000004
        assert await journal.high_water("D1") == 1700000009.000001
        assert await journal.seen("C1") == (first, second)
        assert await journal.gap("C1", "1699500000.000000") == Gap(
            channel="C1",
            since_s=1700000001.000002,
            floor_s=1699999000.0,
            known=(first, second),
            first_root=OLD_ROOT,
            beyond=(first,),
        )
        assert await journal.gap("D1") is None
        came = datetime(2023, 11, 14, 22, 13, 21, tzinfo=UTC)
        since = datetime.fromtimestamp(1700000000, UTC)
        assert await journal.arrivals("C1", since) == (Arrival(1700000001.000002, came),)
        assert await journal.newest_before("C1", datetime.fromtimestamp(1700000002, UTC)) == 1700000001.000002


def test_down_and_up_again_loses_nothing(path: Path) -> None:
    before = _rows(path)
    runner.upgrade("journal", path)
    runner.downgrade("journal", path, "0005")
    assert _rows(path) == before


async def test_an_event_that_nobody_can_read_stays_and_is_told(path: Path) -> None:
    do(path, 'UPDATE entries SET event = \'{"kind":"message","channel":"C1"}\' WHERE seq = 1')
    async with Journal.open(path, ManualClock()) as journal:
        with pytest.raises(StoreError, match="entry 1 cannot be read"):
            await journal.pending()


def _rows(path: Path) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        marks = connection.execute("SELECT * FROM channels ORDER BY channel").fetchall()
        recent = connection.execute("SELECT * FROM recent ORDER BY channel, ts").fetchall()
    return [*marks, *recent]
