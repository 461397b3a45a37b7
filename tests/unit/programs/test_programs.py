"""Foreign programs: their lines, and what of theirs may be read. Pure decisions."""

from __future__ import annotations

from pathlib import Path

from codebutler_worker.programs.process import LineSplitter
from codebutler_worker.programs.program import program_root


def test_the_home_stays_closed_when_the_program_lies_in_it() -> None:
    home = Path("/home/you")
    assert program_root(Path("/home/you/claude"), home) == Path("/home/you/claude")
    assert program_root(Path("/home/claude"), home) == Path("/home/claude")
    assert program_root(Path("/home/you/.local/bin/claude"), home) == Path("/home/you/.local/bin")


def test_lines_are_put_together_from_any_chunks() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b"a") == []
    assert splitter.feed(b"b\nc\n\nd") == [b"ab", b"c", b""]
    assert splitter.end() == [b"d"]
    assert splitter.end() == []


def test_an_over_long_line_is_dropped_and_the_next_one_kept() -> None:
    splitter = LineSplitter(limit_bytes=4)
    assert splitter.feed(b"1234\n12345") == [b"1234"]
    assert splitter.feed(b"678") == []
    assert splitter.feed(b"9\nok\n123456\n") == [b"ok"]
    assert splitter.feed(b"123456") == []
    assert splitter.end() == []
