"""Who may ask, by what a browser says of them."""

from __future__ import annotations

import pytest

from codebutler.platform.http import admits, is_loopback


@pytest.mark.parametrize(
    "host", ["127.0.0.1:7788", "localhost:7788", "[::1]:7788", "localhost", "LOCALHOST:1"]
)
def test_this_machine_by_its_own_names(host: str) -> None:
    assert admits(host, None, "127.0.0.1")
    assert admits(host, f"http://{host}", "127.0.0.1")


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example:7788",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "192.168.1.5:7788",
        "[::1",
        "@",
        "[evil",
    ],
)
def test_no_other_name_where_only_this_machine_is_served(host: str) -> None:
    assert not admits(host, None, "127.0.0.1")


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "",
        "http://evil.example",
        "https://127.0.0.1:7788",
        "http://127.0.0.1",
        "http://127.0.0.1:3000",
        "file://",
    ],
)
def test_no_other_sites_page(origin: str) -> None:
    assert not admits("127.0.0.1:7788", origin, "127.0.0.1")


def test_beyond_this_machine_an_address_or_the_configured_name() -> None:
    assert admits("192.168.1.5:7788", None, "0.0.0.0")
    assert admits("[fe80::1]:7788", None, "::")
    assert admits("box.local:7788", None, "Box.local")
    assert not admits("evil.example:7788", None, "0.0.0.0")
    assert not admits("evil.example:7788", None, "box.local")


def test_what_only_this_machine_reaches() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.1.2.3", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "192.168.1.5", "box.local", "")))
