"""Half a minute of `make soak`: random kills, cuts and Slack errors, and a checker over the whole record."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.programs import require
from tests.soak.plan import short
from tests.soak.report import report
from tests.soak.run import soak


@pytest.mark.timeout(300)  # Longer than the soak waits for one more outcome, so that its report is printed.
async def test_nothing_is_lost_doubled_or_out_of_order(tmp_path: Path) -> None:
    require("bwrap")
    outcome = await soak(short(), tmp_path)
    assert outcome.ok, f"{report(outcome)}\n{outcome.log}"
