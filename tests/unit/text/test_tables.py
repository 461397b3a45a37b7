"""Tables in parts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from codebutler.text.markdown import split_markdown, whole_tables

HEADER = ["| name | n |", "|------|---|"]


def table(rows: int) -> str:
    return "\n".join([*HEADER, *(f"| row-{number} | {number} |" for number in range(rows))])


def test_a_short_text_stays_as_it_is() -> None:
    assert whole_tables(f"Look:\n{table(3)}", 200) == f"Look:\n{table(3)}"


def test_every_part_of_a_long_table_has_its_header() -> None:
    text = f"Look:\n\n{table(60)}\n\nDone."
    parts = split_markdown(whole_tables(text, 300), 300)
    assert len(parts) > 3
    for part in parts:
        if "row-" in part:
            assert "\n".join(HEADER) in part
            assert part.index("| name") < part.index("row-")
    assert all("".join(parts).count(f"| row-{number} |") == 1 for number in range(60))


def test_what_only_looks_like_a_table_is_left_alone() -> None:
    code = f"```\n{table(60)}\n```"
    assert whole_tables(code, 300) == code


def test_a_row_that_is_too_long_leaves_the_table_whole() -> None:
    wide = f"{table(1)}\n| {'x' * 400} | 1 |\n{'| y | 2 |' * 3}"
    assert whole_tables(wide, 300) == wide


CELL = st.text(alphabet="ab c", min_size=1, max_size=12).filter(str.strip)
PARAGRAPH = st.text(alphabet="xyz .", min_size=1, max_size=200).filter(lambda text: text.strip())


@given(PARAGRAPH, st.lists(st.tuples(CELL, CELL), min_size=1, max_size=60), PARAGRAPH, st.integers(200, 500))
def test_no_row_is_parted_from_its_header(
    before: str, rows: list[tuple[str, str]], after: str, limit: int
) -> None:
    body = "\n".join(f"| q{number} {one} | {two} |" for number, (one, two) in enumerate(rows))
    text = "\n".join([before, "", *HEADER, body, "", after])
    parts = split_markdown(whole_tables(text, limit), limit)
    assert all(len(part) <= limit for part in parts)
    shown = 0
    for part in parts:
        tokens = MarkdownIt("commonmark").enable("table").parse(part)
        shown += sum(token.type == "tr_open" for token in tokens) - sum(
            token.type == "table_open" for token in tokens
        )
    assert shown == len(rows)
