"""What `codebutler status` prints of a repository: what the supervisor sees, then what the worker says."""

from __future__ import annotations

from typing import Any

import pytest

from codebutler.cli.status import _repo_line
from codebutler.supervisor.supervisor import TurnsRow, doubt_of

TURNS = {"running": 0, "queued": 2, "waiting": 0, "parked": 0}


def row(worker: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    state = {"state": "running", "pid": 7, "restarts": 0, "pss_bytes": 11 * 2**20}
    return {"name": "shop", "channel_id": "C01", "worker": state | (worker or {}), "turns": TURNS, **more}


def test_what_the_worker_reports_is_marked() -> None:
    shown = (
        "shop  C01  running, 11 MB, programs 3, 2 undelivered; worker reports 0 running, 0 waiting, 2 queued"
    )
    assert _repo_line(row({"programs": 3, "undelivered": 2}), 4) == shown


def test_a_report_that_does_not_fit_is_named_beside_a_problem() -> None:
    assert _repo_line(row(problem="no space", doubt="it lies"), 4).endswith("2 queued (no space; it lies)")


def test_a_supervisor_of_an_earlier_version_is_shown() -> None:
    assert (
        _repo_line(row(), 6) == "shop    C01  running, 11 MB; worker reports 0 running, 0 waiting, 2 queued"
    )


def test_a_channel_is_shown_as_people_read_it() -> None:
    assert _repo_line(row(channel="Shop"), 4).startswith("shop  Shop  running")


@pytest.mark.parametrize(("running", "programs"), [(0, 0), (1, 0), (1, 3)])
def test_a_report_that_fits_is_not_doubted(running: int, programs: int) -> None:
    assert doubt_of(TurnsRow(running=running, queued=0, waiting=0), programs) == ""


@pytest.mark.parametrize(("programs", "told"), [(1, "a program that it started is"), (2, "2 programs")])
def test_programs_without_a_run_are_doubted(programs: int, told: str) -> None:
    assert told in doubt_of(TurnsRow(running=0, queued=1, waiting=1), programs)
