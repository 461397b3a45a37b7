"""What git prints of changed files, whole and cut off."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from codebutler_worker.tree.tree import parsed

WHOLE = b"1\t2\ta\0-\t-\tb c\0003\t0\t\0old\0new\0"


def test_whole() -> None:
    files, body = parsed(WHOLE + b"\0the diff")
    assert [(file.path, file.old, file.added, file.removed) for file in files] == [
        ("a", "", 1, 2),
        ("b c", "", None, None),
        ("new", "old", 3, 0),
    ]
    assert body == b"the diff"


@given(st.integers(0, len(WHOLE)))
def test_cut_off_anywhere_it_is_what_was_there_before(length: int) -> None:
    files, body = parsed(WHOLE[:length])
    assert [file.path for file in files] == ["a", "b c", "new"][: len(files)]
    assert body == b""


@given(st.binary(max_size=60))
def test_nothing_that_is_printed_is_an_error(output: bytes) -> None:
    parsed(output)
