"""Which proxy leads to an address. Pure: the worker's own environment, which is scrubbed, names none."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit


def proxy_of(url: str, env: Mapping[str, str]) -> str | None:
    """The proxy that ``env`` names for ``url`` (HTTP_PROXY, HTTPS_PROXY, NO_PROXY), None for this machine."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    direct = ("localhost", "127.0.0.1", "::1", *env.get("NO_PROXY", "").split(","))
    if any(_covers(rule.strip().lstrip("."), host) for rule in direct):
        return None
    return env.get(f"{parts.scheme.upper()}_PROXY") or None


def _covers(rule: str, host: str) -> bool:
    return rule == "*" or (bool(rule) and (host == rule or host.endswith(f".{rule}")))
