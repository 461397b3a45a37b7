"""What a script gets of an answer."""

from __future__ import annotations

import pytest

from codebutler.cli.chatroom.state import split_answer


@pytest.mark.parametrize(
    ("text", "answer", "aside"),
    [
        ("Done.\n\n_tokens: 1 in / 2 out • 3s • 1 turn_", "Done.", "tokens: 1 in / 2 out • 3s • 1 turn"),
        ("Done.\n\n_o_1.5_ • _tokens: 1 in / 2 out • 3s_", "Done.", "o_1.5 • tokens: 1 in / 2 out • 3s"),
        ("Done.\n\n_2m05s_", "Done.", "2m05s"),
        ("Done.\n_really_", "Done.\n_really_", ""),
        ("```\none\ntwo\n```\n✅ exit code 0 · 1s", "one\ntwo", "✅ exit code 0 · 1s"),
        ("```\n```\n", "", ""),
        ("see\n```\ncode\n```", "see\n```\ncode\n```", ""),
        ("```\ncode\n```\n\n_3s_", "```\ncode\n```", "3s"),
        ("```\nnever closed", "```\nnever closed", ""),
        ("pong", "pong", ""),
        ("", "", ""),
    ],
)
def test_the_answer_apart_from_what_is_beside_it(text: str, answer: str, aside: str) -> None:
    assert split_answer(text) == (answer, aside)
