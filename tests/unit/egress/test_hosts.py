"""Which hosts are on a list."""

from __future__ import annotations

import pytest

from codebutler_worker.egress.hosts import HostPort, Hosts, local_places, place


@pytest.mark.parametrize(
    ("authority", "found"),
    [
        ("example.org:443", HostPort("example.org", 443)),
        ("EXAMPLE.org.:80", HostPort("example.org", 80)),
        ("93.184.216.34:8080", HostPort("93.184.216.34", 8080)),
        ("[2001:DB8::0:1]:443", HostPort("2001:db8::1", 443)),
        ("xn--bcher-kva.example:443", HostPort("xn--bcher-kva.example", 443)),
    ],
)
def test_a_place_is_read_in_one_way(authority: str, found: HostPort) -> None:
    assert place(authority) == found
    assert place(found.authority) == found


@pytest.mark.parametrize(
    "authority",
    ["", "example.org", ":443", "example.org:0", "example.org:65536", "example.org:443:1", "exa mple.org:443",
     "user@example.org:443", "example.org\x00.evil.example:443", "example.org%00.evil.example:443",
     "example.org/:443", "127.1:80", "0x7f.1:80", "2130706433:80", "0177.0.0.1:80", "127.0.0.0x1:80", "１２７.0.0.1:80",
     "-evil.example:443", "a..b:443", "[::1%eth0]:80", "[example.org]:443", "bücher.example:443", f"{'a' * 254}.x:443"],
)  # fmt: skip
def test_what_could_be_read_otherwise_is_no_place(authority: str) -> None:
    assert place(authority) is None


@pytest.mark.parametrize(
    ("entry", "host", "port", "allowed"),
    [
        ("example.org", "example.org", 443, True),
        ("example.org", "example.org", 80, True),
        ("example.org", "example.org", 22, False),
        ("example.org", "www.example.org", 443, False),
        ("example.org", "example.org.evil.example", 443, False),
        ("example.org", "notexample.org", 443, False),
        ("Example.org", "example.org", 443, True),
        ("example.org:22", "example.org", 22, True),
        ("example.org:22", "example.org", 443, False),
        ("*.example.org", "www.example.org", 443, True),
        ("*.example.org", "a.b.example.org", 443, True),
        ("*.example.org", "example.org", 443, False),
        ("*.example.org", "evilexample.org", 443, False),
        ("*.example.org:8443", "www.example.org", 8443, True),
        ("10.0.0.5:3000", "10.0.0.5", 3000, True),
        ("10.0.0.5:3000", "10.0.0.5", 443, False),
        ("[::1]:3000", "::1", 3000, True),
        ("::1", "::1", 443, False),
    ],
)
def test_the_list_is_kept(entry: str, host: str, port: int, allowed: bool) -> None:
    assert Hosts((entry,)).allow(HostPort(host, port)) is allowed


def test_an_empty_list_is_nobody() -> None:
    assert not Hosts().allow(HostPort("example.org", 443))


@pytest.mark.parametrize(
    ("entries", "local"),
    [
        (("127.0.0.1:5432", "localhost:8080"), {5432: "127.0.0.1", 8080: "localhost"}),
        (("127.0.0.1",), {80: "127.0.0.1", 443: "127.0.0.1"}),
        (("LOCALHOST.:9000", "127.0.0.1:9000"), {9000: "localhost"}),
        (
            (
                "127.0.0.2:1",
                "[::1]:2",
                "10.0.0.5:3",
                "example.org:4",
                "*.localhost:5",
                "127.1:6",
                "127.0.0.1:0",
            ),
            {},
        ),
    ],
)
def test_which_ports_of_this_machine_are_listed(entries: tuple[str, ...], local: dict[int, str]) -> None:
    assert {port: at.host for port, at in local_places(entries).items()} == local
