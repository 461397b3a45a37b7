"""Which proxy leads to an address."""

from __future__ import annotations

import pytest

from codebutler_worker.internet.remote import proxy_of


@pytest.mark.parametrize(
    ("url", "proxy"),
    [
        ("https://api.openai.com/v1", "http://proxy.example:3128"),
        ("http://api.openai.com/v1", None),
        ("https://whisper.intern.example/v1", None),
        ("https://127.0.0.1:8000/v1", None),
        ("https://localhost/v1", None),
    ],
)
def test_which_proxy_counts(url: str, proxy: str | None) -> None:
    env = {"HTTPS_PROXY": "http://proxy.example:3128", "NO_PROXY": "localhost,.intern.example"}
    assert proxy_of(url, env) == proxy
    assert proxy_of(url, {}) is None
