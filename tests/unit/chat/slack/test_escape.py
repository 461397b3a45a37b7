"""Escaping, reading Slack's text, and pinging nobody."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codebutler.chat.slack.mrkdwn import ZERO_WIDTH_SPACE, neutralise, safe, unescape


@given(st.text())
def test_escaped_text_reads_back_as_it_was(text: str) -> None:
    assert unescape(safe(text)) == neutralise(text)


@given(st.text(alphabet="<>&amp;lt#x3c;@!UC1|-"))
def test_escaped_text_holds_no_control_sequence(text: str) -> None:
    assert "<" not in safe(text)
    assert ">" not in safe(text)


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        ("<@U1> fix it", "@U1 fix it"),
        ("<@U1|bob>", "@U1"),
        ("<#C1|general> and <#C2>", "#general and #C2"),
        ("<http://a.example/x|the page>", "the page (http://a.example/x)"),
        ("<http://example.com|example.com>", "example.com"),
        ("<https://example.com/>", "https://example.com/"),
        ("<mailto:a@b.example|a@b.example>", "a@b.example"),
        ("<!here> <!subteam^S1|@team> <!date^1^{date}|1970>", "@here @team 1970"),
        ("1 &lt; 2 &amp;&amp; 3 &gt; 2", "1 < 2 && 3 > 2"),
        ("&amp;lt; stays escaped once", "&lt; stays escaped once"),
        ("see <http://a.example/?x=1&amp;y=2>", "see http://a.example/?x=1&y=2"),
    ],
)
def test_unescape_gives_what_a_person_saw(sent: str, read: str) -> None:
    assert unescape(sent) == read


@pytest.mark.parametrize(
    "text",
    [
        "<!channel>", "<!here|here>", "<!subteam^S1>", "<@U123>", "<#C1>", "@channel", "@Everyone", "(@here)",
        "&lt;!channel&gt;", "<\\!channel>", "\\<@U1>", "&#60;@U1>", "&#x3C;!here>", "<&#33;channel>",
        "<&commat;U1>",
    ],
)  # fmt: skip
def test_no_spelling_of_a_mention_survives(text: str) -> None:
    guarded = neutralise(text)
    assert guarded.replace(ZERO_WIDTH_SPACE, "") == text
    assert ZERO_WIDTH_SPACE in guarded
    assert neutralise(guarded) == guarded


@pytest.mark.parametrize(
    "text", ["a@here.example", "x <!-- note -->", "<!DOCTYPE html>", "@heretic", "1 < 2"]
)
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert neutralise(text) == text


@given(st.text(alphabet="<@!#&lt;chanelr>U1\\ "))
def test_neutralised_and_escaped_text_has_no_mention(text: str) -> None:
    assert not re.search(r"<[@!#]|(?<![\w.])@(channel|here|everyone)\b", safe(text))
