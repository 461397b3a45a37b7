"""The answer as operations: parts, footer, file, and nothing that pings."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from codebutler.domain.model import Post, Upload
from codebutler.text.redact import Redactor
from codebutler_worker.agents.backend import Usage
from codebutler_worker.present.progress import answer as answer_without
from codebutler_worker.present.progress import footer
from tests.shown import blocks_of, text_of

answer = partial(answer_without, redact=Redactor().redact)
FOOT = footer(Usage(1234, 5678, 0.12, 3), 34, "claude-opus-5-5")


def shown(operation: object) -> str:
    assert isinstance(operation, Post)
    (block,) = blocks_of(operation)
    assert block["type"] == "markdown"
    return str(block["text"])


def test_the_footer() -> None:
    assert FOOT == "_claude-opus-5-5_ • _tokens: 1234 in / 5678 out • 34s • 3 turns • $0.12_"


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        ("", ""),
        ("gpt_4o_", "_gpt_4o_ • "),
        ("_*<!channel>\n", "_channel_ • "),
        ("x" * 500, f"_{'x' * 60}_ • "),
    ],
)
def test_a_models_name_is_an_agents_word(told: str, shown: str) -> None:
    assert footer(Usage(1, 2, None, 1), 1, told) == f"{shown}_tokens: 1 in / 2 out • 1s • 1 turn_"


def test_an_unknown_cost_is_left_out() -> None:
    assert footer(Usage(1, 2, None, 1), 61) == "_tokens: 1 in / 2 out • 1m01s • 1 turn_"
    assert footer(Usage(), 3) == "_3s_"


def test_a_short_answer_is_one_post_with_its_footer() -> None:
    (post,) = answer("Fixed **it**.", FOOT, "100.1", 3500)
    assert shown(post) == f"Fixed **it**.\n\n{FOOT}"
    assert isinstance(post, Post)
    assert post.thread == "100.1"
    assert text_of(post).startswith("Fixed *it*.")


@pytest.mark.parametrize("text", ["", " \n\t"])
def test_nothing_is_said_as_such(text: str) -> None:
    assert shown(answer(text, FOOT, None, 3500)[0]).startswith("(no text)")


@pytest.mark.parametrize(
    "hostile", ["<!channel>", "<!here|x>", "<@U0ANA>", "<!subteam^S1>", "@channel", "@here"]
)
def test_nothing_pings(hostile: str) -> None:
    for operation in answer(f"look {hostile} now", FOOT, None, 3500):
        assert isinstance(operation, Post)
        assert hostile not in text_of(operation)
        assert hostile not in shown(operation)


def test_fences_are_closed_in_every_part() -> None:
    text = "```py\n" + "\n".join(f"line_{number} = {number}" for number in range(400)) + "\n```"
    parts = [shown(operation) for operation in answer(text, FOOT, None, 1000)]
    assert len(parts) > 5
    assert all(part.count("```") % 2 == 0 for part in parts)
    assert parts[-1].endswith(FOOT)


def test_a_very_long_answer_is_a_file_and_its_first_paragraph() -> None:
    text = "# Report\n\nAll is **well**.\n\n" + "word " * 5000
    post, file = answer(text, FOOT, "100.1", 3500)
    assert shown(post) == f"# Report\n\nAll is **well**.\n\n_Full answer attached._\n\n{FOOT}"
    assert isinstance(file, Upload)
    assert file.filename == "answer.md"
    assert file.content.decode() == text.strip()
    assert file.thread == "100.1"


@pytest.mark.parametrize(
    "text", ["word " * 5000, "```\n" + "code\n" * 5000 + "```", "| a | b |\n|--|--|\n" + "| c | d |\n" * 2000]
)
def test_a_first_paragraph_without_end_is_cut(text: str) -> None:
    post, file = answer(text, FOOT, None, 1000)
    assert len(shown(post)) <= 1000
    assert shown(post).count("```") % 2 == 0
    assert shown(post).endswith(f"_Full answer attached._\n\n{FOOT}")
    assert isinstance(file, Upload)


@pytest.mark.parametrize("text", ["short", "long enough " * 500, "very long " * 3000])
def test_the_asker_is_called_once_on_the_last_post(text: str) -> None:
    posts = [
        operation for operation in answer(text, FOOT, None, 3500, "U0ANA") if isinstance(operation, Post)
    ]
    assert [post.mention for post in posts] == ["" for _ in posts[1:]] + ["U0ANA"]


@given(st.text(st.characters(codec="utf-8"), max_size=3000), st.integers(200, 400))
def test_no_part_exceeds_the_limit_and_the_last_has_the_footer(text: str, limit: int) -> None:
    posts = [operation for operation in answer(text, FOOT, None, limit) if isinstance(operation, Post)]
    assert posts
    assert all(0 < len(shown(post)) <= limit for post in posts)
    assert shown(posts[-1]).endswith(FOOT)
    assert all(FOOT not in shown(post) for post in posts[:-1])


MARKDOWN = st.lists(
    st.one_of(
        st.sampled_from(
            [
                "```py",
                "```",
                "~~~",
                "- a",
                "  - b",
                "1. c",
                "> d",
                "    code",
                "# e",
                "",
                "| a | b |",
                "|---|---|",
                "*f",
                "`g",
            ]
        ),
        st.text(alphabet="abc *_`~>-|#1. ", max_size=40),
    ),
    max_size=30,
).map("\n".join)


@given(MARKDOWN, st.integers(200, 400))
def test_the_footer_is_never_part_of_the_answer(text: str, limit: int) -> None:
    last = [operation for operation in answer(text, FOOT, None, limit) if isinstance(operation, Post)][-1]
    tokens = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"]).parse(shown(last))
    assert tokens[-2].type == "inline"
    assert tokens[-2].level == 1
    assert tokens[-2].content == FOOT


def test_a_key_that_two_parts_would_share_is_in_neither() -> None:
    lines = [f"{number:02d}" + "kEy" * 20 for number in range(40)]
    key = "\n".join(["-----BEGIN RSA PRIVATE KEY-----", *lines, "-----END RSA PRIVATE KEY-----"])
    said = "\n".join(shown(part) for part in answer(f"{'words ' * 80}\n\n{key}\n\nDone.", FOOT, "1.1", 1000))
    assert "[redacted]" in said
    assert "kEy" not in said
    assert "Done." in said


@pytest.mark.parametrize("text", ["short", "word " * 1_500, "word " * 3_000])
def test_only_the_beginning_may_stand_where_it_was_streamed(text: str) -> None:
    posts = [each for each in answer(text, FOOT, "1.0", 3500) if isinstance(each, Post)]
    assert [post.in_place for post in posts] == [True] + [False] * (len(posts) - 1)


def test_what_calls_somebody_is_a_new_message() -> None:
    (post,) = answer("short", FOOT, "1.0", 3500, "U1")
    assert isinstance(post, Post)
    assert not post.in_place
