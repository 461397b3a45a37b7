"""Fences that an agent leaves open."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from codebutler.text.markdown import closed


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("```py\nx = 1", "```py\nx = 1\n```"),
        ("```py\nx = 1\n\n", "```py\nx = 1\n```"),
        ("````\n```\nx\n```", "````\n```\nx\n```\n````"),
        ("~~~\nx", "~~~\nx\n~~~"),
        ("```", "```\n```"),
        ("  ```\n  x", "  ```\n  x\n```"),
        ("```\n> ```", "```\n> ```\n```"),
        ("> ```\n> x", "> ```\n> x"),
        ("- ```\n  x", "- ```\n  x"),
        ("```\nx\n```", "```\nx\n```"),
        ("1. do\n   ```\n   x\n\nafter", "1. do\n   ```\n   x\n\nafter"),
        ("no code", "no code"),
        ("a ``` b", "a ``` b"),
    ],
)
def test_an_open_fence_is_closed(text: str, whole: str) -> None:
    assert closed(text) == whole


LINES = st.sampled_from(
    ["```", "```py", "~~~", "````", "x", "", "- ```", "  ```", "> ```", "> x", "1. a", "   ```"]
)


@given(st.lists(LINES, max_size=12).map("\n".join))
def test_what_follows_is_never_code(text: str) -> None:
    tokens = MarkdownIt("commonmark", {"html": False}).parse(f"{closed(text)}\n\nafter")
    assert tokens[-2].content == "after"
    assert closed(closed(text)) == closed(text)
