"""Which addresses of pages may be asked for at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codebutler_worker.internet.addresses import PageRefusedError, parse_address


@pytest.mark.parametrize(
    ("given_url", "asked"),
    [
        ("https://example.com", "https://example.com/"),
        ("http://Example.COM:80/a/b?c=d#frag", "http://example.com/a/b?c=d"),
        ("https://example.com:443/", "https://example.com/"),
        ("http://example.com:443/", "http://example.com:443/"),
        ("https://example.com./x", "https://example.com/x"),
        ("https://bücher.example.org/ä", "https://xn--bcher-kva.example.org/ä"),
        ("https://[2606:4700::1111]/", "https://[2606:4700::1111]/"),
        (
            "http://127.0.0.1/",
            "http://127.0.0.1/",
        ),  # refused when it is looked up, like every private address
        ("http://１２７.0.0.1/", "http://127.0.0.1/"),
        ("http://0x7f.1/", "http://0x7f.1/"),
    ],
)
def test_an_address_is_read_once_and_asked_for_as_it_was_read(given_url: str, asked: str) -> None:
    assert parse_address(given_url).url == asked


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.com",
        "//example.com/",
        "file:///etc/passwd",
        "gopher://example.com/_SET",
        "ftp://example.com/",
        "data:text/html,hello",
        "javascript:alert(1)",
        "unix:///run/docker.sock",
        "http://",
        "http:///etc/passwd",
        "http://user@example.com/",
        "http://user:word@example.com/",
        "http://example.com@127.0.0.1/",
        "http://example.com:22/",
        "http://example.com:6379/",
        "http://example.com:8080/",
        "http://example.com:port/",
        "http://example.com:99999/",
        "http://localhost/",
        "http://LOCALHOST./",
        "http://app.localhost/",
        "http://metadata.google.internal/computeMetadata/v1/",
        "http://metadata/",
        "http://printer.local/",
        "http://2130706433/",
        "http://example.com\x00.evil.org/",
        "http://example.com\r\nHost: evil/",
        "http://example.com\\@127.0.0.1/",
        "http://exa mple.com/",
        "http://example%2ecom/",
        "http://fe80::1%25eth0/",
        "http://[fe80::1%25eth0]/",
        "http://[::1/",
        "http://example.com/" + "a" * 3000,
    ],
)
def test_what_is_no_page_of_the_web_is_refused(url: str) -> None:
    with pytest.raises(PageRefusedError) as refused:
        parse_address(url)
    assert "\n" not in str(refused.value)


def test_a_redirect_is_read_like_an_address() -> None:
    first = parse_address("https://example.com/a/b")
    assert parse_address("../c?d", base=first).url == "https://example.com/c?d"
    assert parse_address("//example.org/", base=first).url == "https://example.org/"
    with pytest.raises(PageRefusedError):
        parse_address("file:///etc/passwd", base=first)
    with pytest.raises(PageRefusedError):
        parse_address("http://localhost/", base=first)


@given(st.text(max_size=60))
def test_anything_is_a_target_or_refused(text: str) -> None:
    try:
        found = parse_address(f"http://{text}")
    except PageRefusedError:
        return
    assert found.port in (80, 443)
    assert parse_address(found.url) == found
