"""`codebutler dashboard` where there is none to open."""

from __future__ import annotations

from tests.integration.cli.conftest import Cli


def test_without_a_supervisor_it_says_how_to_start_one(connected: Cli) -> None:
    connected.fails("dashboard", "--no-browser", code=1, said="codebutler supervise")
