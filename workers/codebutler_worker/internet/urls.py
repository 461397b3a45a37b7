"""Which addresses of pages may be asked for at all, before any name is looked up. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import SplitResult, urljoin, urlsplit

from codebutler.domain.errors import CodeButlerError

MAX_URL_CHARS = 2048
PORTS = {"http": 80, "https": 443}
_INSIDE = ("localhost", "local", "internal", "intranet", "lan", "home", "corp", "private", "arpa", "onion")
"""Ends of names that are never the public internet's; ``metadata.google.internal`` is one."""
_UNSAFE = re.compile(r"[\x00-\x20\x7f\\]|[^\x00-\x7f\w\-.~!$&'()*+,;=:@/?#\[\]%]")


class PageRefusedError(CodeButlerError):
    """This page may not be fetched; the message is one line that says why."""


@dataclass(frozen=True, slots=True)
class Target:
    """A page that may be looked for. ``host`` is lower case, in ASCII and without brackets."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def url(self) -> str:
        """The whole address, as it is asked for: no name and password, no fragment."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{host}{port}{self.path}"


def target(url: str, base: Target | None = None) -> Target:
    """``url`` (relative to ``base``, where a redirect named it) as a target. Raises PageRefusedError."""
    if not url or len(url) > MAX_URL_CHARS:
        raise PageRefusedError(f"an address has 1 to {MAX_URL_CHARS} characters")
    # Checked before anything parses it: two parsers that disagree about such characters see two hosts.
    if _UNSAFE.search(url):
        raise PageRefusedError(
            "the address holds spaces, control characters or a backslash: write them as %XX"
        )
    try:
        parts = urlsplit(urljoin(base.url, url) if base else url)
        return _checked(parts, parts.port)
    except ValueError as error:
        raise PageRefusedError(f"this is no web address: {error}") from None


def _checked(parts: SplitResult, port: int | None) -> Target:
    if parts.scheme not in PORTS:
        raise PageRefusedError("only http and https addresses can be fetched")
    if "@" in parts.netloc:
        raise PageRefusedError("an address with a user name or password in it is not fetched")
    if port is not None and port not in PORTS.values():
        raise PageRefusedError("only the ports 80 and 443 can be fetched from")
    host = _host(parts.hostname or "")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(parts.scheme, host, port or PORTS[parts.scheme], path)


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
        return host  # an IPv6 address, which the look-up gives back as it is
    labels = host.split(".")
    if len(labels) < 2 or labels[-1] in _INSIDE:
        raise PageRefusedError(f"{host[:100]} is a name of this machine or its network")
    return host
