"""Whether a URL leads to this machine, and which proxy stands before it."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass


def is_loopback(url: str) -> bool:
    """Does ``url`` name this machine?"""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def proxy_for(url: str) -> str | None:
    """The proxy that the environment names for ``url``; none for this machine, NO_PROXY is honoured."""
    parts = urlsplit(url)
    if is_loopback(url) or proxy_bypass(parts.hostname or ""):
        return None
    return getproxies_environment().get(parts.scheme)
