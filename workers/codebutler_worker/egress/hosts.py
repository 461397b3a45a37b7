"""Which hosts a program may reach: a list of names. Pure."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

PORTS = (80, 443)
"""What a name without a port stands for."""
LOCAL = ("127.0.0.1", "localhost")
_NAME = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*")
_AUTHORITY = re.compile(r"(?:\[([0-9A-Fa-f:.]{2,45})\]|([A-Za-z0-9_.-]{1,254}))(?::([0-9]{1,5}))?")


@dataclass(frozen=True, slots=True)
class Place:
    """``host``: a name in lower case without a final dot, or an address without brackets."""

    host: str
    port: int

    @property
    def authority(self) -> str:
        """As it stands in an HTTP request."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def place(authority: str, default_port: int = 0) -> Place | None:
    """``host:port`` as bytes on a wire name it; None for anything that two readers could read differently."""
    found = _AUTHORITY.fullmatch(authority)
    if found is None:
        return None
    port = int(found[3]) if found[3] else default_port
    host = _canonical(found[1] or found[2].lower().removesuffix("."))
    return Place(host, port) if host and 0 < port < 65536 else None


def _canonical(host: str) -> str:
    """An address as it is usually written, a name as it is; "" for what is neither.

    Resolvers take ``127.1`` and ``0x7f.1`` for addresses too: a name whose last label is a number is refused.
    """
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        last = host.rpartition(".")[2]
        return host if _NAME.fullmatch(host) and not re.fullmatch(r"\d+|0x[0-9a-f]*", last) else ""


@dataclass(frozen=True, slots=True)
class Hosts:
    """``entries``: ``name``, ``*.name`` (whatever ends so, not the name itself), an address; each with a port after a
    colon, or without (then 80 and 443)."""

    entries: tuple[str, ...] = ()

    def allow(self, wanted: Place) -> bool:
        """Whether ``wanted`` is on the list."""
        return any(_fits(entry, wanted) for entry in self.entries)

    @property
    def local(self) -> dict[int, Place]:
        """Port to place of what is listed of this machine's own loopback. A program's own loopback is another one, to
        which it goes without asking a proxy."""
        named = [(place(entry), place(entry, port)) for entry in self.entries for port in PORTS]
        found = [with_port or by_scheme for with_port, by_scheme in named]
        return {at.port: at for at in reversed(found) if at is not None and at.host in LOCAL}

    def told(self) -> str:
        """For people."""
        return ", ".join(self.entries) or "none"


def _fits(entry: str, wanted: Place) -> bool:
    bare = entry.removeprefix("*.")
    named = place(bare, PORTS[0])
    if named is None or wanted.port not in ((named.port,) if place(bare) else PORTS):
        return False
    return wanted.host.endswith(f".{named.host}") if bare != entry else wanted.host == named.host
