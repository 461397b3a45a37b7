"""Markdown as Slack shows it."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codebutler.chat.slack.mrkdwn import ZERO_WIDTH_SPACE, clip_mrkdwn, to_mrkdwn
from codebutler.text.markdown import beginning


@pytest.mark.parametrize(
    ("markdown", "mrkdwn"),
    [
        ("**b** and __c__", "*b* and *c*"),
        ("*i* and _j_", "_i_ and _j_"),
        ("~~s~~", "~s~"),
        ("***both***", "_*both*_"),
        ("2*3*4", f"2{ZERO_WIDTH_SPACE}_3_{ZERO_WIDTH_SPACE}4"),
        ("# Head", "*Head*"),
        ("### Head with **bold** `a<b`", "*Head with bold `a&lt;b`*"),
        ("one\ntwo", "one\ntwo"),
        ("one\n\ntwo", "one\n\ntwo"),
        ("**across\nlines**", "*across lines*"),
        ("- a\n- b", "• a\n• b"),
        ("- a\n  - b\n    - c", "• a\n    ◦ b\n        ▪ c"),
        ("3. a\n4. b", "3. a\n4. b"),
        ("- [ ] open\n- [x] shut", "☐ open\n☑ shut"),
        ("> q\n> r", "> q\n> r"),
        ("a\n\n---\n\nb", f"a\n\n{'─' * 20}\n\nb"),
        ("```py\nx = 1 < 2\n```", "```\nx = 1 &lt; 2\n```"),
        ("    indented", "```\nindented\n```"),
        ("`a & b`", "`a &amp; b`"),
        ("`` a`b ``", "`aˋb`"),
        ("<b>html</b>", "&lt;b&gt;html&lt;/b&gt;"),
        ("<div>\nx\n</div>", "&lt;div&gt;\nx\n&lt;/div&gt;"),
        ("", ""),
    ],
)
def test_marks_and_blocks(markdown: str, mrkdwn: str) -> None:
    assert to_mrkdwn(markdown) == mrkdwn


@pytest.mark.parametrize(
    ("markdown", "mrkdwn"),
    [
        ("[docs](https://a.example/x)", "<https://a.example/x|docs>"),
        ("[a **b** c](https://a.example)", "<https://a.example|a b c>"),
        ("[q](https://a.example/?a=1&b=2)", "<https://a.example/?a=1&amp;b=2|q>"),
        ("[q](https://a.example/x|y)", "<https://a.example/x%7Cy|q>"),
        ("[q](<https://a.example/x y>)", "<https://a.example/x%20y|q>"),
        ("[a > b](https://a.example)", "<https://a.example|a &gt; b>"),
        ("<https://a.example/x>", "<https://a.example/x>"),
        ("![chart](https://a.example/c.png)", "<https://a.example/c.png|chart>"),
        ("[app.py](src/app.py)", "app.py (src/app.py)"),
        ("[x](javascript:alert(1))", "[x](javascript:alert(1))"),
        ("[https://bank.example](https://evil.example)", "https://bank.example (<https://evil.example>)"),
        ("[fix: the login](https://a.example)", "<https://a.example|fix: the login>"),
        ("[https: //bank.example](https://evil.example)", "https: //bank.example (<https://evil.example>)"),
        ("[bank.example](https://evil.example)", "bank.example (<https://evil.example>)"),
    ],
)
def test_links_lead_where_they_say(markdown: str, mrkdwn: str) -> None:
    assert to_mrkdwn(markdown) == mrkdwn


def test_a_table_is_an_aligned_code_block() -> None:
    table = "| name | n |\n|---|--:|\n| `a\\|b` | 日本 |\n| <c> | **22** |"
    assert to_mrkdwn(table) == "```\nname | n\n-----+-----\na|b  | 日本\n&lt;c&gt;  | 22\n```"


def test_a_fence_inside_a_fence_does_not_end_it() -> None:
    shown = to_mrkdwn("````\n```\n<!channel>\n```\n````")
    assert shown.count("```") == 2
    assert "<!" not in shown


def test_a_list_item_keeps_its_code_and_paragraphs() -> None:
    shown = to_mrkdwn("1. run\n\n   ```sh\n   make\n   ```\n2. look")
    assert shown == "1. run\n    ```\n    make\n    ```\n2. look"


MARKUP = st.text(alphabet="*_~`[]()<>!@#|-+>&;:/\\ \n\t1.aUC\u200bhttps", max_size=200)


@given(st.one_of(st.text(max_size=100), MARKUP))
def test_any_input_is_safe(markdown: str) -> None:
    shown = to_mrkdwn(markdown)
    assert not re.search(r"<[@!#]", shown)
    assert not re.search(r"&(?!amp;|lt;|gt;)", shown)
    for target in re.findall(r"<([^<>]*)>", shown):
        assert re.match(r"(https?|mailto):", target, re.IGNORECASE), shown


@pytest.mark.parametrize(
    ("markdown", "first"),
    [
        ("One.\nTwo.\n\nThree.", "One.\nTwo."),
        ("# Title\n\n## Part\n\nOne.\n\nTwo.", "# Title\n\n## Part\n\nOne."),
        ("- a\n\n- b\n\nTwo.", "- a\n\n- b\n"),
        ("```\na\n\nb\n```\nTwo.", "```\na\n\nb\n```"),
        ("# Only a title", "# Only a title"),
        ("", ""),
    ],
)
def test_the_beginning_is_the_first_block_below_the_headings(markdown: str, first: str) -> None:
    assert beginning(markdown) == first


@given(st.one_of(st.text(max_size=400), MARKUP), st.integers(20, 200))
def test_a_cut_leaves_nothing_half(markdown: str, limit: int) -> None:
    shown = clip_mrkdwn(to_mrkdwn(markdown), limit)
    assert len(shown) <= limit
    assert not re.search(r"&(?!amp;|lt;|gt;)", shown)
    quoted = "".join(re.findall(r"^[\s•>]*", shown, re.MULTILINE)).count(">")
    assert shown.count("<") == shown.count(">") - quoted
    if shown.endswith("…"):
        assert shown.count("```") % 2 == 0


@pytest.mark.parametrize(
    "hostile",
    [
        "*a **b " * 3000,
        "[" * 5000,
        "> " * 3000 + "x",
        "- " * 2000,
        "`" * 20000,
        "| a " * 2000 + "\n" + "|-" * 2000,
    ],
)
def test_hostile_nesting_costs_no_recursion_and_little_time(hostile: str) -> None:
    started_s = time.thread_time()
    assert isinstance(to_mrkdwn(hostile), str)
    assert time.thread_time() - started_s < 10
