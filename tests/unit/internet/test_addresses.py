"""Which addresses are the public internet's."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codebutler_worker.internet.addresses import is_public

PUBLIC = (
    "1.1.1.1",
    "8.8.8.8",
    "93.184.215.14",
    "100.63.255.255",
    "172.15.0.1",
    "172.32.0.1",
    "169.253.255.255",
    "2606:2800:21f:cb07:6820:80da:af6b:8b2c",
    "2a00:1450:4001:82a::200e",
    "64:ff9b::1.1.1.1",  # a public server, seen from a network that has only IPv6
)
PRIVATE = (
    "127.0.0.1",
    "127.255.255.254",
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "100.64.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "169.254.1.1",
    "198.18.0.1",
    "198.19.255.255",
    "192.0.2.1",
    "198.51.100.1",
    "203.0.113.1",
    "192.88.99.1",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "::1",
    "::",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:1.1.1.1",
    "::ffff:0:127.0.0.1",
    "64:ff9b::127.0.0.1",
    "64:ff9b::10.0.0.1",
    "64:ff9b::169.254.169.254",
    "64:ff9b:1::1.1.1.1",
    "2002:7f00:1::",
    "2002:0a00:0001::1",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "2001:db8::1",
    "3fff::1",
    "5f00::1",
    "fc00::1",
    "fd12:3456::1",
    "fe80::1",
    "fe80::1%eth0",
    "2606:4700::1111%eth0",
    "fec0::1",
    "ff02::1",
    "100::1",
    "4000::1",
)
METADATA = (
    "169.254.169.254",
    "169.254.170.2",
    "100.100.100.200",
    "168.63.129.16",
    "192.0.0.192",
    "fd00:ec2::254",
    "fd20:ce::254",
)
NO_ADDRESSES = (
    "",
    "localhost",
    "2130706433",
    "0x7f.1",
    "0177.0.0.1",
    "127.1",
    "1.1.1.1 ",
    "1.1.1.1\n",
    "１.1.1.1",
)


@pytest.mark.parametrize("address", PUBLIC)
def test_public_servers_may_be_asked(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize("address", [*PRIVATE, *METADATA, *NO_ADDRESSES])
def test_nothing_else_may(address: str) -> None:
    assert not is_public(address)


@given(st.ip_addresses(v=4))
def test_what_python_calls_private_is_never_public(address: ipaddress.IPv4Address) -> None:
    assert address.is_global or not is_public(str(address))


@given(st.ip_addresses(v=6))
def test_no_ipv6_address_hides_a_private_ipv4_one(address: ipaddress.IPv6Address) -> None:
    if is_public(str(address)):
        inside = address.ipv4_mapped or address.sixtofour or (address.teredo and address.teredo[1])
        assert not inside
        assert address.is_global


@given(st.ip_addresses(v=4))
def test_nat64_is_as_public_as_what_it_leads_to(address: ipaddress.IPv4Address) -> None:
    through = ipaddress.IPv6Address(int(ipaddress.IPv6Address("64:ff9b::")) | int(address))
    assert is_public(str(through)) == is_public(str(address))
