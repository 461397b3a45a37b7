"""Whatever an agent writes, Telegram takes it, and nothing of it is lost."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from codebutler.chat.telegram.entities import MAX_ENTITIES, MAX_UNITS, Builder, Entity, FormattedText, split
from codebutler.chat.telegram.render import Mentions, write_agent_markdown, write_own_markdown
from tests.telegram.methods import check_nesting, checked_text

PIECES = st.sampled_from(
    [
        "# Head\n", "- item\n", "  - inner\n", "1. one\n", "> said\n", "```py\nx = 1\n", "```\n", "**bold**", "*it*",
        "~~no~~", "`code`", "[a](https://example.com/x)", "[b](src/a.py)", "![p](x.png)",
        "| a | b |\n|---|---|\n| 1 | 2 |\n",
        "\n\n", "\n", " ", "    indented\n", "word", "@ana", "README.md", "🦊", "é", "***x***", "**`c`**", "[`c`](https://a.b)",
        "> ```\n> q\n> ```\n", "- [x] done\n", "---\n", "<b>", "&amp;", "\\*", "\ud800", "\x00",
    ]
)  # fmt: skip
MARKDOWN = st.lists(PIECES | st.text(max_size=20), max_size=60).map("".join)


def shown(markdown: str) -> FormattedText:
    out = Builder()
    write_agent_markdown(out, markdown)
    return out.build()


def squeezed(text: str) -> str:
    return re.sub(r"\s", "", text)


def as_sent(part: FormattedText) -> dict[str, Any]:
    return {"text": part.text, "entities": part.as_json()}


@settings(max_examples=400, deadline=None)
@given(MARKDOWN)
@example("**a `b` c**")
@example("> **a\n> ```\n> x\n> ```")
def test_telegram_takes_whatever_markdown_becomes(markdown: str) -> None:
    for part in split(shown(markdown)):
        checked_text(as_sent(part), "text", MAX_UNITS)
        assert part.text == part.text.strip() or part.entities[0].kind == "pre"


@settings(max_examples=300, deadline=None)
@given(MARKDOWN, st.integers(min_value=8, max_value=200), st.integers(min_value=3, max_value=10))
def test_parts_lose_nothing_and_fit(markdown: str, limit: int, max_entities: int) -> None:
    whole = shown(markdown)
    parts = split(whole, limit, max_entities)
    assert squeezed("".join(part.text for part in parts)) == squeezed(whole.text)
    for part in parts:
        assert part.units <= limit
        assert len(part.entities) <= max_entities
        check_nesting(part.as_json())
        for entity in part.entities:
            assert 0 <= entity.start < entity.end <= len(part.text)


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet=st.characters(categories=["L", "N"]), min_size=1, max_size=200))
def test_no_word_is_lost(text: str) -> None:
    assert squeezed(shown(text).text) == squeezed(text)


@settings(max_examples=200, deadline=None)
@given(MARKDOWN)
def test_our_own_markdown_is_taken_too(markdown: str) -> None:
    out = Builder()
    write_own_markdown(out, markdown, Mentions())
    for part in split(out.build()):
        checked_text(as_sent(part), "text", MAX_UNITS)


def test_offsets_are_utf_16_units() -> None:
    assert shown("🦊🦊 **x**").as_json() == [{"type": "bold", "offset": 5, "length": 1}]


def test_a_block_of_code_that_fits_is_kept_whole() -> None:
    code = "line\n" * 20
    parts = split(shown(f"{'word ' * 30}\n\n```py\n{code}```\n\nafter"), limit=200)
    (block,) = [part for part in parts if any(each.kind == "pre" for each in part.entities)]
    assert "\n".join(["line"] * 20) in block.text


def test_a_longer_one_goes_on_as_code_of_the_same_language() -> None:
    parts = split(shown("```py\n" + "".join(f"line {n}\n" for n in range(60)) + "```"), limit=200)
    assert len(parts) > 2
    for part in parts:
        assert part.entities == (Entity("pre", 0, len(part.text), (("language", "py"),)),)
        assert all(re.fullmatch(r"line \d+", line) for line in part.text.split("\n"))


def test_more_entities_than_a_message_may_have_make_more_parts() -> None:
    parts = split(shown(" ".join(f"`c{n}`" for n in range(250))))
    assert [len(part.entities) for part in parts] == [100, 100, 50]
    assert len(parts[0].entities) <= MAX_ENTITIES


def test_the_indentation_of_code_at_the_beginning_stays() -> None:
    assert shown("```\n    deep\n  less\n```").text == "    deep\n  less"
