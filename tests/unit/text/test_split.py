"""Long answers in parts."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from codebutler.text.markdown import split_markdown


def squeezed(text: str) -> str:
    return re.sub(r"\s", "", text)


def test_a_short_text_is_one_part() -> None:
    assert split_markdown("hello", 40) == ["hello"]


@pytest.mark.parametrize("text", ["", " \n\t\n", "\n" * 500])
def test_blank_text_has_no_parts(text: str) -> None:
    assert split_markdown(text, 40) == []


def test_breaks_between_paragraphs_first() -> None:
    first, second = "a " * 20 + "end.", "b " * 20 + "end."
    assert split_markdown(f"{first}\n\n{second}", 60) == [first, second]


def test_breaks_between_lines_then_words() -> None:
    lines = ["one two three four", "five six seven eight", "nine ten"]
    assert split_markdown("\n".join(lines), 40) == ["\n".join(lines[:2]), lines[2]]
    words = "alpha beta gamma delta epsilon zeta theta"
    assert split_markdown(words, 40) == ["alpha beta gamma delta epsilon zeta", "theta"]


def test_one_endless_word_is_cut() -> None:
    parts = split_markdown("x" * 100, 40)
    assert "".join(parts) == "x" * 100
    assert all(len(part) <= 40 for part in parts)


def test_a_cut_fence_is_closed_and_opened_again_with_its_language() -> None:
    code = "\n".join(f"line {number}" for number in range(20))
    parts = split_markdown(f"Look:\n\n```python\n{code}\n```\n\nDone.", 80)
    assert parts[0] == "Look:" or "```python" in parts[0]
    fenced = [part for part in parts if "line" in part]
    assert len(fenced) > 1
    assert all("```python\n" in part and part.count("```") == 2 for part in fenced)
    assert re.findall(r"line \d+", "\n".join(parts)) == code.split("\n")


def test_a_short_fence_moves_to_the_next_part_whole() -> None:
    fence = "```\n" + "c" * 30 + "\n```"
    assert split_markdown("a " * 20 + "end.\n" + fence, 60) == ["a " * 20 + "end.", fence]


def test_a_heading_stays_with_what_follows() -> None:
    parts = split_markdown("a " * 20 + "\n\n## Next\n" + "b " * 20, 60)
    assert parts[1].startswith("## Next\nb")


def test_a_fence_in_a_list_is_opened_again_at_the_margin() -> None:
    code = "\n".join(f"    line {number}" for number in range(12))
    parts = split_markdown(f"1. do\n\n    ```sh\n{code}\n    ```\n2. see", 90)
    assert parts[1].startswith("```sh\n")
    assert parts[-1].endswith("2. see")
    assert all(fences_are_whole(part) for part in parts)


def test_a_fence_in_a_quote_stays_in_the_quote() -> None:
    code = "\n".join(f"> line {number}" for number in range(12))
    parts = split_markdown(f"> ```sh\n{code}\n> ```\nafter", 70)
    assert all(fences_are_whole(part) for part in parts)
    assert parts[1].startswith(">```sh\n> line") or parts[1].startswith("> ```sh\n> line")


def test_a_tiny_limit_is_refused() -> None:
    with pytest.raises(ValueError, match="at least"):
        split_markdown("x", 5)


def fences_are_whole(part: str) -> bool:
    """Every fence that Markdown sees in the part was closed by a fence line."""
    lines = part.split("\n")
    for token in MarkdownIt("commonmark").parse(part):
        if token.type == "fence":
            assert token.map is not None
            if token.map[1] - token.map[0] < 2 or token.markup[:3] not in lines[token.map[1] - 1]:
                return False
    return True


LIMITS = st.integers(min_value=40, max_value=160)
PROSE = st.text(alphabet="abc .,\n\t#-*é日", max_size=600)


@given(PROSE, LIMITS)
def test_no_text_is_lost_and_no_part_is_too_long(text: str, limit: int) -> None:
    parts = split_markdown(text, limit)
    assert squeezed("".join(parts)) == squeezed(text)
    assert all(part.strip() and len(part) <= limit for part in parts)


CODE = st.text(alphabet="xyz \n", max_size=200)
FENCE = st.builds(lambda code, info: f"```{info}\n{code}\n```", CODE, st.sampled_from(["", "py"]))
BLOCK = st.one_of(st.text(alphabet="abc .\n", max_size=120), FENCE)


@given(st.lists(BLOCK, max_size=6), LIMITS)
def test_every_part_has_whole_fences(blocks: list[str], limit: int) -> None:
    text = "\n\n".join(blocks)
    parts = split_markdown(text, limit)
    assert all(len(part) <= limit and fences_are_whole(part) for part in parts)
    letters = re.sub(r"[^abcxz]", "", text)
    assert re.sub(r"[^abcxz]", "", "".join(parts)) == letters


@given(st.text(alphabet="`~> \n-1.ab", max_size=400), LIMITS)
def test_hostile_fences_keep_the_limit(text: str, limit: int) -> None:
    parts = split_markdown(text, limit)
    assert all(part.strip() and len(part) <= limit for part in parts)
    assert re.sub("[^ab]", "", "".join(parts)) == re.sub("[^ab]", "", text)
