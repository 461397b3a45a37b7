"""Our own Markdown: what is foreign in it shows as it is, to us and to every reader of CommonMark."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codebutler.text.markdown import parser
from codebutler.text.markup import Span, bare, clip, code, fence, people_in, person, plain, spans, words

FOREIGN = st.text(
    st.sampled_from("ab \n\\`*_[]()<>#+-=.!|~&>1:/@") | st.characters(codec="utf-8"), max_size=60
)


@given(FOREIGN, FOREIGN)
def test_foreign_text_is_one_piece_of_text_wherever_it_stands(before: str, foreign: str) -> None:
    assert list(spans(plain(foreign))) == ([Span("text", foreign)] if foreign else [])
    assert words(f"**x** {plain(foreign)}") == f"x {foreign}"
    assert words(plain(before) + plain(foreign)) == before + foreign
    assert people_in(plain(foreign)) == ()


@pytest.mark.parametrize(
    "foreign",
    [
        "# a", "> a", "- a", "+ a", "* a", "1. a", "2) a", "---", "a\n===", "a\n---", "```\na\n```", "~~~\na", "`a`",
        "**a**", "_a_", "~~a~~", "[a](https://b.c)", "![a](b)", "<https://b.c>", "<b>", "&lt;", "| a |\n|---|", "a\\b",
        "[a]: /b", "  - a", "a\n> b", "a\n1. b",
    ],
)  # fmt: skip
def test_for_others_who_read_markdown_it_is_text_too(foreign: str) -> None:
    tokens = parser().parse(plain(foreign))
    assert [token.type for token in tokens] == ["paragraph_open", "inline", "paragraph_close"]
    (inline,) = [token for token in tokens if token.type == "inline"]
    kinds = {child.type for child in inline.children or []}
    assert kinds <= {"text", "text_special", "softbreak"}


@given(FOREIGN)
def test_code_holds_whatever_it_is_given(foreign: str) -> None:
    assert next(spans(fence(foreign))).kind == "fence"
    assert len(list(spans(fence(foreign)))) == 1
    line = " ".join(foreign.split()).strip()
    if line:
        assert list(spans(code(line))) == [Span("code", line.replace("`", "'"))]


def test_marks_are_read() -> None:
    text = "a **b\\*** _c_ [d](https://e.f) `g*`\n> h\n```\n**i**\n```"
    assert list(spans(text)) == [
        Span("text", "a "),
        Span("bold", "b\\*"),
        Span("text", " "),
        Span("italic", "c"),
        Span("text", " "),
        Span("link", "d", "https://e.f"),
        Span("text", " "),
        Span("code", "g*"),
        Span("text", "\n"),
        Span("quote", "> "),
        Span("text", "h\n"),
        Span("fence", "**i**"),
    ]


def test_somebody_is_named_by_an_id_and_nothing_else() -> None:
    assert people_in(f"by {person('U0ANA')}") == ("U0ANA",)
    assert people_in(person("U0ANA](person:U0BEN)")) == ()
    assert people_in("[x](person:U0BEN) \\[@U0BEN](person:U0BEN) [@U0ANA](person:U0BEN)") == ()
    assert people_in(plain(person("U0ANA"))) == ()


@given(FOREIGN, st.integers(1, 80))
def test_a_cut_leaves_no_half_escape(foreign: str, limit: int) -> None:
    cut = clip(plain(foreign), limit)
    assert len(cut) <= max(limit, 1)
    assert not cut.endswith("\\…") or cut.endswith("\\\\…")


def test_a_reader_of_the_source_sees_no_escapes() -> None:
    assert bare("a\\_b `c\\_d` \\<e>") == "a_b `c\\_d` <e>"


@pytest.mark.parametrize(
    "sign", ["`", "``` ", "[", "**a ", "_a ", "\\", "[a](", "> ", "`a", "[[a]", "```\n", "**_`["]
)
def test_whatever_a_worker_writes_is_read_in_no_time(sign: str) -> None:
    assert sum(len(span.text) for span in spans(sign * (50_000 // len(sign)))) <= 50_000
