"""A file of lines that all look alike, and a text to replace in it that looks like them for a long time: nothing else
runs in the worker while a pattern is searched for."""

from __future__ import annotations

import time

import pytest

from codebutler_worker.tools.matching import find_matches

LINES = 200_000


@pytest.mark.parametrize("file_line", ["a\n", "  a\n", "a\r\n", "\r\n"])
@pytest.mark.parametrize("old_line", ["a\n", "  a\n", "\ta\n", "\n", "a\\n"])
def test_many_lines_like_the_first_are_not_searched_for_hours(file_line: str, old_line: str) -> None:
    began_s = time.process_time()
    assert find_matches(file_line * LINES, f"{old_line * 1500}b", "c") == ()
    assert time.process_time() - began_s < 3


def test_a_long_text_in_a_long_file_is_found_as_before() -> None:
    file = "".join(f"line {number}  \r\n" for number in range(50_000))
    old = "".join(f"line {number}\n" for number in range(20_000, 21_000))
    (match,) = find_matches(file, old, "x")
    assert file[match.start : match.end].startswith("line 20000")
