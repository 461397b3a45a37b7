"""Texts that people, agents and workers send so that reading them takes time that grows with the square of their
length: the parent reads them in its event loop, where everybody else waits."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from codebutler.intake.direct import worded
from codebutler.text.markdown import split_markdown
from codebutler.text.markup import bare, spans, words
from codebutler.web.dashboard.conversations import foreign_pieces

CHARS = 100_000
LONGEST_S = 1.0


def seconds(read: Callable[[str], object], text: str) -> float:
    """Of the processor, as others use it too."""
    began_s = time.process_time()
    read(text)
    return time.process_time() - began_s


@pytest.mark.parametrize("read", [words, bare, foreign_pieces, lambda text: list(spans(text))])
@pytest.mark.parametrize("piece", ["```x\n", "```\n", "\n```", "`", "`a", "\\`", "[a", "**a", "_a ", "> "])
def test_markdown_that_opens_everything_and_closes_nothing(read: Callable[[str], object], piece: str) -> None:
    assert seconds(read, piece * (CHARS // len(piece))) < LONGEST_S


@pytest.mark.parametrize("piece", ["\n", " \n", "a\n", "```\n", "```x\n", "> \n", "- a\n", "# a\n"])
def test_a_text_of_many_short_lines_is_split(piece: str) -> None:
    assert seconds(lambda text: split_markdown(text, 3500), f"a{piece * (CHARS // len(piece))}x") < LONGEST_S


def test_nothing_but_headings_are_no_more_parts_than_anything_else() -> None:
    assert len(split_markdown("# a\n" * 10_000, 3500)) < 15


@pytest.mark.parametrize("space", [" ", "\n", "\t "])
def test_a_word_with_nothing_but_space_before_the_next(space: str) -> None:
    assert seconds(worded, f"status{space * CHARS}x") < LONGEST_S


@pytest.mark.parametrize(
    ("text", "found"), [("help", "!help"), (" Help ! ", "!help"), ("help?", "!help"), ("help me", "help me")]
)
def test_a_command_alone_still_needs_no_mark(text: str, found: str) -> None:
    assert worded(text) == found


def test_what_follows_the_last_closed_fence_is_read_as_before() -> None:
    text = "```\na\n```\n**b** ```x\n\\*"
    assert [(span.kind, span.text) for span in spans(text)] == [
        ("fence", "a"), ("text", "\n"), ("bold", "b"), ("text", " ```x\n*"),
    ]  # fmt: skip
    assert bare("\\*a `b\\*` ``c \\_") == "*a `b\\*` ``c _"
    assert [(piece.kind, piece.text) for piece in foreign_pieces("a\n```x\nb\n```\nc\n```y\nd")] == [
        ("text", "a"), ("block", "b"), ("text", "c\n```y\nd"),
    ]  # fmt: skip
