"""Which requests may come from whom, as far as a browser tells: names of this machine only, no other site's page. Pure.

A hostile page can have its own name resolve to our address (DNS rebinding), and can send requests to any. It cannot
choose ``Host`` and ``Origin``: the browser writes them (RFC 9110, 7.2; Fetch, "Origin header").
"""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit

LOCAL_NAMES = frozenset({"127.0.0.1", "localhost", "::1"})


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a server that is bound to ``host``."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def admits(host: str, origin: str | None, bound_to: str) -> bool:
    """Whether a request with these headers is meant for the server that is bound to ``bound_to``.

    Beyond loopback its own name and any address will do: an address cannot be made to lead elsewhere.
    """
    name = _name(f"//{host}")
    known = (
        name in LOCAL_NAMES or name == bound_to.lower() or (not is_loopback(bound_to) and _is_address(name))
    )
    return known and (origin is None or origin == f"http://{host}")


def _is_address(name: str | None) -> bool:
    try:
        return ip_address(name or "") is not None
    except ValueError:
        return False


def _name(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None
