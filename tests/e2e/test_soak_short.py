"""Half a minute of `make soak`: random kills, cuts and Slack errors, and a checker over the whole record; and a few of
its many messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.programs import require
from tests.soak.endurance import endure
from tests.soak.plan import short
from tests.soak.report import report
from tests.soak.run import soak


@pytest.mark.timeout(300)  # Longer than the soak waits for one more outcome, so that its report is printed.
async def test_nothing_is_lost_doubled_or_out_of_order(tmp_path: Path) -> None:
    require("bwrap")
    outcome = await soak(short(), tmp_path)
    assert outcome.ok, f"{report(outcome)}\n{outcome.log}"


@pytest.mark.timeout(300)
async def test_messages_cost_what_they_cost(tmp_path: Path) -> None:
    require("bwrap")
    rows: list[str] = []
    endured = await endure(tmp_path, messages=32, runs=4, at_once=4, every=16, tell=rows.append)
    assert endured.violations == [], endured.log
    assert [part.messages for part in endured.parts] == [16, 16]
    assert len(rows) == 3
    for part in endured.parts:
        assert min(part.parent_ms, part.worker_ms, part.children_ms, part.bytes, *part.fds) > 0
