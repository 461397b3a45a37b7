"""How Markdown looks in Telegram."""

from __future__ import annotations

import pytest

from codebutler.chat.telegram.entities import Builder, FormattedText
from codebutler.chat.telegram.render import Mentions, write_agent_markdown, write_own_markdown
from codebutler.text.markup import fence


def shown(markdown: str) -> FormattedText:
    out = Builder()
    write_agent_markdown(out, markdown)
    return out.build()


def ours(markdown: str, *names: str) -> FormattedText:
    out = Builder()
    write_own_markdown(out, markdown, Mentions(names, {"tg:111": "Ana"}.get))  # type: ignore[arg-type]  # IDs as text
    return out.build()


def marks(text: FormattedText) -> list[tuple[str, str]]:
    return [(each.kind, text.text[each.start : each.end]) for each in text.entities]


@pytest.mark.parametrize(
    ("markdown", "text", "found"),
    [
        ("# Head\n\nbody", "Head\n\nbody", [("bold", "Head")]),
        ("a **b** _c_ ~~d~~", "a b c d", [("bold", "b"), ("italic", "c"), ("strikethrough", "d")]),
        ("run `make`", "run make", [("code", "make")]),
        ("**all `c` bold**", "all c bold", [("bold", "all "), ("code", "c"), ("bold", " bold")]),
        ("- a\n- b\n  - c", "• a\n• b\n    ◦ c", []),
        ("1. a\n2. b", "1. a\n2. b", []),
        ("- [ ] a\n- [x] b", "☐ a\n☑ b", []),
        ("> said\n> twice", "said\ntwice", [("blockquote", "said\ntwice")]),
        ("a\n\n---\n\nb", "a\n\n────────────────\n\nb", []),
        (
            "| a | bb |\n|---|---|\n| ccc | d |",
            "a   | bb\n----+---\nccc | d",
            [("pre", "a   | bb\n----+---\nccc | d")],
        ),
        ("<b>raw</b>", "<b>raw</b>", []),
        ("- a\n\n  ```\n  x\n  ```", "• a\nx", [("pre", "x")]),
    ],
)
def test_blocks_and_marks(markdown: str, text: str, found: list[tuple[str, str]]) -> None:
    assert (shown(markdown).text, marks(shown(markdown))) == (text, found)


@pytest.mark.parametrize(
    ("markdown", "text", "found"),
    [
        ("[docs](https://example.com/a)", "docs", [("text_link", "docs")]),
        ("[`docs`](https://example.com/a)", "docs", [("text_link", "docs")]),
        ("<https://example.com/a>", "https://example.com/a", [("text_link", "https://example.com/a")]),
        ("[x](src/a.py)", "x (src/a.py)", [("code", "(src/a.py)")]),
        ("[x](http://localhost:80)", "x (http://localhost:80)", [("code", "(http://localhost:80)")]),
        ("[x](tg://user?id=1)", "x (tg://user?id=1)", [("code", "(tg://user?id=1)")]),
        (
            "[mybank.com](https://evil.example/a)",
            "mybank.com https://evil.example/a",
            [("code", "mybank.com"), ("text_link", "https://evil.example/a")],
        ),
        ("see README.md", "see README.md", [("code", "README.md")]),
        ("ask @ana, mail a@b.org", "ask @\u2060ana, mail a@b.org", []),
        ("in `@code`", "in @code", [("code", "@code")]),
    ],
)
def test_links_and_names(markdown: str, text: str, found: list[tuple[str, str]]) -> None:
    assert (shown(markdown).text, marks(shown(markdown))) == (text, found)


def test_only_whom_we_may_name_is_named() -> None:
    link = "[@tg:111](person:tg:111) did"
    named = ours(link, "tg:111")
    assert named.text == "Ana did"
    (entity,) = named.entities
    assert (entity.kind, dict(entity.extra)["user"]["id"]) == ("text_mention", 111)
    assert (ours(link).text, ours(link).entities) == ("Ana did", ())


def test_our_own_line_breaks_quotes_and_fences() -> None:
    text = ours(f"one\n> quoted **well**\ntwo\n{fence('x = 1')}\nthree")
    assert text.text == "one\nquoted well\ntwo\nx = 1\nthree"
    assert ("pre", "x = 1") in marks(text)
    assert ("bold", "well") in marks(text)
    assert [kind for kind, _ in marks(text)].count("blockquote") >= 1
