"""Foreign programs: what of theirs may be read."""

from __future__ import annotations

from pathlib import Path

from codebutler_worker.agents.survey import program_root


def test_the_home_stays_closed_when_the_program_lies_in_it() -> None:
    home = Path("/home/you")
    assert program_root(Path("/home/you/claude"), home) == Path("/home/you/claude")
    assert program_root(Path("/home/claude"), home) == Path("/home/claude")
    assert program_root(Path("/home/you/.local/bin/claude"), home) == Path("/home/you/.local/bin")
