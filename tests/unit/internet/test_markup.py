"""What a model is given to read of a page."""

from __future__ import annotations

import time

import pytest

from codebutler_worker.internet.fetch import is_readable, text_of

PAGE = b"""<html><head><title>T</title><style>p{color:red}</style><script>steal()</script></head>
<body><h1>Head</h1><p>One <a href="https://example.org/z?a=1">link</a>.</p>
<pre><code>def f():
    return 1</code></pre><table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2</td></tr></table></body></html>"""


def test_html_becomes_markdown_without_scripts_and_styles() -> None:
    text = text_of(PAGE, "text/html; charset=utf-8")
    assert "# Head" in text
    assert "[link](https://example.org/z?a=1)" in text
    assert "def f():\n    return 1" in text
    assert "| 1 | 2 |" in text
    assert "steal" not in text
    assert "color" not in text


def test_other_text_stays_as_it_is() -> None:
    assert text_of(b'{"a": "<b>"}', "application/json") == '{"a": "<b>"}'


@pytest.mark.parametrize(
    ("content", "content_type", "text"),
    [
        ("grüße".encode("latin-1"), "text/plain; charset=ISO-8859-1", "grüße"),
        ("grüße".encode(), "text/plain", "grüße"),
        ("<meta charset='windows-1252'>grüße".encode("cp1252"), "text/html", "grüße"),
        ("日本".encode("shift_jis"), 'text/plain; charset="Shift_JIS"', "日本"),
        (b"abc", "text/plain; charset=punycode", "abc"),
        (b"abc", "text/plain; charset=zip", "abc"),
        (b"abc", "text/plain; charset=idna", "abc"),
        (b"abc", "text/plain; charset=utf-8-nonsense", "abc"),
        (b"a\x00b\xff", "text/plain", "ab\N{REPLACEMENT CHARACTER}"),
    ],
)
def test_characters_are_what_the_server_says_if_it_says_something_sane(
    content: bytes, content_type: str, text: str
) -> None:
    assert text_of(content, content_type) == text


@pytest.mark.parametrize(
    "html",
    [
        "<div>" * 100_000 + "deep",
        "<ul><li>" * 20_000,
        "<a " + "b=c " * 100_000 + ">",
        "<b>" * 100_000,
        "&lt;" * 100_000,
    ],
    ids=["deep", "list", "attributes", "open", "entities"],
)
def test_hostile_markup_ends(html: str) -> None:
    assert isinstance(text_of(html.encode(), "text/html"), str)


def test_inline_pictures_are_left_out() -> None:
    text = text_of(b"<p>x<img src='data:image/png;base64," + b"A" * 5000 + b"' alt='pic'></p>", "text/html")
    assert len(text) < 100


@pytest.mark.parametrize("kind", ["text/html", "text/plain", "application/json", "application/atom+xml", ""])
def test_text_is_readable(kind: str) -> None:
    assert is_readable(kind)


@pytest.mark.parametrize(
    "kind", ["image/png", "application/pdf", "application/octet-stream", "audio/mpeg", "nonsense"]
)
def test_the_rest_is_not(kind: str) -> None:
    assert not is_readable(kind)


def test_addresses_of_data_that_never_end_are_read_in_linear_time() -> None:
    """Whoever writes a page decides what it holds up: nothing else runs in the worker meanwhile."""
    began_s = time.process_time()
    assert text_of(b"(data:" * 300_000, "text/plain").startswith("(data:(data:")
    assert time.process_time() - began_s < 2
    long = b"A" * 300
    assert text_of(b"a (data:image/png;base64," + long + b") b (data:short)", "text/plain") == (
        "a (data) b (data:short)"
    )
