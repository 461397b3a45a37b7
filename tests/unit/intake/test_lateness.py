"""What was written while we were away is marked, and asked about if that is long ago."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from codebutler.chat.slack.answers import ts_at
from codebutler.domain.model import MessagePosted
from codebutler.intake.intake import dated
from tests.events import edited, posted

NOW = datetime(2026, 1, 1, 2, tzinfo=UTC)


@pytest.mark.parametrize(
    ("age", "away", "late", "stale"),
    [
        (timedelta(seconds=5), timedelta(hours=1), False, False),
        (timedelta(seconds=5), timedelta(seconds=1), True, False),
        (timedelta(minutes=5), timedelta(hours=1), True, False),
        (timedelta(hours=12), timedelta(hours=1), True, False),
        (timedelta(hours=13), timedelta(hours=20), True, True),
    ],
)
def test_lateness(age: timedelta, away: timedelta, late: bool, stale: bool) -> None:
    event = posted(channel="C1", ref=ts_at((NOW - age).timestamp()), user="U1", text="hello")
    told = dated(event, NOW, NOW - away, 12)
    assert isinstance(told, MessagePosted)
    assert (told.late, told.stale) == (late, stale)


def test_only_what_slack_says_can_be_late() -> None:
    local = posted(channel="C1", ref="1.0", user="U1", text="x", origin="local")
    edit = edited(channel="C1", ref="2.0", user="U1", text="x", edit="3.0")
    assert [dated(each, NOW, NOW, 12) for each in (local, edit)] == [local, edit]
