"""Which network addresses belong to the public internet. Pure.

Everything else is refused: this machine, its networks, the metadata services of clouds, and the forms in which an
IPv6 address carries an IPv4 one. Lists: IANA's special-purpose address registries; the addresses of AWS, Azure, GCP,
Alibaba and Oracle metadata services. ``ipaddress.is_global`` is not enough: it calls Azure's 168.63.129.16 public.
"""

from __future__ import annotations

import ipaddress
from functools import cache

_REFUSED_4 = (
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",  # shared between customers and their provider; Alibaba's metadata
    "127.0.0.0/8",
    "168.63.129.16/32",  # Azure's metadata
    "169.254.0.0/16",  # link-local; AWS', Azure's and GCP's metadata
    "172.16.0.0/12",
    "192.0.0.0/24",  # protocol assignments; Oracle's metadata
    "192.0.2.0/24",
    "192.31.196.0/24",
    "192.52.193.0/24",
    "192.88.99.0/24",
    "192.168.0.0/16",
    "192.175.48.0/24",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "224.0.0.0/4",
    "240.0.0.0/4",
)
_PUBLIC_6 = "2000::/3"
"""All that IANA has given out as global unicast; what is not in it is refused by that alone."""
_REFUSED_6 = (
    "2001::/23",  # protocol assignments, Teredo among them
    "2001:db8::/32",
    "2002::/16",  # 6to4 carries an IPv4 address
    "2620:4f:8000::/48",
    "3fff::/20",
)
_NAT64 = "64:ff9b::/96"
"""Where a network has only IPv6, its resolver gives IPv4 servers these addresses (RFC 6052)."""


def is_public(address: str) -> bool:
    """Whether ``address``, as a resolver gives it, is one that anybody on the internet may offer pages at."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False  # no address, or one with a scope: that is a neighbour
    if isinstance(found, ipaddress.IPv4Address):
        return _is_public_4(found)
    if found.scope_id is not None:
        return False
    if found in ipaddress.IPv6Network(_NAT64):
        return _is_public_4(ipaddress.IPv4Address(int(found) & 0xFFFFFFFF))
    public, refused = _networks_6()
    return found in public and not any(found in network for network in refused)


def _is_public_4(address: ipaddress.IPv4Address) -> bool:
    return not any(address in network for network in _networks_4())


@cache
def _networks_4() -> tuple[ipaddress.IPv4Network, ...]:
    return tuple(ipaddress.IPv4Network(network) for network in _REFUSED_4)


@cache
def _networks_6() -> tuple[ipaddress.IPv6Network, tuple[ipaddress.IPv6Network, ...]]:
    return ipaddress.IPv6Network(_PUBLIC_6), tuple(ipaddress.IPv6Network(network) for network in _REFUSED_6)
