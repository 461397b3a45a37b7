"""Which addresses an agent may fetch pages from: URLs before any name is resolved, and the resolved addresses.

Only the public internet. Everything else is refused: this machine, its networks, cloud metadata services, and IPv6
addresses that contain an IPv4 one. Lists: IANA's special-purpose address registries; the addresses of AWS, Azure, GCP,
Alibaba and Oracle metadata services. ``ipaddress.is_global`` is not enough: it calls Azure's 168.63.129.16 public.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable
from functools import cache
from urllib.parse import SplitResult, urljoin, urlsplit

from msgspec import Struct

from codebutler.domain.errors import CodeButlerError

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
"""All global unicast addresses that IANA has assigned; anything outside is refused."""
_REFUSED_6 = (
    "2001::/23",  # protocol assignments, Teredo among them
    "2001:db8::/32",
    "2002::/16",  # 6to4 carries an IPv4 address
    "2620:4f:8000::/48",
    "3fff::/20",
)
_NAT64 = "64:ff9b::/96"
"""In an IPv6-only network the resolver maps IPv4 servers to these addresses (RFC 6052)."""

Resolve = Callable[[str, int], Awaitable[tuple[str, ...]]]
"""The addresses of a host. Raises OSError if it has none."""

MAX_URL_CHARS = 2048
PORTS = {"http": 80, "https": 443}
_LOCAL = ("localhost", "local", "internal", "intranet", "lan", "home", "corp", "private", "arpa", "onion")
"""Suffixes of names that are never on the public internet, such as ``metadata.google.internal``."""
_UNSAFE = re.compile(r"[\x00-\x20\x7f\\]|[^\x00-\x7f\w\-.~!$&'()*+,;=:@/?#\[\]%]")


def is_public(address: str) -> bool:
    """Whether ``address``, as a resolver returns it, is on the public internet."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False  # not an address, or one with a scope, which is link-local
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


class PageRefusedError(CodeButlerError):
    """This page may not be fetched; the message is one line that says why."""


class NotPublicError(PageRefusedError):
    """The host is not on the public internet."""


async def system_resolve(host: str, port: int) -> tuple[str, ...]:
    """The answer of this machine's resolver. Raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    # "fe80::1%eth0": the scope is returned apart from the address, and makes it link-local.
    addresses = (f"{at[0]}%{at[3]}" if len(at) == 4 and at[3] else str(at[0]) for *_, at in found)
    return tuple(dict.fromkeys(addresses))


async def public_address(host: str, port: int, resolve: Resolve) -> str:
    """An address of ``host``, resolved once. Connect to exactly this one, since a second look-up could give another
    answer (DNS rebinding). A name with both public and private addresses is an attack, and refused too.

    Raises PageRefusedError.
    """
    try:
        addresses = await resolve(host, port)
    except (OSError, UnicodeError):
        addresses = ()
    if not addresses:
        raise PageRefusedError(f"cannot resolve {host[:100]}")
    if not all(is_public(address) for address in addresses):
        raise NotPublicError(f"{host[:100]} is not on the public internet")
    # IPv4 first: without IPv6, a connection would wait until it times out.
    return min(addresses, key=lambda address: ":" in address)


class PageAddress(Struct, frozen=True):
    """The address of a page. ``host`` is lower case, in ASCII and without brackets."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        """The value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """The full URL to request: without user name, password and fragment."""
        return f"{self.scheme}://{self.authority}{self.path}"


def parse_address(url: str, base: PageAddress | None = None) -> PageAddress:
    """Parse ``url``, relative to ``base`` for a redirect. Raises PageRefusedError."""
    if not url or len(url) > MAX_URL_CHARS:
        raise PageRefusedError(f"an address has 1 to {MAX_URL_CHARS} characters")
    # Check before parsing: parsers that treat such characters differently see different hosts.
    if _UNSAFE.search(url):
        raise PageRefusedError(
            "the address holds spaces, control characters or a backslash: write them as %XX"
        )
    try:
        parts = urlsplit(urljoin(base.url, url) if base else url)
        return _check_address(parts, parts.port)
    except ValueError as error:
        raise PageRefusedError(f"not a valid URL: {error}") from None


def _check_address(parts: SplitResult, port: int | None) -> PageAddress:
    if parts.scheme not in PORTS:
        raise PageRefusedError("only http and https addresses can be fetched")
    if "@" in parts.netloc:
        raise PageRefusedError("an address with a user name or password is not fetched")
    if port is not None and port not in PORTS.values():
        raise PageRefusedError("only ports 80 and 443 are allowed")
    host = _host(parts.hostname or "")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return PageAddress(parts.scheme, host, port or PORTS[parts.scheme], path)


def _host(name: str) -> str:
    if not name or "%" in name:
        raise PageRefusedError("the address names no host")
    if not name.isascii():
        import idna

        try:
            name = idna.encode(name, uts46=True).decode()
        except idna.IDNAError:
            raise PageRefusedError("the address names no host that could exist") from None
    host = name.lower().rstrip(".")
    if ":" in host:
        return host  # an IPv6 address, which the resolver returns unchanged
    labels = host.split(".")
    if len(labels) < 2 or labels[-1] in _LOCAL:
        raise PageRefusedError(f"{host[:100]} is not a public name")
    return host
